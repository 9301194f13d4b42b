"""Do glitches, gaps and restarts happen as often as asked, and to nothing else?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from simulators.evaluations import Evaluations
from simulators.noise import Noise
from simulators.transitions import Transition
from simulators.truth import Curves
from simulators.worlds import World, draw_world

PLAIN = Evaluations(start=0.0)


def draw(evaluations: Evaluations, recipes: int = 20, seeds: int = 3, seed: int = 1, **others) -> World:
    return draw_world(recipes, seeds, evaluations=evaluations, rng=np.random.default_rng(seed), **others)


def test_glitches_come_as_often_and_as_large_as_asked_and_change_nothing_else() -> None:
    plain, broken = draw(PLAIN), draw(replace(PLAIN, glitches=0.1))
    pd.testing.assert_frame_equal(plain.truth, broken.truth)
    before, after = plain.runs.table, broken.runs.table
    pd.testing.assert_frame_equal(before.drop(columns="value"), after.drop(columns="value"))
    change = (after["value"] - before["value"]).to_numpy()
    hit = change != 0
    n = len(change)
    assert hit.mean() == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / n))
    # A pass rate of .2 cannot fall by .3; one that has no room to fall ends at 0.
    free = hit & (after["value"] > 0).to_numpy()
    assert ((change[free] >= -0.3 - 1e-12) & (change[free] <= -0.05 + 1e-12)).all()
    high = hit & (before["value"] > 0.3).to_numpy()
    assert change[high].mean() == pytest.approx(-0.175, abs=4 * 0.25 / np.sqrt(12 * high.sum()))
    assert broken.log["glitch"].ne(0).mean() == hit.mean()


def test_a_glitch_may_go_either_way() -> None:
    broken = draw(replace(PLAIN, glitches=1.0, glitch_size=(-0.2, 0.2)), recipes=5)
    assert broken.log["glitch"].between(-0.2, 0.2).all()
    n = len(broken.log)
    assert broken.log["glitch"].gt(0).mean() == pytest.approx(0.5, abs=4 * np.sqrt(0.25 / n))


def test_missing_evaluations_are_absent_but_never_the_last() -> None:
    plain, holey = draw(PLAIN), draw(replace(PLAIN, missing=0.3))
    kept = plain.runs.table.merge(holey.runs.table[["run", "compute"]], on=["run", "compute"])
    pd.testing.assert_frame_equal(kept, holey.runs.table)
    n = len(plain.runs.table)
    assert 1 - len(kept) / n == pytest.approx(0.3 * 74 / 75, abs=4 * np.sqrt(0.21 / n))
    assert holey.runs.table.groupby("run")["compute"].max().eq(16_000).all()
    none_but_last = draw(replace(PLAIN, missing=1.0), recipes=2)
    assert none_but_last.runs.table["compute"].tolist() == [16_000] * 6


def test_restarts_go_back_to_a_checkpoint_and_repeat_what_followed_it() -> None:
    plain, crashed = draw(PLAIN), draw(replace(PLAIN, restarts=2.0, checkpoint=7))
    pd.testing.assert_frame_equal(plain.runs.table, crashed.runs.table)
    log = crashed.log
    attempts = log.groupby("run")["attempt"].max()
    assert attempts.mean() == pytest.approx(3.0, abs=4 * np.sqrt(2 / len(attempts)))
    for _, run in log.groupby("run"):
        for number, rows in run.groupby("attempt"):
            steps = rows["step"].to_numpy()
            assert (np.diff(steps) == 1).all()
            assert (steps[0] - 1) % 7 == 0
            later = run[run["attempt"] > number]
            redone = np.isin(steps, later["step"])
            assert (rows["superseded"].to_numpy() == redone).all()
            if len(later):
                # At least the evaluation that the crash followed, at most back to the checkpoint before it.
                assert 1 <= len(steps) - (later["step"].iloc[0] - steps[0]) <= 7
        assert run["step"].iloc[-1] == 75


def test_lost_evaluations_are_the_run_with_other_noise_from_its_checkpoint_on() -> None:
    world = draw(
        replace(PLAIN, restarts=20.0, prompts=10_000_000),
        noise=Noise(sd=(0.01, 0.01), correlation=(0.8, 0.8)),
    )
    log = world.log
    level = [world.curve(run, rows["compute"]) for run, rows in log.groupby("run", sort=False)]
    log = log.assign(off=log["value"] - np.concatenate(level))
    final = log[~log["superseded"]].set_index(["run", "step"])["off"]
    lost = log[log["superseded"]]
    first = lost[(lost["step"] - 1) % 5 == 0]
    first = first[first["step"] > 1]
    before = final.loc[list(zip(first["run"], first["step"] - 1, strict=True))].to_numpy()
    again = final.loc[list(zip(first["run"], first["step"], strict=True))].to_numpy()
    # Crashes after one checkpoint share the state before it.
    error = 1 / np.sqrt(len(first.drop_duplicates(["run", "step"])))
    assert error < 0.05
    assert first["off"].std() == pytest.approx(0.01, rel=4 * error)
    assert np.corrcoef(first["off"], before)[0, 1] == pytest.approx(0.8, abs=4 * 0.36 * error)
    # Two futures of one checkpoint: correlated through it alone.
    assert np.corrcoef(first["off"], again)[0, 1] == pytest.approx(0.64, abs=4 * 0.59 * error)


def test_steps_are_proportional_to_compute_under_either_spacing() -> None:
    for spacing, points in (("even", 75), ("log", 75), ("log", 300), ("log", 3), ("log", 1)):
        evaluations = replace(PLAIN, spacing=spacing, points=points)
        step, compute = evaluations.steps(), evaluations.compute()
        assert (np.diff(step, prepend=0) > 0).all()
        assert step / step[-1] == pytest.approx(compute / compute[-1], abs=1.0 / step[-1])  # both are rounded


def test_log_holds_the_run_table_and_starts_where_logging_does() -> None:
    world = draw(replace(PLAIN, start=1_500.0, restarts=1.0, missing=0.1, glitches=0.05))
    kept = world.log[~world.log["superseded"]]
    assert kept["compute"].min() >= 1_500
    for column in ("run", "recipe", "compute", "value", "trials", "step", "seed"):
        assert kept[column].tolist() == world.runs.table[column].tolist()


def test_everything_on_is_reproducible() -> None:
    def make(seed: int) -> World:
        return draw(
            replace(PLAIN, restarts=1.0, missing=0.1, glitches=0.05),
            recipes=3,
            seed=seed,
            models=2,
            curves=Curves(creep_sd=0.01),
            transition=Transition("either", share=0.5),
        )

    one, two, other = make(4), make(4), make(5)
    assert one.runs.hash() == two.runs.hash() != other.runs.hash()
    pd.testing.assert_frame_equal(one.truth, two.truth)
    pd.testing.assert_frame_equal(one.log, two.log)


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon": 0.0},
        {"horizon": np.inf},
        {"start": -1.0},
        {"spacing": "random"},
        {"spacing": "log", "start": 16_000.0},
        {"prompts": 0},
        {"samples_per_prompt": 0},
        {"checkpoint": 0},
        {"glitches": -0.1},
        {"missing": 1.5},
        {"missing": np.nan},
        {"glitch_size": (0.1, -0.1)},
        {"restarts": -1.0},
        {"restarts": 1e300},
    ],
)
def test_impossible_evaluations_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match="found"):
        Evaluations(**wrong)


@pytest.mark.parametrize(
    "wrong", [{"sd": (-0.1, 0.1)}, {"correlation": (0.5, 1.0)}, {"correlation": (-0.5, 0.5)}]
)
def test_impossible_noise_is_refused(wrong: dict) -> None:
    with pytest.raises(InputError, match="found"):
        Noise(**wrong)
