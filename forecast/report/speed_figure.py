"""Ceiling against speed: which recipes end higher, and which only get there sooner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from forecast.report.axes import log_ticks, mark_values, value_limits
from forecast.report.words import LEVEL_NAMES, compute_text, metric_label, plain, unit_name

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit

_MARKERS = "osD^vP*Xph<>"
_INK, _SOFT = "#08519c", "#6b6b6b"
_MOST = 24
_NAME = 26


def speed_figure(fit: Fit, parameters: pd.DataFrame) -> Figure:
    """Draw ceiling against midpoint, with 90 % intervals of both.

    Ceilings that the data do not determine have open markers and dotted bars.

    Parameters
    ----------
    fit : Fit
    parameters : pandas.DataFrame
        Of `forecast.outlook.parameters.parameters`, one level; beyond 24 curves those with the highest ceilings.

    Returns
    -------
    matplotlib.figure.Figure
    """
    ceilings = parameters[parameters["parameter"] == "ceiling"].set_index("name")
    midpoints = parameters[parameters["parameter"] == "midpoint"].set_index("name")
    names = list(ceilings.sort_values("q50", ascending=False).index[:_MOST])
    figure = Figure(figsize=(7.2, max(3.3, 0.6 + 0.2 * len(names))), dpi=150)
    axes = figure.subplots(gridspec_kw={"left": 0.1, "right": 0.66, "bottom": 0.17, "top": 0.95})
    unknowns = False
    for i, name in enumerate(names):
        ceiling, midpoint = ceilings.loc[name], midpoints.loc[name]
        unknown = str(ceiling["verdict"]).startswith("not identified")
        unknowns |= unknown
        style: dict[str, Any] = {
            "color": _SOFT if unknown else _INK,
            "linewidth": 1.0,
            "linestyle": ":" if unknown else "-",
        }
        axes.plot([midpoint["q05"], midpoint["q95"]], [ceiling["q50"]] * 2, zorder=2, **style)
        axes.plot([midpoint["q50"]] * 2, [ceiling["q05"], ceiling["q95"]], zorder=2, **style)
        label = plain(str(name))
        label = label if len(label) <= _NAME else f"{label[: _NAME - 1]}…"
        axes.plot(
            midpoint["q50"],
            ceiling["q50"],
            marker=_MARKERS[i % len(_MARKERS)],
            markersize=6,
            linestyle="none",
            color=style["color"],
            markerfacecolor="white" if unknown else style["color"],
            label=f"{i + 1}  {label}".replace("$", r"\$"),
            zorder=3,
        )
        axes.annotate(
            str(i + 1),
            (midpoint["q50"], ceiling["q50"]),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize=8,
        )
    low, high = float(midpoints.loc[names, "q05"].min()), float(midpoints.loc[names, "q95"].max())
    low, high = low / 1.15, high * 1.15
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(log_ticks(low, high, 0.16)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: compute_text(x)))
    axes.xaxis.set_minor_locator(NullLocator())
    ends = ceilings.loc[names, ["q05", "q95"]].to_numpy(float)
    mark_values(axes, *value_limits(np.ravel(ends), fit.runs.metric.scale))
    axes.set_xlabel(
        f"midpoint ({unit_name(fit.runs.compute)}, log scale): further left is faster", fontsize=9
    )
    axes.set_ylabel(f"ceiling: {metric_label(fit.runs.metric)}", fontsize=9)
    axes.tick_params(labelsize=8.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    level = LEVEL_NAMES[parameters["level"].iloc[0]]
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.02, 1.02),
        frameon=False,
        fontsize=8,
        title=f"{level}, by ceiling" + ("\n(open: ceiling not identified)" if unknowns else ""),
        title_fontsize=8,
        alignment="left",
    )
    return figure
