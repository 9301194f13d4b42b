"""How panels are arranged and their axes marked."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

from forecast.report.words import compute_text, money_text

_MANTISSAS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    tuple(np.arange(1, 10, 0.5)),
)
_COLUMNS = {1: 1, 2: 2, 3: 3, 4: 2}
_PANEL = {1: (6.6, 3.9), 2: (4.2, 2.8), 3: (3.2, 2.2), 4: (2.5, 1.8), 5: (2.3, 1.7)}
"""Inches of a panel's frame, by panels in a row."""
_LEFT, _RIGHT, _GAP, _TITLE = 0.78, 0.32, 0.36, 0.36
_LABEL_INCHES, _END_INCHES = 0.62, 0.08


def grid_shape(panels: int) -> tuple[int, int]:
    """Return (rows, columns) for a number of panels, wide rather than tall."""
    columns = _COLUMNS.get(panels, 3 if panels <= 9 else 4 if panels <= 16 else 5)
    return -(-panels // columns), columns


def figure_width(panels: int) -> float:
    """Width in inches of a figure with that many panels."""
    columns = grid_shape(panels)[1]
    return _LEFT + columns * _PANEL[columns][0] + (columns - 1) * _GAP + _RIGHT


def panel_width(panels: int) -> float:
    """Width in inches of one panel's frame."""
    return _PANEL[grid_shape(panels)[1]][0]


def make_panels(panels: int, *, above: float, below: float) -> tuple[Figure, list[Axes]]:
    """Lay out panels with `above` and `below` inches of room for text."""
    rows, columns = grid_shape(panels)
    wide, tall = _PANEL[columns]
    row_gap = _TITLE + 0.1
    width, height = figure_width(panels), above + _TITLE + rows * tall + (rows - 1) * row_gap + below
    figure = Figure(figsize=(width, height), dpi=150)
    grid = figure.subplots(
        rows,
        columns,
        squeeze=False,
        sharex=True,
        sharey=True,
        gridspec_kw={
            "left": _LEFT / width,
            "right": 1 - _RIGHT / width,
            "bottom": below / height,
            "top": 1 - (above + _TITLE) / height,
            "wspace": _GAP / wide,
            "hspace": row_gap / tall,
        },
    )
    for axes in grid.flat[panels:]:
        axes.remove()
    axes_in_order = list(grid.flat[:panels])
    for i, axes in enumerate(axes_in_order):
        axes.tick_params(labelsize=8.5, labelbottom=i + columns >= panels, labelleft=i % columns == 0)
    return figure, axes_in_order


def log_ticks(low: float, high: float, least_gap: float) -> list[float]:
    """Round numbers inside ``low .. high``, as many as keep their distance.

    Parameters
    ----------
    low, high : float
    least_gap : float
        Smallest distance of two ticks, as a share of the axis.

    Returns
    -------
    list of float
        Of the series 1-10, 1-3-10, 1-2-5, 1-1.5-2-3-5-7 and halves the densest that fits.
    """
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    length = np.log(high / low)
    chosen = np.array([])
    for mantissas in _MANTISSAS:
        ticks = np.sort(np.ravel(10.0 ** decades[:, None] * np.array(mantissas)))
        ticks = ticks[(ticks >= low * (1 - 1e-9)) & (ticks <= high * (1 + 1e-9))]
        crowd = least_gap * length / np.diff(np.log(ticks)).min(initial=np.inf)
        if crowd <= 1:
            chosen = ticks
        elif len(chosen) < 2:
            chosen = ticks[:: int(np.ceil(crowd))]
    return list(map(float, chosen))


def mark_compute(axes: Axes, low: float, high: float, inches: float, price: float | None = None) -> None:
    """Log x-axis from `low` to `high` with round numbers written out, and below them their price."""

    def text(x: float, _: int) -> str:
        return compute_text(x) + ("" if price is None else f"\n{money_text(x * price)}")

    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = log_ticks(low, high, _LABEL_INCHES / inches)
    # A long label at the right end would touch the first one of the panel beside it.
    inside = [x for x in ticks if np.log(high / x) / np.log(high / low) * inches > _END_INCHES]
    axes.xaxis.set_major_locator(FixedLocator(inside if len(inside) > 1 else ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(text))
    axes.xaxis.set_minor_locator(NullLocator())


def mark_values(axes: Axes, low: float, high: float) -> None:
    """Linear y-axis from `low` to `high`, a tick at each round step."""
    raw = (high - low) / 5
    power = 10 ** np.floor(np.log10(raw))
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(
        MultipleLocator(next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw))
    )


def value_limits(values: np.ndarray, scale: tuple[float, float]) -> tuple[float, float]:
    """Limits that hold all values with a little air, hardly beyond the ends of the metric's scale."""
    values = values[np.isfinite(values)]
    bottom, top = min(scale), max(scale)
    low, high = float(values.min()), float(values.max())
    # A span of less than a twentieth of the scale would make noise look like news.
    air = max(0.06 * (high - low), 0.025 * (top - bottom) - (high - low) / 2)
    return max(low - air, bottom - 0.02 * (top - bottom)), min(high + air, top + 0.02 * (top - bottom))
