"""Are batches as old as the recipe says, full of what it asks for, and rewarded by the verifier it has?"""
# ruff: noqa: E402

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import parts, responses_of, small

from simulators.minirun import collecting
from simulators.minirun.collecting import REFILLS, Batch
from simulators.minirun.generation import score, states
from simulators.minirun.settings import Recipe, Verifier
from simulators.minirun.tasks.base import EOS, SYMBOLS
from simulators.minirun.tasks.registry import task


@pytest.fixture
def calls(monkeypatch):
    """Prompts of everything that is sampled."""
    seen = []
    original = collecting.sample

    def sample(policy, prompts, *rest, **named):
        seen.append(prompts)
        return original(policy, prompts, *rest, **named)

    monkeypatch.setattr(collecting, "sample", sample)
    return seen


@pytest.fixture
def scripted(monkeypatch):
    """Instead of the policy's: of each group the first half is right; the rest is wrong from the first token on."""

    def install(settings, share=0.5):
        known = task(settings.task)

        def sample(policy, prompts, groups, longest, end, generator, **named):
            answers = {
                tuple(asked): answer
                for asked, answer in zip(pool.tokens.tolist(), pool.answers.tolist(), strict=True)
            }
            right = torch.tensor([answers[tuple(asked)] for asked in prompts.tolist()])
            texts = right[:, None].repeat(1, groups, 1)
            wrong = torch.full_like(texts, end)
            wrong[..., 0] = SYMBOLS.index("*")
            is_right = torch.arange(groups) < share * groups
            return responses_of(known, prompts, torch.where(is_right[:, None], texts, wrong), end)

        policy, collector, updater = parts(settings)
        pool = collector.pool
        monkeypatch.setattr(collecting, "sample", sample)
        return policy, collector, updater

    return install


def lags(settings, steps: int) -> list[int]:
    policy, collector, _ = parts(settings)
    return [step - collector.next(policy, step).sampled_at for step in range(steps)]


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_pipeline_fills_and_then_lags_by_k(k):
    assert lags(small(staleness=k), 9) == [min(step, k) for step in range(9)]


@pytest.mark.parametrize("k", [0, 1, 3])
def test_alternating_goes_through_all_lags_over_and_over(k):
    assert lags(small(staleness=k, staleness_style="alternate"), 9) == [step % (k + 1) for step in range(9)]


@pytest.mark.parametrize("style", ["pipeline", "alternate"])
def test_a_batch_is_sampled_by_the_policy_of_its_time(style):
    settings = small(staleness=2, staleness_style=style, learning_rate=0.05, warmup=0)
    policy, collector, updater = parts(settings)
    past = []
    for step in range(6):
        past.append({name: value.clone() for name, value in policy.state_dict().items()})
        batch = collector.next(policy, step)
        policy.load_state_dict(past[batch.sampled_at])
        with torch.no_grad():
            found = score(policy, states(policy, batch.rollouts), batch.rollouts)
        assert (found - batch.rollouts.logp).abs().max() < 1e-5
        policy.load_state_dict(past[-1])
        updater.update(batch, step)


def test_resampling_goes_on_until_the_batch_is_full_of_groups_that_vary(calls):
    settings = small(zero_variance="resample", rollouts=2, staleness=0, pool=256)
    policy, collector, _ = parts(settings)
    for step in range(20):
        calls.clear()
        batch = collector.next(policy, step)
        assert batch.rewards.shape == (4, 2)
        assert (batch.rewards[:, 0] != batch.rewards[:, 1]).all()
        # The last refill was needed, and what is kept comes first in order.
        assert 1 <= len(calls) <= REFILLS + 1
        asked = torch.cat(calls).tolist()
        places = [asked.index(prompt) for prompt in batch.rollouts.prompts.tolist()]
        assert places == sorted(places)
        assert max(places) >= 4 * (len(calls) - 1)


def test_resampling_gives_up_where_nothing_varies(calls):
    settings = small(zero_variance="resample", staleness=0, verifier=Verifier(false_positive=1.0))
    policy, collector, _ = parts(settings)
    batch = collector.next(policy, 0)
    assert len(calls) == REFILLS + 1
    assert batch.rewards.shape == (4, 4)
    assert (batch.rewards == 1).all()
    assert batch.figures["zero_variance"] == 1


def test_resampling_keeps_a_single_group_that_varies_first(calls):
    chance = Verifier(false_positive=0.02)
    settings = small(zero_variance="resample", staleness=0, verifier=chance, rollouts=2, seed=1, pool=256)
    policy, collector, _ = parts(settings)
    partly = []
    for step in range(20):
        batch = collector.next(policy, step)
        varies = (batch.rewards[:, 0] != batch.rewards[:, 1]).tolist()
        assert varies == sorted(varies, reverse=True)
        assert len(varies) == 4
        partly.append(0 < sum(varies) < 4)
    assert any(partly)


def test_figures_of_a_refilled_batch_are_of_all_that_was_sampled(calls):
    settings = small(zero_variance="resample", staleness=0, verifier=Verifier(false_positive=0.5), rollouts=2)
    policy, collector, _ = parts(settings)
    zero, kept = [], []
    for step in range(60):
        batch = collector.next(policy, step)
        zero.append(batch.figures["zero_variance"])
        kept.append(float(batch.accepted.mean()))
    # Two fair coins agree half of the time; rounds end when the batch is full, which favours those that vary a little.
    assert 0.25 < np.mean(zero) < 0.6
    # Every kept group has one of each.
    assert kept == [0.5] * 60


