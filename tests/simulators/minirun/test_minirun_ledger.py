"""Is every token that is generated or trained on charged, once, and at the price of the formula?"""
# ruff: noqa: E402

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st
from minirun_tiny import parts, small

from simulators.minirun import collecting
from simulators.minirun.generation import Rollouts
from simulators.minirun.ledger import Ledger, work
from simulators.minirun.model import Transformer
from simulators.minirun.settings import Size


def price(policy: Transformer, prompt: int, count: int, lengths: list[int]) -> tuple[int, float]:
    """Tokens and operations of a forward pass, token after token.

    A token is multiplied with every matrix (2 N), and in every layer with the keys and the values of every token it
    sees (2 x 2 x width).
    """
    apart = ("symbols.weight", "positions.weight", "value.weight")
    matrices = [p for name, p in policy.named_parameters() if p.ndim == 2 and name not in apart]
    each = 2 * sum(p.shape[0] * p.shape[1] for p in matrices)
    tokens, operations = 0, 0.0
    for _ in range(count):
        for seen in range(1, prompt):
            tokens += 1
            operations += each + policy.size.layers * 4 * policy.size.width * seen
    for length in lengths:
        # The last token of the prompt goes in with each response; the last of the response does not.
        for at in range(length):
            tokens += 1
            operations += each + policy.size.layers * 4 * policy.size.width * (prompt + at)
    return tokens, operations


def default() -> Transformer:
    return Transformer(Size(), 26, 20, torch.Generator().manual_seed(0))


def test_three_batches_of_the_worked_example():
    policy, batches = default(), 3
    used = work(10, 4, [6] * 8)
    assert batches * used.tokens == 252
    # Prompt tokens see 1 to 9; response tokens 10 to 15.
    attended = 4 * sum(range(1, 10)) + 8 * sum(range(10, 16))
    expected = 252 * 2 * 99_968 + batches * 4 * 2 * 64 * attended
    assert batches * used.forward(policy) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.data())
def test_ragged_lengths_by_brute_force(prompt, count, groups, data):
    policy = Transformer(Size(8, 3, 2), 26, 30, torch.Generator().manual_seed(0))
    number = count * groups
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=number, max_size=number))
    used = work(prompt, count, lengths)
    tokens, operations = price(policy, prompt, count, lengths)
    assert used.tokens == tokens
    assert used.forward(policy) == pytest.approx(operations, rel=1e-12)


@pytest.fixture
def watched(monkeypatch):
    """Everything that is sampled, kept or not."""
    seen: list[Rollouts] = []
    original = collecting.sample

    def sample(*arguments, **named):
        seen.append(original(*arguments, **named))
        return seen[-1]

    monkeypatch.setattr(collecting, "sample", sample)
    return seen


def charged(policy, batches: list[Rollouts]) -> tuple[int, float]:
    bills = [
        price(policy, each.prompts.shape[1], len(each.prompts), each.written.sum(-1).flatten().tolist())
        for each in batches
    ]
    return sum(tokens for tokens, _ in bills), sum(operations for _, operations in bills)


@pytest.mark.parametrize("task", ["addmul", "chain"])
@pytest.mark.parametrize(
    ("of", "passes"),
    [("reinforce", 3), ("scalerl", 3), ("grpo", 4), ("online_dpo", 4), ("dapo", 3), ("ppo", 3)],
)
def test_a_run_is_charged_for_all_it_samples_and_for_all_it_is_given_to_train_on(task, of, passes, watched):
    policy, collector, updater = parts(small(task, of, rollouts=2))
    trained = []
    for step in range(4):
        batch = collector.next(policy, step)
        trained.append(batch.rollouts)
        updater.update(batch, step)
    ledger = updater.ledger
    _, forward = charged(policy, watched)
    assert ledger.gen_flops == pytest.approx(forward, rel=1e-12)
    # A pipeline holds batches that wait: their operations are spent, but nothing was trained on them yet.
    used = watched if of == "dapo" else watched[:4]
    generated, _ = charged(policy, used)
    assert ledger.tokens == generated
    assert ledger.rollouts == sum(each.tokens.shape[0] * each.tokens.shape[1] for each in used)
    tokens, forward = charged(policy, trained)
    assert (ledger.train_tokens, ledger.train_flops) == (tokens, pytest.approx(passes * forward, rel=1e-12))
    assert ledger.flops == ledger.gen_flops + ledger.train_flops
    assert ledger.eval_flops == 0
    if of == "dapo":
        assert len(watched) > 4
        assert ledger.tokens > ledger.train_tokens


def test_warm_start_and_evaluation_are_kept_apart():
    ledger = Ledger(gen_flops=1.0, train_flops=2.0, eval_flops=100.0)
    assert ledger.flops == 3.0
