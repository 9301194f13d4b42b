"""The implementation without a cache, which speed is measured against, is the same model."""
# ruff: noqa: E402

from __future__ import annotations

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dataclasses import replace

from click.testing import CliRunner

from simulators.minirun.generation import sample, score, states
from simulators.minirun.recipes import recipe
from simulators.minirun.settings import RunSettings, Size
from simulators.minirun.tasks.base import EOS
from simulators.minirun.tasks.registry import task
from simulators.minirun.warm_start import blank
from studies.minirun_speed import KINDS, Loop, Plain, disagreement, main, measure, read_size, table

ADDMUL = task("addmul")
SIZE = Size(16, 2, 2)


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def settings() -> RunSettings:
    knobs = replace(recipe("base"), prompts=3, rollouts=4, staleness=0)
    return RunSettings("addmul", recipe=knobs, size=SIZE, pool=64, heldout=8, samples=2)


@pytest.fixture
def weights():
    return dict(blank(ADDMUL, SIZE, 5).state_dict())


def both(weights):
    return [Loop(kind, RunSettings("addmul", size=SIZE, pool=64), weights).policy for kind in KINDS.values()]


def test_it_gives_the_same_log_probabilities_and_draws(weights) -> None:
    ours, plain = both(weights)
    assert type(plain) is Plain
    prompts = torch.as_tensor(ADDMUL.draw("train", [2, 2, 2, 2], np.random.default_rng(1)).tokens)
    drawn = [sample(each, prompts, 6, 5, EOS, torch.Generator().manual_seed(2)) for each in (ours, plain)]
    assert torch.equal(drawn[0].tokens, drawn[1].tokens)
    torch.testing.assert_close(drawn[0].logp, drawn[1].logp, rtol=0, atol=1e-5)
    scores = [score(each, states(each, drawn[0]), drawn[0]) for each in (ours, plain)]
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-5)
    assert disagreement(ours, plain, drawn[0]) < 1e-5
    # Not because nothing depends on the prompt.
    moved = sample(ours, prompts.flip(0), 6, 5, EOS, torch.Generator().manual_seed(2))
    assert (moved.logp - drawn[0].logp).abs().max() > 1e-2


def test_it_gives_the_same_gradient(weights) -> None:
    policies = both(weights)
    prompts = torch.as_tensor(ADDMUL.draw("train", [2, 2, 2, 2], np.random.default_rng(1)).tokens)
    rollouts = sample(policies[0], prompts, 6, 5, EOS, torch.Generator().manual_seed(2))
    for each in policies:
        score(each, states(each, rollouts), rollouts).sum().backward()
    grads = [{n: p.grad for n, p in each.named_parameters() if p.grad is not None} for each in policies]
    assert grads[0].keys() == grads[1].keys()
    for name, gradient in grads[0].items():
        torch.testing.assert_close(gradient, grads[1][name], rtol=1e-4, atol=1e-4)


def test_another_model_is_noticed(weights) -> None:
    ours, plain = both(weights)
    with torch.no_grad():
        plain.blocks[0].mix.weight[0, 0] += 1
    prompts = torch.as_tensor(ADDMUL.draw("train", [1, 1, 1, 1], np.random.default_rng(1)).tokens)
    rollouts = sample(ours, prompts, 4, 5, EOS, torch.Generator().manual_seed(2))
    assert disagreement(ours, plain, rollouts) > 1e-3


def test_the_table_has_every_part(settings, weights) -> None:
    calls = measure(settings, weights, 1)
    assert all(len(found) == 1 for kinds in calls.values() for found in kinds.values())
    whole, parts = calls["whole update"]["ours"][0], [calls["collecting"], calls["training step"]]
    assert whole.seconds == pytest.approx(sum(part["ours"][0].seconds for part in parts))
    assert 12 <= whole.tokens <= 12 * ADDMUL.answer_length
    lines = table(calls).splitlines()
    assert len(lines) == 2 + len(calls)
    assert len({line.count("|") for line in lines}) == 1
    assert all(re.search(r"\| \d+\.\d\d \(\d+\.\d\d\) \|", line) for line in lines[2:])


def test_the_script_prints_its_table() -> None:
    small = ["--size", "16x1x2", "--prompts", "2", "--rollouts", "2", "--repeats", "1"]
    answer = CliRunner().invoke(main, small)
    assert answer.exit_code == 0, answer.output
    for words in ("random weights", "generation", "whole update", "Peak memory"):
        assert words in answer.output


def test_a_size_is_read_or_refused() -> None:
    assert read_size("64x2x4") == Size()
    answer = CliRunner().invoke(main, ["--size", "64"])
    assert answer.exit_code == 2
    assert "64x2x4" in answer.output


def test_without_trl_it_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr("studies.minirun_speed.find_spec", lambda name: None)
    answer = CliRunner().invoke(main, ["--trl"])
    assert answer.exit_code == 2
    assert "uv run" in answer.output
