"""The figure of the allocation study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from simulators.skills.frontier import FrontierFit

_STYLES = {
    "mean": ("#000000", "o", "-"),
    "pass@4": ("#0072b2", "s", "--"),
    "worst@4": ("#d55e00", "^", ":"),
}
"""Colour, marker and line of a metric; told apart in grey too."""


def figure(
    rows: pd.DataFrame, summary: pd.DataFrame, fits: dict[tuple[str, str, str], FrontierFit]
) -> Figure:
    """Best G against budget, with a fixed P and with any, and what other G lose at the largest budget; a row per set.

    Parameters
    ----------
    rows : pandas.DataFrame
        Values of all worlds; see `studies.allocation.work`.
    summary, fits
        From `studies.allocation.summarise`.
    """
    from matplotlib.figure import Figure

    sets = list(rows["set"].unique())
    choices = sorted(summary["choice"].unique())
    bounds = ["log2_rollouts_low", "log2_rollouts_high"]
    drawn = Figure(figsize=(13, 3.6 * len(sets) + 0.6), layout="constrained")
    panels = drawn.subplots(len(sets), len(choices) + 1, squeeze=False)
    for line, name in zip(panels, sets, strict=True):
        for axes, choice in zip(line, choices, strict=False):
            own = summary[(summary["set"] == name) & (summary["choice"] == choice)]
            chosen = f"P = {choice}" if choice.isdigit() else f"{choice} P"
            axes.set_title(f"{name}: best G, {chosen}", loc="left", fontsize=10)
            _best(axes, own, {metric: fits[name, metric, choice] for metric in own["metric"].unique()})
            _g_axis(axes.yaxis, summary.loc[summary["set"] == name, bounds].to_numpy())
            axes.set_ylabel("rollouts per prompt G")
        fixed = next(choice for choice in choices if choice.isdigit())
        own = rows[(rows["set"] == name) & (rows["prompts"] == int(fixed))]
        line[-1].set_title(
            f"{name}: loss at {_power(own['budget'].max())} rollouts, P = {fixed}",
            loc="left",
            fontsize=10,
        )
        _losses(line[-1], own[own["budget"] == own["budget"].max()])
    handles, labels = panels[0, 0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def _best(axes: Axes, own: pd.DataFrame, fits: dict[str, FrontierFit]) -> None:
    """Best G with intervals, shifted sideways so that they do not hide each other, and the fitted frontiers."""
    for place, (metric, group) in enumerate(own.groupby("metric", sort=False)):
        colour, marker, line = _STYLES[str(metric)]
        at = group["budget"] * 2 ** (0.16 * (place - 1))
        g = group["log2_rollouts"]
        bars = [
            (g - group["log2_rollouts_low"]).clip(lower=0),
            (group["log2_rollouts_high"] - g).clip(lower=0),
        ]
        axes.errorbar(at, g, yerr=bars, fmt=marker, color=colour, ms=5, lw=1, label=f"{metric}, 90 %")
        dense = np.geomspace(group["budget"].min(), group["budget"].max(), 200)
        axes.plot(
            dense,
            fits[str(metric)].log2_rollouts(dense),
            line,
            color=colour,
            lw=1.2,
            label=f"{metric}, fitted",
        )
    budgets = np.unique(own["budget"])
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, [_power(budget) for budget in budgets])
    axes.set_xlabel("budget (rollouts)")


def _losses(axes: Axes, own: pd.DataFrame) -> None:
    """Mean over worlds of value minus that of the best G, with 90 % intervals of the difference."""
    from scipy.stats import t

    for metric, group in own.groupby("metric", sort=False):
        colour, marker, line = _STYLES[str(metric)]
        wide = group.pivot(index=["rollouts", "learning_rate"], columns="world", values="value")
        # Each G with the learning rate that suits it.
        wide = wide.loc[wide.mean(axis=1).groupby(level="rollouts").idxmax()].droplevel("learning_rate")
        lost = wide - wide.iloc[int(np.argmax(wide.mean(axis=1)))]
        worlds = lost.shape[1]
        half = t.ppf(0.95, worlds - 1) * lost.std(axis=1, ddof=1) / np.sqrt(worlds)
        axes.errorbar(
            np.log2(lost.index.to_numpy(dtype=float)),
            lost.mean(axis=1),
            yerr=half,
            fmt=marker + line,
            color=colour,
            ms=5,
            lw=1.2,
        )
    axes.axhline(0, color="#999999", lw=0.8, zorder=0)
    _g_axis(axes.xaxis, np.log2(own["rollouts"].to_numpy(dtype=float)))
    axes.set_xlabel("rollouts per prompt G")
    axes.set_ylabel("value - that of the best G")


def _power(budget: float) -> str:
    return f"$2^{{{np.log2(budget):.0f}}}$"


def _g_axis(axis: Axis, log2_rollouts: np.ndarray) -> None:
    """Ticks at powers of 2 over the range of these."""
    powers = range(int(np.floor(log2_rollouts.min())), int(np.ceil(log2_rollouts.max())) + 1)
    axis.set_ticks(list(powers), labels=[str(2**power) for power in powers])
