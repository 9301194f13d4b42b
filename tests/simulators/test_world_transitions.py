"""Do as many runs move as were asked to, as far, as fast and when?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forecast.curves import collapse, second_rise, sigmoid
from forecast.errors import InputError
from simulators.evaluations import Evaluations
from simulators.transitions import Transition
from simulators.truth import Curves
from simulators.worlds import World, draw_world

RUNS = 600
COMPUTE = np.geomspace(16.0, 1.6e6, 400)  # from a thousandth of the horizon on


def many(transition: Transition, recipes: int = RUNS, seeds: int = 1, seed: int = 1) -> World:
    return draw_world(
        recipes,
        seeds,
        transition=transition,
        evaluations=Evaluations(points=3, start=0.0),
        rng=np.random.default_rng(seed),
    )


def first_rise(row: pd.Series, compute: np.ndarray) -> np.ndarray:
    return sigmoid(compute, *row[["floor", "ceiling", "exponent", "midpoint"]].astype(float))


def test_share_of_runs_that_move() -> None:
    families = many(Transition("rise", share=0.3)).truth["family"]
    assert set(families) == {"sigmoid", "second_rise"}
    assert families.eq("second_rise").mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / RUNS))
    assert many(Transition(share=0.0), recipes=50).truth["family"].eq("sigmoid").all()
    assert many(Transition(share=1.0), recipes=50).truth["family"].eq("second_rise").all()


def test_either_kind_is_as_likely() -> None:
    families = many(Transition("either", share=1.0)).truth["family"]
    assert set(families) == {"second_rise", "collapse"}
    assert families.eq("collapse").mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / RUNS))


def test_recipes_that_move_do_so_with_all_their_seeds() -> None:
    truth = many(Transition("rise", share=0.4, per="recipe"), recipes=200, seeds=3).truth
    groups = truth.groupby("recipe")
    assert groups["family"].nunique().eq(1).all()
    moved = groups["family"].first().eq("second_rise")
    assert moved.mean() == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / 200))
    assert groups["second_midpoint"].nunique()[moved].eq(1).all()
    # Each run its own headroom, the recipe's share of it.
    share = truth["rise"] / (1 - truth["ceiling"])
    assert np.ptp(share.to_numpy().reshape(-1, 3), axis=1)[moved] == pytest.approx(0, abs=1e-12)
    by_run = many(Transition("rise", share=0.4), recipes=200, seeds=3).truth
    assert by_run.groupby("recipe")["family"].nunique().eq(2).any()


def test_a_rise_takes_its_share_of_the_headroom() -> None:
    world = many(Transition("rise", share=1.0))
    truth = world.truth
    share = truth["rise"] / (1 - truth["ceiling"])
    assert share.between(0.2, 0.7).all()
    assert share.mean() == pytest.approx(0.45, abs=4 * 0.5 / np.sqrt(12 * RUNS))
    assert truth["drop"].isna().all()
    for i in range(5):
        row = truth.iloc[i]
        names = ["floor", "ceiling", "exponent", "midpoint", "rise", "second_exponent", "second_midpoint"]
        np.testing.assert_array_equal(world.curve(row["run"], COMPUTE), second_rise(COMPUTE, *row[names]))
        assert world.curve(row["run"], 1e30) == pytest.approx(row["ceiling"] + row["rise"])


def test_steepness_and_location_are_drawn_as_documented() -> None:
    truth = many(Transition("rise", share=1.0, location=(0.5, 2.0), reference=4_000.0)).truth
    steepness = np.log(truth["second_exponent"])
    assert steepness.mean() == pytest.approx(np.log(3), abs=4 * 0.3 / np.sqrt(RUNS))
    assert steepness.std() == pytest.approx(0.3, rel=4 / np.sqrt(2 * RUNS))
    assert truth["second_midpoint"].between(2_000, 8_000).all()
    middle = np.log(truth["second_midpoint"] / 4_000).mean()
    assert middle == pytest.approx(0, abs=4 * np.log(4) / np.sqrt(12 * RUNS))
    default = many(Transition("rise", share=1.0)).truth["second_midpoint"]
    assert default.between(0.25 * 16_000, 16_000).all()


def test_a_collapse_takes_its_share_of_the_ceiling() -> None:
    world = many(Transition("collapse", share=1.0, location=(1.0, 4.0)))
    truth = world.truth
    share = truth["drop"] / truth["ceiling"]
    assert share.between(0.15 - 1e-12, 0.7 + 1e-12).all()
    # So late that hardly any is cut short.
    assert share.mean() == pytest.approx(0.425, abs=4 * 0.55 / np.sqrt(12 * RUNS))
    row = truth.iloc[0]
    names = ["floor", "ceiling", "exponent", "midpoint", "drop", "second_exponent", "second_midpoint"]
    np.testing.assert_array_equal(world.curve(row["run"], COMPUTE), collapse(COMPUTE, *row[names]))


def test_a_collapse_ahead_of_the_rise_is_cut_short_at_zero() -> None:
    world = many(Transition("collapse", share=1.0, size=(0.9, 1.0), location=(0.01, 0.1)), recipes=100)
    truth = world.truth
    lowest = np.array([world.curve(run, COMPUTE).min() for run in truth["run"]])
    cut = truth["drop"] < 0.9 * truth["ceiling"]
    assert cut.sum() > 20
    assert lowest.min() >= -1e-4  # the depth is found on a grid
    assert lowest[cut] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("kind", ["rise", "collapse"])
@pytest.mark.parametrize("done", [0.005, 0.1, 0.3])
def test_a_move_is_as_far_along_as_was_asked(kind: str, done: float) -> None:
    world = many(Transition(kind, share=1.0, done=done, reference=16_000.0), recipes=20)
    for i in range(20):
        row = world.truth.iloc[i]
        made = abs(world.curve(row["run"], 16_000.0) - first_rise(row, np.array(16_000.0)))
        assert made / row["rise" if kind == "rise" else "drop"] == pytest.approx(done, rel=1e-6)


def test_a_larger_share_adds_moves_and_keeps_those_there_were() -> None:
    few, most = (many(Transition(share=share), recipes=100).truth for share in (0.2, 0.6))
    moved = few["family"].eq("second_rise")
    assert 0 < moved.sum() < most["family"].eq("second_rise").sum()
    second = ["second_exponent", "second_midpoint"]
    pd.testing.assert_frame_equal(few.loc[moved, second], most.loc[moved, second])


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "second_rise"},
        {"share": 1.1},
        {"per": "seed"},
        {"size": (0.2, 1.5)},
        {"steepness": 0.0},
        {"steepness_sd": -1.0},
        {"location": (0.0, 1.0)},
        {"reference": -1.0},
        {"done": 0.0},
        {"done": 1.0},
    ],
)
def test_impossible_transitions_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match="found"):
        Transition(**wrong)


def test_other_families_make_no_second_move() -> None:
    with pytest.raises(InputError, match="family burr"):
        draw_world(curves=Curves(family="burr"), transition=Transition(), rng=np.random.default_rng(0))
