"""The figure of a stress test: one run, one panel per scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from forecast.report.axes import (
    figure_width,
    make_panels,
    mark_compute,
    mark_values,
    panel_width,
    value_limits,
)
from forecast.report.words import compute_label, metric_label, plain

if TYPE_CHECKING:
    from forecast.runs.table import Runs
    from studies.stress import Stress

FUTURES = 3
"""Worlds drawn in each panel."""

_GRID = 60
_PAST = 8
"""Factor of compute before the last evaluation that is shown."""
_SHADE, _EDGE, _INK, _RED = "#a9cbe6", "#08519c", "#111111", "#d55e00"
_LINES = ((0, ()), (0, (5, 1.5)), (0, (1.2, 1.2)))
_LOGGED: dict[str, Any] = {
    "marker": "o",
    "markersize": 3.2,
    "markerfacecolor": "white",
    "markeredgewidth": 0.7,
}


def stress_figure(result: Stress, runs: Runs) -> Figure:
    """Draw the real evaluations of the first run that is not in alarm yet, some futures of each scenario, and both 90 % bands of the curve.

    Parameters
    ----------
    result : Stress
    runs : Runs
        Of the fit; its axes are those of the figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    in_alarm = set(result.runs.loc[result.runs["alarm"] != "", "run"])
    own = next((one for one in result.outlooks if one.run not in in_alarm), result.outlooks[0])
    metric, names = runs.metric, list(result.scenarios)
    past = own.past.table[own.past.table["compute"] >= own.now / _PAST]
    grid = np.geomspace(own.now, own.horizon, _GRID)
    bands = {t: np.quantile(draws.curve(grid), (0.05, 0.95), axis=0) for t, draws in own.draws.items()}
    drawn = {name: result.futures[name, own.run][:FUTURES] for name in names}
    values = [metric.to_fraction(past["value"].to_numpy()), *map(np.ravel, bands.values())]
    values += [part for worlds in drawn.values() for world in worlds for part in (world.true, world.seen)]
    figure, panels = make_panels(len(names), above=0.36, below=1.12)
    limits = value_limits(np.sort(metric.from_fraction(np.concatenate(values))), metric.scale)
    alarms = result.worlds[(result.worlds["run"] == own.run) & result.worlds["alarm"].notna()]
    for axes, name in zip(panels, names, strict=True):
        mark_compute(axes, past["compute"].min() / 1.06, own.horizon * 1.05, panel_width(len(names)))
        mark_values(axes, *limits)
        axes.set_title(f"{name}\n{result.scenarios[name].what}", fontsize=8.5, loc="left", linespacing=1.1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axvline(own.now, color="#6b6b6b", linewidth=0.8)
        axes.fill_between(grid, *metric.from_fraction(bands["excluded"]), color=_SHADE, linewidth=0)
        for edge in metric.from_fraction(bands["averaged"]):
            axes.plot(grid, edge, color=_EDGE, linewidth=1.1, linestyle=(0, (3, 1)))
        axes.plot(past["compute"], past["value"], "o", color=_INK, markersize=2.8)
        for world, line in zip(drawn[name], _LINES, strict=False):
            at = np.concatenate([[own.now], own.compute])
            start = world.true[-1] - world.gain
            true = metric.from_fraction(np.concatenate([[start], world.true]))
            axes.plot(at, true, color=_RED, linewidth=1.3, linestyle=line)
            seen = metric.from_fraction(world.seen)
            axes.plot(own.compute, seen, linestyle="none", color=_INK, **_LOGGED)
        for compute in alarms.loc[alarms["scenario"] == name, "alarm"]:
            axes.plot([compute], [0.03], "^", color=_INK, markersize=5, transform=axes.get_xaxis_transform())
    width, height = figure_width(len(names)), figure.get_figheight()
    figure.text(
        0.12 / width,
        1 - 0.1 / height,
        f"Run {plain(own.run)}: what may come after its last evaluation (vertical line); both bands are the forecast as it stands there",
        va="top",
        fontsize=9.5,
        parse_math=False,
    )
    figure.text(0.5, 0.66 / height, compute_label(runs.compute), ha="center", fontsize=10)
    figure.text(0.1 / width, 0.5, metric_label(metric), va="center", rotation=90, fontsize=10)
    figure.legend(handles=_handles(), loc="lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def _handles() -> list[Any]:
    return [
        Line2D([], [], marker="o", linestyle="none", color=_INK, markersize=3, label="evaluation, real"),
        Line2D([], [], linestyle="none", color=_INK, label="evaluation, simulated", **_LOGGED),
        Line2D([], [], color=_RED, linewidth=1.3, label=f"true pass rate, {FUTURES} worlds"),
        Patch(facecolor=_SHADE, label="90 % band, one sigmoid"),
        Line2D([], [], color=_EDGE, linestyle=(0, (3, 1)), label="90 % band, averaged over transitions"),
        Line2D(
            [], [], marker="^", linestyle="none", color=_INK, markersize=5, label="alarm of a watched world"
        ),
    ]
