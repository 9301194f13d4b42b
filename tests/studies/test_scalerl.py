"""The published runs: what is cut and scored, and how well the extensions are forecast."""

import numpy as np
import pandas as pd
import pytest

from studies.executor import Task
from studies.scalerl import (
    EXTENSION,
    STATED_FLOOR,
    figure,
    fit_ends,
    markdown,
    points,
    run_table,
    summarise,
    tasks,
    work,
)


def rows(how: str, *, name: str = "runs", cut_at: str = EXTENSION, floor: str = f"floor {STATED_FLOOR}"):
    return work(Task("t", {"set": name, "how": how, "floor": floor, "cut_at": cut_at, "seed": 0}))


def test_eleven_series_draw_nine_runs():
    series, runs = points(merged=False), points(merged=True)
    assert series["run"].nunique() == 11
    assert runs["run"].nunique() == 9
    # This run was evaluated every 257 GPU-hours: no evaluation is left that was read off twice.
    assert runs.loc[runs["run"] == "ScaleRL", "gpu_hours"].sort_values().diff().min() > 200


@pytest.mark.parametrize("merged", [False, True])
def test_the_extensions_are_scored_and_nothing_else(merged: bool):
    table = points(merged=merged)
    ends = fit_ends(table)
    later = table[table["gpu_hours"] > table["run"].map(ends)]
    pd.testing.assert_frame_equal(later, table[table["segment"] == "extended"])
    assert len(run_table(table).table) == len(table)


def test_published_parameters_predict_the_extensions():
    error = rows("published", name="series")["error"]
    assert np.sqrt(np.mean(error**2)) < 0.006  # they were fitted with the extension in view
    assert len(error) == 78


def test_each_run_by_itself_covers_its_extension_and_beats_least_squares():
    table = pd.concat([rows("each by itself"), rows("published")], ignore_index=True)
    summary = summarise(table)
    ours = summary[summary["method"] == "rlforecast"].iloc[0]
    grid = summary[summary["method"] == "least_squares"].iloc[0]
    assert ours["evaluations"] == grid["evaluations"] == 71
    assert ours["crps"] <= 0.010
    assert ours["crps"] < grid["crps"]
    assert ours["coverage_95"] >= 0.95
    assert np.isnan(grid["coverage_95"])
    text = markdown(summary, table)
    assert "71 later evaluations of 9 runs" in text
    assert "published ceiling and exponent" in text


def test_an_earlier_cut_is_harder():
    table = pd.concat([rows("each by itself", cut_at="3000.0"), rows("each by itself")], ignore_index=True)
    summary = summarise(table)
    ours = summary[summary["method"] == "rlforecast"].set_index("cut_at")
    assert ours.loc["3000.0", "crps"] > ours.loc[EXTENSION, "crps"]
    assert ours.loc["3000.0", "width_95"] > 1.5 * ours.loc[EXTENSION, "width_95"]
    assert len(figure(summary).axes) == 3


def test_tasks_cover_both_sets_once():
    keys = [task.key for task in tasks(0)]
    assert len(keys) == len(set(keys)) == 2 * (2 * 2 + 4) + 2


@pytest.mark.slow
@pytest.mark.parametrize("floor", ["floor latent", f"floor {STATED_FLOOR}"])
def test_extensions_are_forecast_within_their_intervals(floor: str):
    summary = summarise(rows("all together", name="series", floor=floor))
    ours = summary[summary["method"] == "rlforecast"].iloc[0]
    assert ours["evaluations"] == 78
    assert ours["rmse"] <= 0.009
    assert abs(ours["bias"]) <= 0.0035
    assert ours["crps"] <= 0.0052
    assert ours["coverage_95"] >= 0.95
    assert ours["width_95"] <= 0.06
