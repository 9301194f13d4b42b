"""Are rollouts draws from the policy, and is what they carry about themselves true?"""
# ruff: noqa: E402

from __future__ import annotations

import pytest
from scipy.stats import chi2

torch = pytest.importorskip("torch")

from minirun_tiny import by_hand, lively

from simulators.minirun.generation import Interruption, Rollouts, sample, score, states
from simulators.minirun.settings import Size

SIZE = Size(16, 1, 2)
SYMBOLS, LONGEST, END, MARK = 6, 5, 4, 3
PROMPT = torch.tensor([[0, 2, 1], [3, 3, 0]])


def draw(seed: int = 0, groups: int = 6, longest: int = LONGEST, policy=None, **how) -> Rollouts:
    policy = lively(SIZE, SYMBOLS, 3 + LONGEST, 0) if policy is None else policy
    return sample(policy, PROMPT, groups, longest, END, torch.Generator().manual_seed(seed), **how)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_pairs_of_tokens_are_as_frequent_as_the_model_says(temperature):
    policy, groups = lively(SIZE, SYMBOLS, 3 + LONGEST, 0), 20_000
    tokens = draw(1, groups, 2, policy, temperature=temperature).tokens
    held = {name: value.detach().double() for name, value in policy.named_parameters()}

    def probability(sequence):
        logits = by_hand(held, SIZE, sequence)[-1] @ held["head.weight"].T
        return torch.softmax(logits / temperature, -1)

    for p, prompt in enumerate(PROMPT):
        first = probability(prompt)
        expected = torch.stack(
            [
                first[a] * probability(torch.cat([prompt, torch.tensor([a])]))
                if a != END
                else first[a] * torch.nn.functional.one_hot(torch.tensor(END), SYMBOLS)
                for a in range(SYMBOLS)
            ]
        ).flatten()
        pairs = tokens[p, :, 0] * SYMBOLS + tokens[p, :, 1]
        found = torch.bincount(pairs, minlength=SYMBOLS**2).double()
        rare = expected * groups < 8
        assert (~rare).sum() > 8
        cells = torch.cat([expected[~rare], expected[rare].sum()[None]]) * groups
        seen = torch.cat([found[~rare], found[rare].sum()[None]])
        assert found[expected == 0].sum() == 0
        if cells[-1] < 8:
            cells, seen = cells[:-1], seen[:-1]
        statistic = float(((seen - cells) ** 2 / cells).sum())
        assert chi2.sf(statistic, len(cells) - 1) > 1e-4


def test_a_seed_gives_the_same_rollouts_again_and_another_seed_others():
    first, again, other = draw(3), draw(3), draw(4)
    assert all(torch.equal(getattr(first, n), getattr(again, n)) for n in first.__dataclass_fields__)
    assert not torch.equal(first.tokens, other.tokens)


@pytest.mark.parametrize("interruption", [None, Interruption(2, MARK)])
def test_nothing_is_chosen_after_the_end(interruption):
    rollouts = draw(0, 200, interruption=interruption)
    lengths = []
    for p, g in torch.ones(rollouts.tokens.shape[:2]).nonzero().tolist():
        tokens = rollouts.tokens[p, g].tolist()
        length = tokens.index(END) + 1 if END in tokens else LONGEST
        lengths.append(length)
        assert tokens[length:] == [END] * (LONGEST - length)
        assert rollouts.written[p, g].tolist() == [t < length for t in range(LONGEST)]
        forced = interruption is not None and length > 2 and MARK not in tokens[:2]
        chosen = [t < length and not (forced and t == 2) for t in range(LONGEST)]
        assert rollouts.mask[p, g].tolist() == chosen
    assert set(lengths) >= ({1, 2, 4, 5} if interruption else {1, 2, 3, 4, 5})
    nothing = ~rollouts.mask
    assert (rollouts.logp[nothing] == 0).all()
    assert (rollouts.entropy[nothing] == 0).all()
    assert (rollouts.logp[rollouts.mask] < 0).all()


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_entropy_is_that_of_the_distribution_drawn_from(temperature):
    policy = lively(SIZE, SYMBOLS, 3 + LONGEST, 0)
    rollouts = draw(5, 20, policy=policy, temperature=temperature)
    logits = policy.logits(states(policy, rollouts)) / temperature
    expected = torch.distributions.Categorical(logits=logits.detach()).entropy()
    torch.testing.assert_close(rollouts.entropy[rollouts.mask], expected[rollouts.mask], rtol=0, atol=2e-5)


def test_a_forced_token_is_written_where_a_response_is_open_and_has_no_gradient():
    policy, at = lively(SIZE, SYMBOLS, 3 + LONGEST, 0), 1
    rollouts = draw(6, 50, policy=policy, interruption=Interruption(at, MARK))
    open_ = rollouts.tokens[..., 0] != END
    # Who has chosen the mark already is left alone.
    forced = open_ & (rollouts.tokens[..., 0] != MARK)
    assert 0 < forced.sum() < open_.sum() < open_.numel()
    assert (rollouts.tokens[..., at][forced] == MARK).all()
    assert torch.equal(rollouts.written[..., at], open_)
    assert torch.equal(rollouts.mask[..., at], open_ & ~forced)
    assert (rollouts.logp[..., at][forced] == 0).all()
    seen = states(policy, rollouts).detach().requires_grad_()
    score(policy, seen, rollouts).sum().backward()
    assert torch.equal(seen.grad[:, :, at].abs().amax(-1) > 0, open_ & ~forced)
    assert (seen.grad[:, :, 0].abs().amax(-1) > 0).all()
    later = seen.grad[:, :, at + 1].abs().amax(-1) > 0
    assert (later[forced]).all()


def test_what_follows_a_forced_token_is_drawn_as_if_it_had_been_chosen():
    policy = lively(SIZE, SYMBOLS, 3 + LONGEST, 0)
    rollouts = draw(7, 5, policy=policy, interruption=Interruption(0, MARK))
    held = {name: value.detach().double() for name, value in policy.named_parameters()}
    for p, prompt in enumerate(PROMPT):
        sequence = torch.cat([prompt, torch.tensor([MARK])])
        logits = by_hand(held, SIZE, sequence)[-1] @ held["head.weight"].T
        expected = logits.log_softmax(-1)[rollouts.tokens[p, :, 1]]
        torch.testing.assert_close(rollouts.logp[p, :, 1].double(), expected, rtol=0, atol=2e-5)


def test_groups_are_picked_and_joined_with_all_that_belongs_to_them():
    rollouts = draw()
    back = Rollouts.together([rollouts[torch.tensor([0])], rollouts[torch.tensor([False, True])]])
    for name in rollouts.__dataclass_fields__:
        assert torch.equal(getattr(back, name), getattr(rollouts, name))
