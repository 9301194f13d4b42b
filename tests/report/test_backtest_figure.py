"""Does the figure show the table's numbers?"""

from __future__ import annotations

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from forecast.errors import InputError
from forecast.outlook.backtest import Backtest, backtest
from forecast.outlook.contenders import METHODS
from forecast.report.backtest_figure import backtest_figure
from simulators.worlds import sigmoid_world


@pytest.fixture(scope="module")
def result() -> Backtest:
    return backtest(sigmoid_world(3, 2, points=30, rng=np.random.default_rng(0)).runs, fractions=[0.3, 0.6])


@pytest.fixture(scope="module")
def figure(result: Backtest) -> Figure:
    return backtest_figure(result)


def test_three_panels_say_what_they_show(figure: Figure, result: Backtest) -> None:
    pit, coverage, score = figure.axes
    assert "PIT" in pit.get_xlabel()
    assert coverage.get_xlabel() == "probability of the interval (%)"
    assert "CRPS (pass rate" in score.get_ylabel()
    text = " ".join("\n".join(text.get_text() for text in figure.texts).split())
    assert "Fitted up to 30 % and 60 % of each run" in text
    assert "6 runs" in text
    effective = result.summary()["effective"].iloc[0]
    assert f"worth about {effective:.0f} independent ones" in text
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(METHODS.values())


def test_lines_are_the_numbers_of_the_summaries(figure: Figure, result: Backtest) -> None:
    _, coverage, score = figure.axes
    by_distance = result.summary("times_fitted")
    lines = {line.get_label(): line for line in score.lines}
    for method, words in METHODS.items():
        np.testing.assert_allclose(
            lines[words].get_ydata(), by_distance.loc[by_distance["method"] == method, "crps"]
        )
    overall = result.summary().set_index("method")
    drawn = [np.asarray(line.get_ydata(), float) for line in coverage.lines if len(line.get_xdata()) == 4]
    for ys, method in zip(drawn, ("rlforecast", "least_squares_covariance"), strict=True):
        np.testing.assert_allclose(
            ys / 100, [overall.loc[method, f"coverage_{level}"] for level in (50, 80, 90, 95)]
        )


def test_the_histogram_is_a_density_and_the_band_holds_one(figure: Figure) -> None:
    pit = figure.axes[0]
    *bars, band = pit.patches
    assert sum(bar.get_height() * bar.get_width() for bar in bars) == pytest.approx(1)
    assert band.get_y() < 1 < band.get_y() + band.get_height()


def test_methods_are_told_apart_without_colour(figure: Figure) -> None:
    looks = [(line.get_marker(), str(line.get_markerfacecolor()) == "white") for line in figure.axes[2].lines]
    assert len(set(looks)) == len(METHODS)


def test_a_backtest_that_scored_nothing_is_not_drawn(result: Backtest) -> None:
    with pytest.raises(InputError, match="no run was scored"):
        backtest_figure(replace(result, forecasts=result.forecasts.iloc[:0]))


def test_it_is_drawn_without_touching_global_state(result: Backtest, tmp_path) -> None:
    before = dict(matplotlib.rcParams)
    backtest_figure(result).savefig(tmp_path / "b.png")
    assert (tmp_path / "b.png").stat().st_size > 10_000
    assert dict(matplotlib.rcParams) == before
