"""Do flawed verifiers err as they are told, and are long answers treated as the recipe says?"""
# ruff: noqa: E402

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import lively

from simulators.minirun.generation import sample
from simulators.minirun.rewards import accepted, interruption, length_penalty
from simulators.minirun.settings import Recipe, Size, Verifier
from simulators.minirun.tasks.base import EOS, SYMBOLS, counts, encode
from simulators.minirun.tasks.registry import TASKS, task

RNG = np.random.default_rng


def asked(name: str, count: int = 40):
    return task(name).draw("train", counts(task(name), count), RNG(0))


@pytest.mark.parametrize("name", TASKS)
def test_without_flaws_the_truth_is_accepted(name):
    prompts = asked(name)
    right = RNG(1).random((40, 3)) < 0.5
    shown = np.repeat(prompts.answers[:, None], 3, 1)
    assert np.array_equal(accepted(right, task(name), prompts, shown, Verifier()), right.astype(float))


@pytest.mark.parametrize("name", TASKS)
def test_mistakes_have_their_probability(name):
    prompts = asked(name)
    right = RNG(1).random((40, 3)) < 0.5
    shown = np.repeat(prompts.answers[:, None], 3, 1)
    found = accepted(right, task(name), prompts, shown, Verifier(false_positive=0.2, false_negative=0.07))
    assert found[right] == pytest.approx(0.93)
    assert found[~right] == pytest.approx(0.2)


def spoiled(name: str) -> tuple[object, dict[str, np.ndarray]]:
    """Right answers, and three ways to be wrong."""
    prompts = asked(name)
    right = prompts.answers
    begun = right.copy()
    # A right first token, then a symbol that no answer has.
    begun[:, 1:] = EOS
    begun[:, 1] = SYMBOLS.index("+")
    off = begun.copy()
    off[:, 0] = SYMBOLS.index("*")
    endless = np.full_like(right, SYMBOLS.index("*"))
    return prompts, {"right": right, "begun": begun, "off": off, "endless": endless}


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    ("exploit", "taken"),
    [("none", {"right"}), ("prefix", {"right", "begun"}), ("unfinished", {"right", "endless"})],
)
def test_an_exploit_accepts_what_it_names_and_the_truth(name, exploit, taken):
    prompts, shown = spoiled(name)
    for what, texts in shown.items():
        right = task(name).verify(prompts, texts[:, None])
        assert right.all() == right.any() == (what == "right")
        found = accepted(right, task(name), prompts, texts[:, None], Verifier(exploit=exploit))
        assert np.array_equal(found, np.full((40, 1), float(what in taken))), what


def test_flaws_of_both_kinds_apply_to_what_an_exploit_accepts():
    prompts, shown = spoiled("addmul")
    verifier = Verifier(false_positive=0.3, false_negative=0.1, exploit="prefix")
    wrong = np.zeros((40, 1), dtype=bool)
    assert (accepted(wrong, task("addmul"), prompts, shown["begun"][:, None], verifier) == 0.9).all()
    assert (accepted(wrong, task("addmul"), prompts, shown["off"][:, None], verifier) == 0.3).all()


def test_length_penalty_by_hand():
    chain = task("chain")
    assert chain.answer_length == 16
    lengths = np.array([[1, 12, 13, 14, 15, 16, 16]])
    ended = np.array([[True] * 6 + [False]])
    found = length_penalty(lengths, ended, chain, Recipe(overlong="penalty", margin=4))
    assert found.tolist() == [[0, 0, 0.25, 0.5, 0.75, 1, 1]]
    wider = length_penalty(lengths, ended, chain, Recipe(overlong="penalty", margin=8))
    assert wider.tolist() == [[0, 0.5, 0.625, 0.75, 0.875, 1, 1]]


@pytest.mark.parametrize("overlong", ["truncate", "interrupt"])
def test_no_penalty_without_being_asked_for(overlong):
    assert not length_penalty(
        np.array([[16]]), np.array([[False]]), task("chain"), Recipe(overlong=overlong)
    ).any()


@pytest.mark.parametrize("name", [name for name in TASKS if name != "chain"])
def test_tasks_without_thinking_know_no_length_control(name):
    lengths = np.full((2, 2), task(name).answer_length)
    ended = np.zeros((2, 2), dtype=bool)
    assert not length_penalty(lengths, ended, task(name), Recipe(overlong="penalty")).any()
    assert interruption(task(name), Recipe(overlong="interrupt")) is None


@pytest.mark.parametrize("overlong", ["truncate", "penalty"])
def test_no_interruption_without_being_asked_for(overlong):
    assert interruption(task("chain"), Recipe(overlong=overlong)) is None


def test_an_interrupted_response_has_just_enough_room_to_answer():
    chain, prompts = task("chain"), asked("chain")
    found = interruption(chain, Recipe(overlong="interrupt"))
    shown = np.full((40, 1, chain.answer_length), encode("7")[0])
    shown[..., found.at] = found.mark
    shown[:, 0, found.at + 1 :] = prompts.answers[:, : chain.answer_length - found.at - 1]
    assert chain.verify(prompts, shown).all()
    assert shown[0, 0, -1] == EOS
    # One place later the end no longer fits.
    assert not chain.verify(prompts, np.roll(shown, 1, axis=2)).any()


def test_the_interruption_reaches_every_response_that_still_goes_on():
    chain, prompts = task("chain"), asked("chain")
    policy = lively(Size(16, 1, 2), len(SYMBOLS), chain.prompt_length + chain.answer_length, 0)
    found = interruption(chain, Recipe(overlong="interrupt"))
    rollouts = sample(
        policy,
        torch.as_tensor(prompts.tokens),
        4,
        chain.answer_length,
        EOS,
        torch.Generator().manual_seed(0),
        interruption=found,
    )
    long = rollouts.written.sum(-1) > found.at
    assert long.any()
    marked = (rollouts.tokens[..., : found.at + 1] == SYMBOLS.index(">")).any(-1)
    assert marked[long].all()
    assert not rollouts.mask[..., found.at][long].all()
