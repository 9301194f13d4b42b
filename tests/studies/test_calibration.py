"""The calibration study: what it scores, and the coverage that the product claims."""

import numpy as np
import pandas as pd
import pytest

from studies.calibration import HORIZON, SCENARIOS, SKIPPED, markdown, summarise, tasks, work
from studies.executor import Task


def one(scenario: str, *, first: int = 0, worlds: int = 2, seed: int = 5) -> pd.DataFrame:
    return work(Task("t", {"scenario": scenario, "first": first, "worlds": worlds, "seed": seed}))


def test_every_world_is_done_once_and_the_slowest_work_comes_first():
    made = tasks(40, seed=3)
    for name, scenario in SCENARIOS.items():
        own = [task for task in made if task["scenario"] == name]
        worlds = [k for task in own for k in range(task["first"], task["first"] + task["worlds"])]
        assert worlds == list(range(scenario.count(40)))
    engines = [SCENARIOS[task["scenario"]].engine for task in made]
    assert engines == sorted(engines, key=lambda engine: engine != "hierarchical")


def test_only_last_evaluations_are_scored_and_worlds_do_not_depend_on_their_block():
    rows = one("right")
    scored = rows[rows["method"] != SKIPPED]
    assert (scored["compute"] == HORIZON).all()
    assert sorted(scored["cut"].unique()) == ["25 %", "50 %"]
    later = one("right", first=1, worlds=1)
    pd.testing.assert_frame_equal(
        rows[rows["world"] == 1].reset_index(drop=True), later.reset_index(drop=True), check_dtype=False
    )
    # The truth is the noiseless curve: an evaluation lies within a few noise sds of it.
    assert (scored["observed"] - scored["truth"]).abs().max() < 0.05


def test_a_broken_assumption_changes_the_worlds():
    right, low = one("right", worlds=1), one("low-ceiling", worlds=1)
    assert right["observed"].max() > 0.4 > low["observed"].max()


def test_coverage_is_averaged_over_worlds_and_skips_are_counted():
    rows = one("siblings-unused", worlds=1)
    skipped = rows.iloc[:1].assign(method=SKIPPED)
    summary = summarise(pd.concat([rows, skipped], ignore_index=True))
    assert len(summary) == 1
    line = summary.iloc[0]
    assert line["forecasts"] == 12
    assert line["worlds"] == 1
    assert line[SKIPPED] == 1
    own = rows[rows["method"] == "rlforecast"]
    inside = (own["q025"] <= own["observed"]) & (own["observed"] <= own["q975"])
    assert line["coverage_95"] == pytest.approx(inside.mean())
    grid = rows.loc[rows["method"] == "least_squares", "crps"].mean()
    assert line["crps_ratio"] == pytest.approx(own["crps"].mean() / grid)
    assert "the same, each run by itself" in markdown(summary)


@pytest.mark.slow
def test_intervals_cover_and_beat_least_squares_where_the_model_is_right():
    """60 worlds: bounds are the claims of docs/studies for 200, widened by three standard errors."""
    summary = summarise(one("right", worlds=60, seed=11)).set_index("fitted")
    bounds = {"50 %": {50: (0.42, 0.60), 80: (0.74, 0.88), 95: (0.91, 0.985)}}
    bounds["25 %"] = {50: (0.45, 0.70), 80: (0.78, 0.94), 95: (0.92, 0.995)}
    for cut, levels in bounds.items():
        for level, (low, high) in levels.items():
            error = 3 * np.sqrt(level / 100 * (1 - level / 100) / 60)
            assert low - error <= summary.loc[cut, f"coverage_{level}"] <= min(high + error, 1.0)
        assert summary.loc[cut, "crps_ratio"] <= 0.75


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["low-ceiling", "high-ceiling"])
def test_ceilings_far_from_the_prior_are_covered(scenario: str):
    summary = summarise(one(scenario, worlds=40, seed=12)).set_index("fitted")
    assert summary.loc["25 %", "coverage_95"] >= 0.88 - 3 * np.sqrt(0.88 * 0.12 / 40)
