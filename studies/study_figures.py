"""The figure of studies that ask whether intervals cover what comes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def coverage_figure(summary: pd.DataFrame, labels: pd.Series, units: pd.Series, about: str) -> Figure:
    """Coverage of three intervals, and CRPS relative to least squares; one line per row of `summary`.

    Parameters
    ----------
    summary : pandas.DataFrame
        Columns ``coverage_50``, ``coverage_80``, ``coverage_95``, ``crps_ratio`` and ``covariance_crps_ratio``.
    labels : pandas.Series
        Of the rows.
    units : pandas.Series
        Independent forecasts behind each row, which set the error bars; none where NaN.
    about : str
        What lies inside, and what the bars are.
    """
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11, 0.42 * len(summary) + 1.6), layout="constrained")
    covered, ratio = drawn.subplots(1, 2, sharey=True, width_ratios=[3, 1.4])
    at = np.arange(len(summary))[::-1]
    for level, colour, marker in ((50, "#0072b2", "s"), (80, "#e69f00", "D"), (95, "#009e73", "o")):
        covered.axvline(level / 100, color=colour, lw=1, ls=":")
        p = summary[f"coverage_{level}"]
        error = 1.96 * np.sqrt(p * (1 - p) / units)
        covered.errorbar(p, at, xerr=error, fmt=marker, color=colour, ms=5, lw=1, label=f"{level} % interval")
    covered.set_yticks(at, labels)
    covered.set_xlim(0.2 if summary["coverage_50"].min() > 0.22 else -0.02, 1.02)
    covered.set_xlabel(about)
    covered.legend(loc="lower left", frameon=False, ncols=3, bbox_to_anchor=(0, 1))
    ratios = []
    for column, colour, marker, label in (
        ("crps_ratio", "#000000", "o", "rlforecast"),
        ("covariance_crps_ratio", "#999999", "x", "least squares + covariance"),
    ):
        ratios.append(summary[column].to_numpy(dtype=float))
        ratio.plot(ratios[-1], at, marker, color=colour, ms=5, label=label)
    ratio.axvline(1, color="#000000", lw=1, ls=":")
    ratio.set_xscale("log")
    # Ticks widen the axis: only those that some row comes near.
    known = np.log2([r for r in np.concatenate(ratios) if np.isfinite(r) and r > 0] or [1.0])
    powers = range(min(-2, int(np.floor(known.min()))), max(1, int(np.ceil(known.max()))) + 1)
    ratio.set_xticks([2.0**k for k in powers], [f"1/{2**-k}" if k < 0 else f"{2**k}" for k in powers])
    ratio.minorticks_off()
    ratio.set_xlabel("CRPS / least squares")
    ratio.legend(loc="lower left", frameon=False, bbox_to_anchor=(0, 1))
    for axes in (covered, ratio):
        axes.spines[["top", "right"]].set_visible(False)
    return drawn
