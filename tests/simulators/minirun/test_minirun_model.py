"""Is the transformer, with its shared prompts and its cache, the one of the textbook?"""
# ruff: noqa: E402

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from minirun_tiny import by_hand, lively

from simulators.minirun.generation import Interruption, Rollouts, sample, score, states
from simulators.minirun.model import Transformer, rounded
from simulators.minirun.settings import PRECISIONS, Size

SIZE = Size(16, 2, 4)
SYMBOLS, PROMPT, LONGEST, END, MARK = 11, 5, 6, 9, 10


def policy(seed: int = 0, trunk: str = "float32") -> Transformer:
    return lively(SIZE, SYMBOLS, PROMPT + LONGEST, seed, trunk)


def prompts(count: int = 3, seed: int = 1):
    return torch.randint(SYMBOLS, (count, PROMPT), generator=torch.Generator().manual_seed(seed))


def sampled(model: Transformer, seed: int = 2, **how) -> Rollouts:
    return sample(model, prompts(), 4, LONGEST, END, torch.Generator().manual_seed(seed), **how)


def doubled(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}


def states_by_hand(held: dict[str, torch.Tensor], rollouts: Rollouts) -> torch.Tensor:
    """Every prompt and response as one sequence; of its states those that a response token is drawn from."""
    groups = rollouts.tokens.shape[1]
    return torch.stack(
        [
            torch.stack(
                [
                    by_hand(held, SIZE, torch.cat([prompt, rollouts.tokens[p, g, :-1]]))[PROMPT - 1 :]
                    for g in range(groups)
                ]
            )
            for p, prompt in enumerate(rollouts.prompts)
        ]
    )


def test_default_size_has_the_published_number_of_matrix_parameters():
    model = Transformer(Size(), 26, 20, torch.Generator().manual_seed(0))
    assert model.matmul_parameters == 99_968


def test_lengths_of_the_sampled_rollouts_differ():
    lengths = sampled(policy()).written.sum(-1)
    assert lengths.min() < LONGEST
    assert lengths.unique().numel() > 2


def test_states_and_logits_are_those_of_full_sequences_without_sharing():
    model = policy()
    rollouts, held = sampled(model), doubled(model)
    expected = states_by_hand(held, rollouts)
    found = states(model, rollouts)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-5)
    logits = expected @ held["head.weight"].T
    torch.testing.assert_close(model.logits(found).double(), logits, rtol=0, atol=1e-4)


def test_gradients_of_a_log_likelihood_are_those_of_full_sequences():
    model = policy()
    rollouts, held = sampled(model, interruption=Interruption(2, MARK)), doubled(model)
    logs = (states_by_hand(held, rollouts) @ held["head.weight"].T / 1.3).log_softmax(-1)
    total = 0.0
    for p, g, t in rollouts.mask.nonzero().tolist():
        total = total + logs[p, g, t, rollouts.tokens[p, g, t]]
    total.backward()
    score(model, states(model, rollouts), rollouts, temperature=1.3).sum().backward()
    assert model.value.weight.grad is None
    for name, parameter in model.named_parameters():
        if not name.startswith("value"):
            expected = held[name].grad
            assert expected.abs().max() > 1e-3, name
            scale = float(expected.abs().max())
            torch.testing.assert_close(
                parameter.grad.double(),
                expected,
                rtol=0,
                atol=1e-4 * scale,
                msg=lambda text, n=name: n + text,
            )


@pytest.mark.parametrize("interruption", [None, Interruption(3, MARK)])
@pytest.mark.parametrize("temperature", [1.0, 1.7])
@pytest.mark.parametrize("head", PRECISIONS)
def test_step_by_step_with_a_cache_scores_as_all_at_once(head, temperature, interruption):
    model = policy()
    how = {"head": head, "temperature": temperature}
    rollouts = sampled(model, interruption=interruption, **how)
    found = score(model, states(model, rollouts), rollouts, **how)
    apart = (found - rollouts.logp).abs()[rollouts.mask]
    # Where rounding is coarse, the last bit of a state may decide which way a number goes.
    coarse = {"float32": 1e-5, "bfloat16": 0.1, "float8": 0.8}[head]
    assert apart.max() < coarse
    assert (apart < 2e-5).float().mean() > 0.9
    assert torch.equal(found == 0, ~rollouts.mask)


def test_heads_of_different_precision_do_not_agree():
    model = policy()
    rollouts = sampled(model)
    seen = states(model, rollouts)
    exact, half, quarter = (score(model, seen, rollouts, head=head) for head in PRECISIONS)
    errors = [float((each - exact).detach().abs().max()) for each in (half, quarter)]
    assert 1e-4 < errors[0] < errors[1]


