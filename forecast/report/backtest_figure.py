"""A backtest in three panels: is the forecast calibrated, are its intervals, and how fast does it get worse?"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator
from scipy.stats import binom

from forecast.errors import InputError
from forecast.outlook.backtest_summary import BINS, INTERVALS, effective_number
from forecast.outlook.contenders import METHODS, OURS
from forecast.report.words import KIND_NAMES

if TYPE_CHECKING:
    from forecast.outlook.backtest import Backtest

_BLUE, _ORANGE, _INK, _GREY = "#08519c", "#d55e00", "#111111", "#6b6b6b"
# Marker and line style tell the methods apart, colour is never needed.
_STYLES: dict[str, dict[str, Any]] = {
    "rlforecast": {"color": _BLUE, "marker": "o", "linewidth": 1.8},
    "least_squares": {"color": _ORANGE, "marker": "s", "dashes": (3.5, 1.8)},
    "least_squares_covariance": {
        "color": _ORANGE,
        "marker": "s",
        "markerfacecolor": "white",
        "dashes": (1.2, 1.2),
    },
    "power_law": {"color": _INK, "marker": "^", "markerfacecolor": "white", "dashes": (5, 1.5, 1, 1.5)},
    "last_value": {"color": _GREY, "marker": "x", "linewidth": 1.0},
}
_WITH_INTERVALS = (OURS, "least_squares_covariance")
_BAND = 0.90
_Z = 1.645
_MOST_BINS, _PER_BIN = 10, 8
_WIDTH, _PANEL_HEIGHT, _ABOVE, _LINE = 11.0, 3.0, 0.62, 0.17
_LETTERS = 150


def backtest_figure(result: Backtest) -> Figure:
    """Draw PIT histogram, coverage against nominal, and CRPS by distance.

    Parameters
    ----------
    result : Backtest

    Returns
    -------
    matplotlib.figure.Figure
        No global matplotlib state is touched.

    Raises
    ------
    InputError
        If no run was scored.
    """
    if result.forecasts.empty:
        raise InputError("nothing to draw: no run was scored")
    caption = textwrap.wrap(_caption(result), _LETTERS)
    below = 0.62 + 0.3 + _LINE * len(caption)
    height = _ABOVE + _PANEL_HEIGHT + below
    figure = Figure(figsize=(_WIDTH, height), dpi=150)
    panels = figure.subplots(
        1,
        3,
        gridspec_kw={
            "left": 0.062,
            "right": 0.988,
            "bottom": below / height,
            "top": 1 - _ABOVE / height,
            "wspace": 0.27,
        },
    )
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8.5)
    _draw_pit(panels[0], result.forecasts)
    _draw_coverage(panels[1], result.forecasts)
    _draw_crps(panels[2], result)
    figure.text(0.012, 1 - 0.1 / height, _headline(result), va="top", fontsize=10.5, parse_math=False)
    figure.text(0.012, 0.06 / height, "\n".join(caption), va="bottom", fontsize=8.5, parse_math=False)
    handles, labels = panels[2].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="lower center",
        bbox_to_anchor=(0.5, (0.1 + _LINE * len(caption)) / height),
        ncols=len(handles),
        frameon=False,
        fontsize=8.5,
        borderaxespad=0,
    )
    return figure


def _draw_pit(axes: Axes, forecasts: pd.DataFrame) -> None:
    """Histogram of forecast probabilities of less than was observed, with what chance alone allows."""
    ours = forecasts[forecasts["method"] == OURS]
    worth = max(1, round(effective_number(ours["pit"], ours["run"])))
    bins = int(np.clip(worth // _PER_BIN, 4, _MOST_BINS))
    tail = (1 - _BAND) / 2
    low, high = (binom.ppf(q, worth, 1 / bins) * bins / worth for q in (tail, 1 - tail))
    axes.hist(ours["pit"], bins=bins, range=(0, 1), density=True, color="#8fc0e0", edgecolor=_BLUE)
    axes.axhspan(low, high, color="#9a9a9a", alpha=0.3, linewidth=0, zorder=2)
    axes.axhline(1, color=_INK, linewidth=1, linestyle=(0, (3, 2)))
    axes.set_xlim(0, 1)
    axes.set_title("rlforecast: calibrated if flat", fontsize=10, loc="left")
    axes.set_xlabel("forecast probability of less than was observed (PIT)", fontsize=9)
    axes.set_ylabel("density", fontsize=9)


def _draw_coverage(axes: Axes, forecasts: pd.DataFrame) -> None:
    levels = np.array(list(INTERVALS))
    axes.plot([0, 100], [0, 100], color=_INK, linewidth=1, linestyle=(0, (3, 2)))
    for shift, method in zip((-0.6, 0.6), _WITH_INTERVALS, strict=True):
        own = forecasts[forecasts["method"] == method]
        if own.empty:
            continue
        shares, errors = [], []
        for low, high in INTERVALS.values():
            inside = ((own[low] <= own["observed"]) & (own["observed"] <= own[high])).to_numpy(dtype=float)
            share = inside.mean()
            shares.append(100 * share)
            errors.append(
                100 * _Z * np.sqrt(share * (1 - share) / effective_number(inside, own["run"].to_numpy()))
            )
        style = _STYLES[method]
        axes.errorbar(levels + shift, shares, yerr=errors, fmt="none", ecolor=style["color"], elinewidth=0.9)
        axes.plot(levels + shift, shares, markersize=5, **style)
    axes.set_xlim(40, 100)
    axes.set_ylim(0, 103)
    axes.xaxis.set_major_locator(FixedLocator(list(INTERVALS)))
    axes.yaxis.set_major_locator(MultipleLocator(20))
    axes.set_title("Intervals: calibrated if on the line", fontsize=10, loc="left")
    axes.set_xlabel("probability of the interval (%)", fontsize=9)
    axes.set_ylabel("evaluations inside (%)", fontsize=9)


def _draw_crps(axes: Axes, result: Backtest) -> None:
    summary = result.summary("times_fitted")
    present = [label for label in BINS["times_fitted"][1] if label in set(summary["times_fitted"])]
    for method in METHODS:
        own = summary[summary["method"] == method].set_index("times_fitted")["crps"]
        if len(own):
            axes.plot(
                [present.index(str(label)) for label in own.index],
                own.to_numpy(),
                markersize=5.5,
                label=METHODS[method],
                **_STYLES[method],
            )
    axes.set_yscale("log")
    low, high = summary["crps"].min(), summary["crps"].max()
    axes.set_ylim(low / 1.5, high * 1.5)
    ticks = [m * 10.0**k for k in range(-7, 4) for m in (1, 2, 5)]
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low / 1.5 <= tick <= high * 1.5]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(-0.35, len(present) - 0.65)
    axes.set_xticks(range(len(present)), present)
    axes.set_title("CRPS by distance", fontsize=10, loc="left")
    axes.set_xlabel("compute / largest fitted compute", fontsize=9)
    unit = KIND_NAMES[result.metric.kind]
    axes.set_ylabel(f"mean CRPS ({unit}, log scale)", fontsize=9)


def _headline(result: Backtest) -> str:
    ours = result.forecasts[result.forecasts["method"] == OURS]
    cuts = " and ".join(dict.fromkeys(ours["cut"]))
    runs = ours["run"].nunique()
    return (
        f"Fitted up to {cuts} of {'each run' if '%' in cuts else 'compute'}: {len(ours):,} forecasts of later "
        f"evaluations, {runs} run{'' if runs == 1 else 's'}"
    )


def _caption(result: Backtest) -> str:
    ours = result.summary().query("method == @OURS").iloc[0]
    return (
        f"Errors of one run move together: {int(ours['evaluations']):,} evaluations are worth about "
        f"{ours['effective']:.0f} independent ones. Grey band and error bars: {100 * _BAND:g} % limits that allow for "
        "this. CRPS: mean distance of a forecast distribution from what was observed, for a point forecast the "
        "absolute error; smaller is better."
    )
