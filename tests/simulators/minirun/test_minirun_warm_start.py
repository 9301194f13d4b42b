"""Is the checkpoint that runs start from made once, kept safely, and made of what the task says?"""
# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import TINY, same

from forecast.errors import InputError
from simulators.minirun import warm_start
from simulators.minirun.generation import sample, score, states
from simulators.minirun.settings import Size
from simulators.minirun.tasks.base import EOS, Phase
from simulators.minirun.tasks.registry import TASKS, task
from simulators.minirun.warm_start import blank, cached, demonstrated, place, train

SHORT = replace(task("addmul"), phases=(Phase(2, (0.8, 0.8, 0.8, 1.0)), Phase(1, (0.2, 0.1, 0.1, 1.0))))


@pytest.fixture
def trained(monkeypatch):
    """How often a warm start was trained."""
    times = []
    original = warm_start.train

    def train(*arguments, **named):
        times.append(arguments)
        return original(*arguments, **named)

    monkeypatch.setattr(warm_start, "train", train)
    return times


def test_what_is_in_the_cache_is_not_made_again(tmp_path, trained):
    said = []
    weights, cost = cached(SHORT, TINY, 3, folder=tmp_path / "new", report=lambda *done: said.append(done))
    again, same_cost = cached(SHORT, TINY, 3, folder=tmp_path / "new")
    assert same(weights, again)
    assert cost == same_cost
    assert cost["flops"] > 0
    assert len(trained) == 1
    assert said == [(1, 3), (2, 3), (3, 3)]
    assert len(list((tmp_path / "new").iterdir())) == 1
    blank(SHORT, TINY, 3).load_state_dict(weights)


def test_anything_else_is_a_file_of_its_own(tmp_path, trained):
    others = [
        (SHORT, TINY, 0),
        (SHORT, TINY, 1),
        (SHORT, Size(16, 1, 4), 0),
        (SHORT, Size(16, 2, 2), 0),
        (replace(SHORT, phases=(Phase(3, (0.8, 0.8, 0.8, 1.0)),)), TINY, 0),
        (replace(SHORT, phases=(SHORT.phases[0], Phase(1, (0.2, 0.1, 0.1, 0.9)))), TINY, 0),
        (replace(task("carry"), phases=(Phase(2, (0.5, 0.5)),)), TINY, 0),
        (replace(task("carry_late"), phases=(Phase(2, (0.5, 0.5)),)), TINY, 0),
    ]
    made = [cached(*each, folder=tmp_path)[0] for each in others]
    assert len(list(tmp_path.iterdir())) == len(others) == len(trained)
    for each, weights in zip(others, made, strict=True):
        assert same(cached(*each, folder=tmp_path)[0], weights)
    assert len(trained) == len(others)
    assert not same(made[0], made[1])


@pytest.mark.parametrize("how", ["cut", "text", "empty", "other"])
def test_a_broken_file_is_one_error_that_names_it(tmp_path, how):
    cached(SHORT, TINY, 0, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    if how == "other":
        torch.save({"something": 1}, path)
    else:
        path.write_bytes({"cut": path.read_bytes()[:-500], "text": b"hello\n", "empty": b""}[how])
    with pytest.raises(InputError, match="is damaged") as caught:
        cached(SHORT, TINY, 0, folder=tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    path.unlink()
    cached(SHORT, TINY, 0, folder=tmp_path)


def test_nothing_is_left_where_training_is_interrupted(tmp_path):
    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(SHORT, TINY, 0, folder=tmp_path / "new", report=stop)
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_weights_hang_on_the_seed_and_on_no_global_state():
    made = []
    for noise in (1, 2):
        torch.manual_seed(noise)
        np.random.seed(noise)  # noqa: NPY002
        made.append(train(SHORT, TINY, 7)[0])
    assert same(*made)
    assert not same(made[0], train(SHORT, TINY, 8)[0])


def test_the_default_cache_is_that_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place(SHORT, TINY, 0, "cpu").parent == tmp_path / "rlforecast" / "minirun"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert place(SHORT, TINY, 0, "cpu").parent == tmp_path / ".cache" / "rlforecast" / "minirun"
    cached(SHORT, TINY, 0)
    assert place(SHORT, TINY, 0, "cpu").is_file()
    assert place(SHORT, TINY, 0, "cuda") == place(SHORT, TINY, 0, "cuda:1") != place(SHORT, TINY, 0, "cpu")


def test_it_learns_what_is_demonstrated():
    # Only wrong products and only right sums: 60 steps are enough to see the end symbol coming.
    shown = replace(task("addmul"), phases=(Phase(60, (1.0, 1.0, 1.0, 1.0)),))
    weights, cost = train(shown, Size(32, 1, 2), 0)
    prompts = shown.draw("heldout", [20, 20, 20, 20], np.random.default_rng(0))
    rollouts = demonstrated(prompts.tokens, prompts.answers)
    likelihoods = []
    for held in (blank(shown, Size(32, 1, 2), 0).state_dict(), weights):
        policy = blank(shown, Size(32, 1, 2), 0)
        policy.load_state_dict(held)
        logp = score(policy, states(policy, rollouts), rollouts)
        likelihoods.append(float(logp.detach().sum() / rollouts.mask.sum()))
    assert likelihoods[0] < -2.5
    assert likelihoods[1] > likelihoods[0] + 1
    # Three passes over 128 prompts and their answers, 60 times, at 2 operations per matrix parameter and token.
    tokens = 60 * 128 * (7 + 3.6)
    assert cost["flops"] == pytest.approx(3 * 2 * tokens * policy.matmul_parameters, rel=0.25)
    drawn = sample(policy, torch.as_tensor(prompts.tokens), 4, 5, EOS, torch.Generator().manual_seed(0))
    assert float((drawn.tokens == EOS).any(-1).float().mean()) > 0.8


def test_demonstrations_count_up_to_their_end():
    prompts = np.array([[1, 2], [3, 4], [5, 6]])
    answers = np.array([[7, 8, EOS, EOS], [EOS, EOS, EOS, EOS], [1, 2, 3, 4]])
    found = demonstrated(prompts, answers)
    assert found.tokens[:, 0].tolist() == answers.tolist()
    assert found.mask[:, 0].int().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]
    assert torch.equal(found.mask, found.written)
    assert found.prompts.tolist() == prompts.tolist()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_can_be_warm_started(name):
    known = task(name)
    brief = replace(known, phases=tuple(Phase(1, phase.right) for phase in known.phases))
    weights, _ = train(brief, TINY, 0)
    assert all(value.isfinite().all() for value in weights.values())
    assert not same(weights, blank(known, TINY, 0).state_dict())