@pytest.mark.parametrize("changed", range(LONGEST))
def test_a_token_changes_what_follows_it_in_its_own_rollout_and_nothing_else(changed):
    model = policy()
    rollouts = sampled(model)
    tokens = rollouts.tokens.clone()
    tokens[1, 2, changed] = (tokens[1, 2, changed] + 1) % SYMBOLS
    other = Rollouts(
        rollouts.prompts, tokens, *(getattr(rollouts, n) for n in ("logp", "mask", "written", "entropy"))
    )
    moved = (states(model, rollouts) - states(model, other)).abs().amax(-1)
    expected = torch.zeros(moved.shape, dtype=torch.bool)
    expected[1, 2, changed + 1 :] = True
    assert torch.equal(moved > 1e-4, expected)
    assert moved[~expected].max() < 1e-6 if (~expected).any() else True


@pytest.mark.parametrize("changed", range(PROMPT))
def test_a_prompt_token_changes_all_of_its_rollouts_and_no_others(changed):
    model = policy()
    rollouts = sampled(model)
    asked = rollouts.prompts.clone()
    asked[0, changed] = (asked[0, changed] + 1) % SYMBOLS
    rest = (getattr(rollouts, n) for n in ("tokens", "logp", "mask", "written", "entropy"))
    moved = (states(model, rollouts) - states(model, Rollouts(asked, *rest))).abs().amax(-1)
    assert (moved[0] > 1e-4).all()
    assert moved[1:].max() < 1e-6


def test_a_bfloat16_trunk_is_close_to_float32_and_learns():
    exact, half = policy(), policy(trunk="bfloat16")
    rollouts = sampled(half)
    apart = states(exact, rollouts) - states(half, rollouts)
    size = states(exact, rollouts).pow(2).mean().sqrt()
    assert 1e-4 < apart.pow(2).mean().sqrt() / size < 0.1
    assert states(half, rollouts).dtype == torch.float32
    gradients = []
    for model in (exact, half):
        score(model, states(model, rollouts), rollouts).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert gradients[1].isfinite().all()
    assert torch.cosine_similarity(*gradients, dim=0) > 0.95


def test_a_bfloat16_trunk_scores_as_it_sampled():
    model = policy(trunk="bfloat16")
    rollouts = sampled(model)
    found = score(model, states(model, rollouts), rollouts)
    assert (found - rollouts.logp).abs().mean() < 0.05


FLOAT8 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()


@settings(max_examples=200, deadline=None)
@given(st.floats(-440, 440, width=32))
def test_float8_is_the_nearest_of_the_256_numbers(value):
    known = FLOAT8[FLOAT8.isfinite()]
    found = rounded(torch.tensor([value]), "float8")
    assert (known == found).any()
    assert (found - value).abs() == (known - value).abs().min()


@settings(max_examples=200, deadline=None)
@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_bfloat16_keeps_eight_bits_and_is_off_by_half_of_the_last_at_most(value):
    found = rounded(torch.tensor([value]), "bfloat16")
    assert int(found.view(torch.int32)) & 0xFFFF == 0
    assert abs(float(found) - value) <= max(abs(value) * 2.0**-8, 1e-40)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_pass_through_rounding(precision):
    x = torch.linspace(-3, 3, 50, requires_grad=True)
    pull = torch.linspace(1, 2, 50)
    (rounded(x, precision) * pull).sum().backward()
    assert torch.equal(x.grad, pull)


def test_initial_weights_hang_on_their_generator_alone():
    torch.manual_seed(1)
    first = Transformer(SIZE, SYMBOLS, 8, torch.Generator().manual_seed(5))
    torch.manual_seed(2)
    second = Transformer(SIZE, SYMBOLS, 8, torch.Generator().manual_seed(5))
    third = Transformer(SIZE, SYMBOLS, 8, torch.Generator().manual_seed(6))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.head.weight, third.head.weight)


def test_logits_of_untrained_weights_are_of_order_one():
    model = Transformer(Size(), 26, 20, torch.Generator().manual_seed(0))
    tokens = torch.randint(26, (8, 9), generator=torch.Generator().manual_seed(1))
    rollouts = sample(model, tokens, 4, 10, 13, torch.Generator().manual_seed(2))
    spread = float(model.logits(states(model, rollouts)).detach().std())
    assert 0.5 < spread < 2
