"""One panel of a fan chart, and the legend that explains all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from forecast.report.words import compute_text, plain

BANDS = {0.5: ("q25", "q75"), 0.8: ("q10", "q90"), 0.9: ("q05", "q95")}
"""Probability of an interval and its two quantiles in the forecast table."""

# Lightness tells the bands apart, line style and marker fill the rest: colour is never needed.
_BLUE, _ORANGE, _INK, _RED = "#08519c", "#d55e00", "#111111", "#8c1c00"
_SHADES = ("#cfe1f2", "#8fc0e0", "#5a9fd0")
_MARKERS: dict[str, dict[str, Any]] = {
    "fitted": {"marker": "o", "markersize": 3.4, "color": _INK, "label": "evaluation, fitted"},
    "outside": {
        "marker": "o",
        "markersize": 4.2,
        "color": _INK,
        "markerfacecolor": "white",
        "markeredgewidth": 0.9,
        "label": "evaluation, not fitted",
    },
    "refused": {
        "marker": "x",
        "markersize": 4.2,
        "color": _INK,
        "markeredgewidth": 0.9,
        "label": "evaluation of a run without a curve",
    },
}
_MEDIAN: dict[str, Any] = {"color": _BLUE, "linewidth": 1.5}
_LEAST_SQUARES: dict[str, Any] = {"color": _ORANGE, "linewidth": 1.4, "dashes": (3.5, 1.8)}
_CEILING: dict[str, Any] = {"color": _BLUE, "marker": "D", "markersize": 4.2, "linewidth": 1.6}
_UNKNOWN_CEILING: dict[str, Any] = _CEILING | {"markerfacecolor": "white", "linestyle": (0, (1.2, 1))}
_AVERAGED: dict[str, Any] = {"color": _INK, "linewidth": 0.9, "linestyle": (0, (1, 1.6))}
_TARGET: dict[str, Any] = {"color": _RED, "linewidth": 1.1, "linestyle": (0, (6, 1.6, 1, 1.6))}
_SMALL = 7.5
_CEILING_INCHES = 0.13
_NAME_LETTERS = 0.75  # of the letters of small text that fit into the panel
_WARNING_LINES = 4


@dataclass(frozen=True)
class Panel:
    """What one panel shows.

    Attributes
    ----------
    name : str
    points : pandas.DataFrame
        Columns compute, value and state (``fitted``, ``outside`` of the fitted range, ``refused``).
    forecast : pandas.DataFrame or None
        Rows of `forecast.outlook.predict.predict` on a grid; None where no curve was fitted.
    ceiling : pandas.Series or None
        Its row of `forecast.outlook.parameters.parameters`.
    edge : float
        End of the fitted range.
    warnings : list of str
    averaged : pandas.DataFrame or None
        Forecast on the same grid with transitions averaged.
    target : float or None
        Value to reach.
    """

    name: str
    points: pd.DataFrame
    forecast: pd.DataFrame | None
    ceiling: pd.Series | None
    edge: float
    warnings: list[str]
    averaged: pd.DataFrame | None = None
    target: float | None = None


def draw_panel(axes: Axes, panel: Panel, bands: Sequence[float], *, letters: int) -> None:
    """Draw one panel on axes whose limits are set.

    Parameters
    ----------
    axes : Axes
    panel : Panel
    bands : sequence of float
        Probabilities, widest first.
    letters : int
        How many letters of small text fit into the panel's width.
    """
    name, most = plain(panel.name), int(_NAME_LETTERS * letters)
    name = name if len(name) <= most else f"{name[: most - 1]}…"
    axes.set_title(name, fontsize=10, loc="left", parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.forecast is not None:
        _draw_fitted_range(axes, panel.edge)
        compute = panel.forecast["compute"]
        for shade, band in zip(_SHADES, bands, strict=False):
            low, high = BANDS[band]
            axes.fill_between(
                compute, panel.forecast[low], panel.forecast[high], color=shade, linewidth=0, zorder=1
            )
        if panel.averaged is not None:
            for end in BANDS[max(bands)]:
                axes.plot(panel.averaged["compute"], panel.averaged[end], zorder=2.8, **_AVERAGED)
        axes.plot(compute, panel.forecast["q50"], zorder=3, **_MEDIAN)
        axes.plot(compute, panel.forecast["least_squares"], zorder=3.2, **_LEAST_SQUARES)
    if panel.target is not None:
        axes.axhline(panel.target, zorder=2.5, **_TARGET)
    for state, style in _MARKERS.items():
        part = panel.points[panel.points["state"] == state]
        axes.plot(part["compute"], part["value"], linestyle="none", zorder=4, **style)
    if panel.ceiling is not None:
        _draw_ceiling(axes, panel.ceiling)
    if panel.warnings:
        _write_warnings(axes, panel.warnings, letters)


def legend_handles(panels: Sequence[Panel], bands: Sequence[float]) -> list[Artist]:
    """Explain what occurs in any of the panels, once."""
    states = {state for panel in panels for state in panel.points["state"]}
    handles: list[Artist] = [
        Line2D([], [], linestyle="none", **style) for state, style in _MARKERS.items() if state in states
    ]
    curves = [panel for panel in panels if panel.forecast is not None]
    if not curves:
        return handles
    handles.append(Line2D([], [], label="median", **_MEDIAN))
    for shade, band in reversed(list(zip(_SHADES, sorted(bands, reverse=True), strict=False))):
        handles.append(Patch(facecolor=shade, label=f"{100 * band:g} % interval"))
    if any(panel.averaged is not None for panel in curves):
        label = f"{100 * max(bands):g} % interval, transitions averaged"
        handles.append(Line2D([], [], label=label, **_AVERAGED))
    handles.append(Line2D([], [], label="least squares (grid), no interval", **_LEAST_SQUARES))
    if any(panel.target is not None for panel in curves):
        handles.append(Line2D([], [], label="target", **_TARGET))
    unknown = {_is_unknown(panel.ceiling) for panel in curves if panel.ceiling is not None}
    if False in unknown:
        handles.append(Line2D([], [], label="ceiling, 90 % interval", **_CEILING))
    if True in unknown:
        handles.append(Line2D([], [], label="ceiling not identified, 90 % interval", **_UNKNOWN_CEILING))
    return handles


def _draw_fitted_range(axes: Axes, edge: float) -> None:
    axes.axvspan(axes.get_xlim()[0], edge, color="#f4f4f4", linewidth=0, zorder=0.5)
    axes.axvline(edge, color="#6b6b6b", linewidth=0.9, zorder=0.6)
    axes.annotate(
        f"fitted up to {compute_text(edge)}",
        (edge, 0.03),
        xycoords=axes.get_xaxis_transform(),
        xytext=(-3, 0),
        textcoords="offset points",
        ha="right",
        fontsize=_SMALL,
        color="#444444",
    )


def _is_unknown(ceiling: pd.Series) -> bool:
    return str(ceiling["verdict"]).startswith("not identified")


def _draw_ceiling(axes: Axes, ceiling: pd.Series) -> None:
    """90 % bar with the median, outside the right edge: a ceiling belongs to no compute."""
    style = _UNKNOWN_CEILING if _is_unknown(ceiling) else _CEILING
    bar = {key: value for key, value in style.items() if not key.startswith("marker")}
    scale = axes.get_figure().dpi_scale_trans  # type: ignore[union-attr]
    ends = [ceiling["q05"], ceiling["q95"]]
    beside = axes.get_yaxis_transform() + ScaledTranslation(_CEILING_INCHES, 0, scale)
    for x, y, drawn in (
        ([1, 1], ends, bar),
        ([1, 1], ends, {"color": style["color"], "linestyle": "none", "marker": "_", "markersize": 8}),
        ([1], [ceiling["q50"]], style),
    ):
        axes.plot(x, y, transform=beside, clip_on=False, zorder=5, **drawn)


def _write_warnings(axes: Axes, warnings: Sequence[str], letters: int) -> None:
    lines = [line for text in warnings for line in textwrap.wrap(plain(text), letters)]
    if len(lines) > _WARNING_LINES:
        lines = [*lines[: _WARNING_LINES - 1], lines[_WARNING_LINES - 1][: letters - 2] + " …"]
    axes.text(
        0.03,
        0.97,
        "\n".join(lines),
        transform=axes.transAxes,
        va="top",
        fontsize=_SMALL,
        color=_RED,
        parse_math=False,
        zorder=6,
        bbox={"facecolor": "white", "edgecolor": _RED, "linewidth": 0.7, "pad": 2.5},
    )
