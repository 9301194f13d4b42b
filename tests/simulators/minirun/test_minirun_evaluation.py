"""Does the held-out measurement say what it claims, of every class, and without touching what is trained?"""
# ruff: noqa: E402

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import parts, same, small, weights

from simulators.minirun import evaluation
from simulators.minirun.evaluation import evaluate, heldout, pass_at
from simulators.minirun.settings import Verifier
from simulators.minirun.tasks.base import counts
from simulators.minirun.tasks.registry import TASKS, task
from simulators.minirun.training import Run, train


@pytest.mark.parametrize("k", range(1, 7))
def test_pass_at_k_over_all_subsets(k):
    samples, passed = 6, np.array([0, 1, 2, 3, 6, 5, 1])
    expected = np.mean(
        [
            np.mean([any(i < right for i in chosen) for chosen in combinations(range(samples), k)])
            for right in passed
        ]
    )
    assert pass_at(k, passed, samples) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", TASKS)
def test_the_held_out_set_is_one_for_all_and_shares_nothing_with_training(name):
    first = Run(small(name, seed=0, heldout=64), weights(small(name)))
    second = Run(small(name, seed=5, warm_seed=3, heldout=64), weights(small(name)))
    assert np.array_equal(first.heldout.tokens, second.heldout.tokens)
    assert not np.array_equal(first.collector.pool.tokens, second.collector.pool.tokens)
    held = set(first.heldout.keys.tolist())
    for run in (first, second):
        assert not held & set(run.collector.pool.keys.tolist())


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("count", [8, 100, 256])
def test_classes_have_their_share_and_small_ones_are_asked_again_as_evenly_as_can_be(name, count):
    found = heldout(task(name), count)
    assert len(found) == count
    for index, share in enumerate(counts(task(name), count)):
        keys, times = np.unique(found.keys[found.stratum == index], return_counts=True)
        assert times.sum() == share
        assert np.ptp(times) <= 1
        if name == "addmul" and index == 0:
            # Fourteen sums of two one-digit numbers are held out.
            assert len(keys) == min(share, 14)
        else:
            assert (times == 1).all()


def scripted(monkeypatch, chance: list[float]) -> None:
    """Instead of the policy's, right answers with a probability for each class."""
    rng = np.random.default_rng(0)
    prompts = heldout(task("addmul"), 40)
    known = zip(prompts.tokens.tolist(), prompts.answers, prompts.stratum, strict=True)
    answers = {tuple(tokens): (answer, stratum) for tokens, answer, stratum in known}

    def sample(policy, asked, groups, longest, end, generator, **named):
        texts = torch.full((len(asked), groups, longest), end)
        for p, prompt in enumerate(asked.tolist()):
            answer, stratum = answers[tuple(prompt)]
            for g in range(groups):
                if rng.random() < chance[stratum]:
                    texts[p, g] = torch.as_tensor(answer)
        written = torch.ones(texts.shape, dtype=torch.bool)
        nothing = torch.zeros(texts.shape)
        return evaluation.Rollouts(asked, texts, nothing, written, written, nothing)

    monkeypatch.setattr(evaluation, "sample", sample)


def test_each_class_is_measured_on_its_own_and_together_they_are_the_whole(monkeypatch):
    scripted(monkeypatch, [1.0, 0.0, 0.5, 0.25])
    settings = small(heldout=40, samples=8, steps=1)
    rows = train(settings, weights(settings))
    first = [row for row in rows if row["step"] == 0]
    whole, classes = first[0], first[1:]
    assert [row["stratum"] for row in classes] == list(task("addmul").classes)
    assert "stratum" not in whole
    assert whole["trials"] == 320 == sum(row["trials"] for row in classes)
    right = sum(row["pass_rate"] * row["trials"] for row in classes)
    assert whole["pass_rate"] * 320 == pytest.approx(right, abs=1e-9)
    found = [row["pass_rate"] for row in classes]
    assert found[:2] == [1.0, 0.0]
    for rate, expected in zip(found[2:], (0.5, 0.25), strict=True):
        assert abs(rate - expected) < 4 * sqrt(expected * (1 - expected) / 80)
    assert whole["pass_rate"] <= whole["pass@2"] <= whole["pass@4"] <= whole["pass@8"] <= 1
    assert "pass@16" not in whole


def test_pass_at_all_samples_is_the_share_of_prompts_solved_at_all(monkeypatch):
    scripted(monkeypatch, [0.1, 0.1, 0.1, 0.1])
    settings = small(heldout=40, samples=4)
    policy, _, _ = parts(settings)
    found = evaluate(policy, task("addmul"), heldout(task("addmul"), 40), settings, torch.Generator())
    assert found.figures["pass@4"] == pytest.approx(np.mean(found.passed > 0))
    assert 0 < found.figures["pass@4"] < 1


def test_the_truth_is_measured_whatever_the_verifier_says():
    settings = small(verifier=Verifier(false_positive=1.0, exploit="unfinished"), heldout=64)
    row = train(settings, weights(settings))[0]
    assert row["pass_rate"] < 0.2
    assert row["proxy_pass_rate"] == 1.0
    honest = train(small(verifier=Verifier(), heldout=64), weights(settings))[0]
    assert "proxy_pass_rate" not in honest
    assert honest["pass_rate"] == row["pass_rate"]


def test_it_is_made_at_temperature_one_whatever_training_samples_at():
    cold, hot = (train(small(temperature=t), weights(small()))[0] for t in (0.5, 2.0))
    for name in ("pass_rate", "val_entropy", "val_response_length"):
        assert cold[name] == hot[name]


@pytest.mark.parametrize("of", ["base", "dapo"])
def test_measuring_more_often_changes_nothing_of_what_is_trained(of):
    runs = []
    for points in (2, 5, 20):
        settings = small(of=of, steps=12, points=points)
        run = Run(settings, weights(settings))
        while not run.done:
            run.advance()
        runs.append(run)
    assert len(runs[0].rows) < len(runs[1].rows) < len(runs[2].rows)
    for run in runs[1:]:
        assert same(runs[0].policy.state_dict(), run.policy.state_dict())
        last = [next(row for row in r.rows if row["step"] == 12) for r in (runs[0], run)]
        for name in ("pass_rate", "tokens", "gen_flops", "train_flops", "val_entropy"):
            assert last[0][name] == last[1][name]
        assert last[0]["eval_flops"] < last[1]["eval_flops"]
    assert not same(runs[0].policy.state_dict(), weights(small()))


def test_chunks_do_not_change_what_is_asked(monkeypatch):
    settings = small(heldout=40)
    policy, _, _ = parts(settings)
    prompts = heldout(task("addmul"), 40)
    asked = []
    original = evaluation.sample

    def sample(policy, tokens, *rest, **named):
        asked.append(tokens)
        return original(policy, tokens, *rest, **named)

    monkeypatch.setattr(evaluation, "sample", sample)
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    found = evaluate(policy, task("addmul"), prompts, settings, torch.Generator().manual_seed(0))
    assert [len(each) for each in asked] == [16, 16, 8]
    assert np.array_equal(torch.cat(asked).numpy(), prompts.tokens)
    assert found.passed.shape == (40,)
    assert found.work.tokens > 40 * (task("addmul").prompt_length - 1)


def test_truncated_answers_are_counted():
    settings = small("chain", heldout=64, samples=4)
    policy, _, _ = parts(settings)
    with torch.no_grad():
        policy.norm.zero_()
    # Logits are all equal: an answer of 16 symbols has no end with probability (25 / 26)^16.
    found = evaluate(
        policy, task("chain"), heldout(task("chain"), 64), settings, torch.Generator().manual_seed(1)
    )
    expected = (25 / 26) ** 16
    assert abs(found.figures["val_truncated"] - expected) < 4 * sqrt(expected * (1 - expected) / 256)
    assert found.figures["val_entropy"] == pytest.approx(np.log(26), rel=1e-5)
    # Symbols up to and including the end: (1 - q^16) / (1 - q), and at most 16.
    mean = (1 - (25 / 26) ** 16) / (1 / 26)
    assert abs(found.figures["val_response_length"] - mean) < 4 * 4.5 / sqrt(256)