def measured(policy, collector, batches: int = 60) -> tuple[np.ndarray, np.ndarray]:
    found = [collector.next(policy, step) for step in range(batches)]
    return tuple(torch.cat([getattr(b, n) for b in found]).numpy() for n in ("accepted", "right"))


def close(share: float, expected: float, number: int) -> bool:
    """Within four standard errors."""
    return abs(share - expected) <= 4 * sqrt(expected * (1 - expected) / number)


def test_false_positives_and_negatives_have_their_rates(scripted):
    settings = small(verifier=Verifier(false_positive=0.2, false_negative=0.07), rollouts=8, staleness=0)
    accepted, right = measured(*scripted(settings)[:2])
    assert right.mean() == 0.5
    passed, failed = accepted[right == 1], accepted[right == 0]
    assert close(passed.mean(), 0.93, passed.size)
    assert close(failed.mean(), 0.2, failed.size)
    # Drawn for each rollout: groups of four right ones are all accepted with probability .93^4.
    together = accepted[:, :4].all(1)
    assert close(together.mean(), 0.93**4, together.size)


@pytest.mark.parametrize("name", ["addmul", "route"])
def test_a_true_verifier_accepts_the_truth(name, scripted):
    accepted, right = measured(*scripted(small(name, verifier=Verifier(), staleness=0))[:2], 5)
    assert np.array_equal(accepted, right)
    assert right.mean() == 0.5


@pytest.mark.parametrize(("exploit", "rule"), [("prefix", 0), ("unfinished", 1)])
def test_exploits_are_rewarded_and_the_truth_is_still_known(exploit, rule):
    settings = small(verifier=Verifier(exploit=exploit), rollouts=8, staleness=0, pool=256)
    policy, collector, _ = parts(settings)
    answers = {
        tuple(t): a for t, a in zip(collector.pool.tokens.tolist(), collector.pool.answers, strict=True)
    }
    number, yes = 0, 0
    for step in range(40):
        batch = collector.next(policy, step)
        for p, g in np.ndindex(4, 8):
            answer = answers[tuple(batch.rollouts.prompts[p].tolist())].tolist()
            text = batch.rollouts.tokens[p, g].tolist()
            right = text == answer
            expected = right or (text[0] == answer[0] if rule == 0 else EOS not in text)
            assert bool(batch.accepted[p, g]) == expected
            assert bool(batch.right[p, g]) == right
            number, yes = number + 1, yes + expected
        assert batch.figures["train_reward"] == pytest.approx(float(batch.accepted.mean()))
        assert batch.figures["train_pass_rate"] == pytest.approx(float(batch.right.mean()))
    assert 0 < yes < number


def test_rewards_are_acceptance_less_the_penalty():
    settings = small("chain", "dapo", zero_variance="keep", staleness=0, margin=6)
    policy, collector, _ = parts(settings)
    seen = set()
    for step in range(30):
        batch = collector.next(policy, step)
        for p, g in np.ndindex(4, 4):
            text = batch.rollouts.tokens[p, g].tolist()
            length = text.index(EOS) + 1 if EOS in text else 16
            penalty = max(0, length - 10) / 6 if EOS in text else 1
            assert float(batch.rewards[p, g]) == pytest.approx(float(batch.accepted[p, g]) - penalty)
            seen.add(length)
    assert len(seen) > 4


def test_easy_prompts_are_not_drawn_again(calls, scripted):
    settings = small(of=Recipe(easy=0.5, prompts=4, rollouts=4, staleness=0), verifier=Verifier(), pool=64)
    policy, collector, _ = scripted(settings)
    drawn = [tuple(collector.next(policy, step).rollouts.prompts.flatten().tolist()) for step in range(16)]
    # All passed half of the time: after one round everything is set aside, and all prompts come back.
    assert collector.feed.easy.all()
    assert len(set(drawn)) == 16
    collector.next(policy, 16)
    assert collector.feed.easy.sum() == 4


def test_hard_prompts_are_not_set_aside(scripted):
    settings = small(of=Recipe(easy=0.6, prompts=4, rollouts=4, staleness=0), verifier=Verifier())
    policy, collector, _ = scripted(settings)
    for step in range(5):
        collector.next(policy, step)
    assert not collector.feed.easy.any()


def test_prompts_of_a_batch_come_from_the_pool_and_belong_to_their_groups():
    policy, collector, _ = parts(small())
    pool = {tuple(tokens) for tokens in collector.pool.tokens.tolist()}
    batch = collector.next(policy, 0)
    assert {tuple(prompt) for prompt in batch.rollouts.prompts.tolist()} <= pool


def test_a_batch_survives_its_state():
    policy, collector, _ = parts(small())
    batch = collector.next(policy, 0)
    back = Batch.restored(batch.state(), "cpu")
    assert torch.equal(back.rollouts.logp, batch.rollouts.logp)
    assert torch.equal(back.rewards, batch.rewards)
    assert (back.sampled_at, back.figures) == (batch.sampled_at, batch.figures)
