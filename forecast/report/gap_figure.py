"""Proxy against held-out value: is what training optimises still what is wanted?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from forecast.report.axes import make_panels, mark_compute, mark_values, panel_width, value_limits
from forecast.report.words import compute_label, plain

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit

_INK, _RED, _SHADE = "#111111", "#8c1c00", "#f3d9d2"
_MOST = 9


def gap_figure(fit: Fit, gaps: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw proxy and held-out value of every run that logged both, with the 90 % interval of their gap.

    Parameters
    ----------
    fit : Fit
    gaps : mapping of str to pandas.DataFrame
        Run -> `forecast.outlook.reward.reward_gap`; beyond nine runs those with the widest gaps at the end.

    Returns
    -------
    matplotlib.figure.Figure
        Values as fractions.
    """
    names = sorted(gaps, key=lambda run: -abs(float(gaps[run]["gap"].iloc[-1])))[:_MOST]
    figure, grid = make_panels(len(names), above=0.05, below=0.85)
    shown = [gaps[name] for name in names]
    value = "training-prompt value" if fit.runs.metric.split == "train" else "held-out value"
    low = min(float(gap["compute"].min()) for gap in shown)
    high = max(float(gap["compute"].max()) for gap in shown)
    values = np.concatenate([gap[["proxy", "true"]].to_numpy().ravel() for gap in shown])
    limits = value_limits(values, (0.0, 1.0))
    for axes, name, gap in zip(grid, names, shown, strict=True):
        mark_compute(axes, low / 1.06, max(high, low * 1.5) * 1.06, panel_width(len(names)))
        mark_values(axes, *limits)
        axes.set_title(plain(name), fontsize=9, loc="left", parse_math=False)
        axes.fill_between(
            gap["compute"],
            np.clip(gap["true"] + gap["low"], *limits),
            np.clip(gap["true"] + gap["high"], *limits),
            color=_SHADE,
            linewidth=0,
            label=f"{value} + gap, 90 % interval",
        )
        axes.plot(gap["compute"], gap["proxy"], color=_RED, linestyle="--", linewidth=1.2, label="proxy")
        axes.plot(
            gap["compute"],
            gap["true"],
            color=_INK,
            marker="o",
            markersize=3,
            linewidth=1,
            label=value,
        )
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    height = figure.get_figheight()
    figure.text(0.5, 0.42 / height, compute_label(fit.runs.compute), ha="center", fontsize=9.5)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure
