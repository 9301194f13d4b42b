"""Fan charts: what was measured, what was fitted, and what the fit expects."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from forecast.errors import InputError
from forecast.outlook.fitted_curves import members
from forecast.outlook.predict import predict
from forecast.outlook.reliability import run_warnings
from forecast.report.axes import (
    figure_width,
    grid_shape,
    make_panels,
    mark_compute,
    mark_values,
    panel_width,
    value_limits,
)
from forecast.report.panels import BANDS, Panel, draw_panel, legend_handles
from forecast.report.words import (
    compute_label,
    compute_text,
    metric_label,
    quantity_text,
    unit_name,
)

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.outlook.budget import Decision
    from forecast.outlook.hazard import Hazard

MOST_PANELS = 9
"""Panels of a figure that still can be read on a page."""

_GRID_POINTS = 70
_LETTERS_PER_INCH = 14.5  # of text at 9.5 points
_LINE, _LEGEND_LINE, _LEGEND_ENTRY, _MONEY_LINE = 0.17, 0.21, 2.4, 0.13  # inches


def fan_chart(
    fit: Fit,
    *,
    to: float,
    names: Sequence[str] | None = None,
    level: str = "run",
    bands: Sequence[float] = (0.5, 0.9),
    quantity: str = "evaluation",
    target: float | None = None,
    price: float | None = None,
    hazard: Hazard | None = None,
    force: bool = False,
) -> Figure:
    """Draw evaluations, forecast bands, ceiling and the least-squares curve, one panel per run or recipe.

    Parameters
    ----------
    fit : Fit
    to : float
        Compute to forecast to, in the fit's unit.
    names : sequence of str, optional
        Runs (or recipes); default all, also those without a curve.
    level : {"run", "recipe", "new_run"}
    bands : sequence of float
        Probabilities of the equal-tailed intervals, of `BANDS`.
    quantity : {"evaluation", "curve"}
        What the bands are for; an evaluation can be compared with the points, the curve cannot.
    target : float, optional
        Value to reach, on the metric's scale, drawn as a line.
    price : float, optional
        Money per unit of compute, written below the compute.
    hazard : Hazard, optional
        Draw the widest band also with transitions averaged at this hazard (some seconds per run).
    force : bool
        Draw although diagnostics failed; the figure then says so across every panel.

    Returns
    -------
    matplotlib.figure.Figure
        Save with ``figure.savefig(path)``; no global matplotlib state is touched.

    Raises
    ------
    InputError
        If `to` does not lie beyond the first evaluation shown, or a band, level, quantity or name is unknown.
    Withheld
        If diagnostics failed and `force` is false.
    """
    if unknown := [band for band in bands if band not in BANDS]:
        raise InputError("unknown band", found=unknown[0], expected=" | ".join(f"{band:g}" for band in BANDS))
    panels = _panels(fit, to, names, level, quantity, hazard, force)
    panels = [replace(panel, target=target) for panel in panels]
    width, inches = figure_width(len(panels)), panel_width(len(panels))
    handles = legend_handles(panels, bands)
    headline = [
        line
        for text in _headline(fit, to, bands, quantity, hazard)
        for line in textwrap.wrap(text, int(_LETTERS_PER_INCH * (width - 0.3)))
    ]
    columns = max(1, min(len(handles), int(width / _LEGEND_ENTRY)))
    below = 0.62 + (0 if price is None else _MONEY_LINE) + _LEGEND_LINE * -(-len(handles) // columns)
    figure, grid = make_panels(len(panels), above=0.04 + _LINE * len(headline), below=below)
    low = min(panel.points["compute"].min() for panel in panels)
    extent = _extent(panels, bands)
    limits = value_limits(extent if target is None else np.append(extent, target), fit.runs.metric.scale)
    for axes, panel in zip(grid, panels, strict=True):
        mark_compute(axes, low / 1.06, to * 1.02, inches, price)
        mark_values(axes, *limits)
        draw_panel(axes, panel, sorted(bands, reverse=True), letters=int(17 * inches))
    height = figure.get_figheight()
    left, right = (
        grid[0].get_position().x0,
        grid[min(len(grid), grid_shape(len(grid))[1]) - 1].get_position().x1,
    )
    middle = (below / height + grid[0].get_position().y1) / 2
    label: dict[str, Any] = {"fontsize": 10}
    figure.text(0.12 / width, 1 - 0.1 / height, "\n".join(headline), va="top", fontsize=9.5, parse_math=False)
    below_axes = compute_label(fit.runs.compute) + ("" if price is None else "; below it money")
    figure.text(
        (left + right) / 2,
        (below - 0.5 - (0 if price is None else _MONEY_LINE)) / height,
        below_axes,
        ha="center",
        **label,
    )
    figure.text(0.1 / width, middle, metric_label(fit.runs.metric), va="center", rotation=90, **label)
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 0.02 / height),
        ncols=columns,
        frameon=False,
        fontsize=8.5,
        borderaxespad=0,
    )
    if not fit.passed:
        _watermark(figure)
    return figure


def panels_shown(fit: Fit, decision: Decision, level: str) -> tuple[list[str] | None, int]:
    """Runs or recipes to draw where there are more than `MOST_PANELS`: those that lose least by a decision.

    Returns
    -------
    names : list of str or None
        None means all.
    left_out : int
    """
    known = list(dict.fromkeys(fit.runs.overall()["run" if level == "run" else "recipe"]))
    if len(known) <= MOST_PANELS:
        return None, 0
    action = "continue" if level == "run" else "start"
    rows = decision.options[decision.options["action"] == action].sort_values("regret", kind="stable")
    names = list(dict.fromkeys(rows["name"]))[:MOST_PANELS] or known[:MOST_PANELS]
    return names, len(known) - len(names)


def _panels(
    fit: Fit,
    to: float,
    names: Sequence[str] | None,
    level: str,
    quantity: str,
    hazard: Hazard | None,
    force: bool,
) -> list[Panel]:
    table = fit.runs.overall()
    group = "run" if level == "run" else "recipe"
    known = list(dict.fromkeys(table[group]))
    wanted = list(names) if names is not None else known
    if missing := [name for name in wanted if name not in known]:
        raise InputError(f"no such {level}", found=missing[0], expected=" | ".join(known))
    if not wanted:
        raise InputError("no run to draw")
    table = table[table[group].isin(wanted)]
    low = float(table["compute"].min())
    if not (np.isfinite(to) and to > low):
        raise InputError(
            "the figure must reach beyond the first evaluation", found=to, expected=f"more than {low:g}"
        )
    curves = [name for name in wanted if name in set(fit.fitted.overall()[group])]
    grid = np.geomspace(low, to, _GRID_POINTS).tolist()
    forecasts = (
        predict(fit, grid, level=level, quantity=quantity, names=curves, force=force) if curves else None
    )
    averaged = None
    if curves and hazard is not None:
        averaged = predict(
            fit,
            grid,
            level=level,
            quantity=quantity,
            names=curves,
            transitions="averaged",
            hazard=hazard,
            force=force,
        )
    ceilings = fit.parameters(level=level, force=force).query("parameter == 'ceiling'")
    panels = []
    for name in wanted:
        points = table[(table[group] == name) & (table["compute"] <= to)]
        points = points.assign(state=_states(fit, points))
        if forecasts is None or name not in curves:
            reasons = dict.fromkeys(fit.refused.get(run, "") for run in points["run"])
            panels.append(
                Panel(name, points, None, None, np.nan, ["NO CURVE: " + "; ".join(filter(None, reasons))])
            )
            continue
        panels.append(
            Panel(
                name=name,
                points=points,
                forecast=forecasts[forecasts["name"] == name],
                ceiling=ceilings[ceilings["name"] == name].iloc[0],
                edge=_fitted_edge(fit, level, name, points),
                # What concerns all panels is written above or across the figure.
                warnings=[
                    text
                    for text in run_warnings(fit, level, name)
                    if "diagnostics failed" not in text and text != fit.runs.metric.caveat
                ],
                averaged=None if averaged is None else averaged[averaged["name"] == name],
            )
        )
    return panels


def _states(fit: Fit, points: pd.DataFrame) -> list[str]:
    """Per evaluation: fitted, outside (of the fitted range) or refused."""
    fitted = set(zip(fit.fitted.table["run"], fit.fitted.table["compute"], strict=True))
    return [
        "fitted" if key in fitted else "refused" if key[0] in fit.refused else "outside"
        for key in zip(points["run"], points["compute"], strict=True)
    ]


def _fitted_edge(fit: Fit, level: str, name: str, points: pd.DataFrame) -> float:
    """End of the fitted range: the cut asked for where the run goes on after it, else its last evaluation."""
    fitted = fit.fitted.overall()
    last = float(fitted.loc[fitted["run"].isin(members(fit, level, name)), "compute"].max())
    upto = fit.settings.upto
    return float(upto) if upto is not None and (points["compute"] > upto).any() else last


def _extent(panels: Sequence[Panel], bands: Sequence[float]) -> np.ndarray:
    """Every value that must be inside the y-limits; least squares may leave them."""
    columns = [column for band in bands for column in BANDS[band]]
    parts = [panel.points["value"].to_numpy() for panel in panels]
    for tables in ("forecast", "averaged"):
        drawn = [table for panel in panels if (table := getattr(panel, tables)) is not None]
        parts += [table[columns].to_numpy().ravel() for table in drawn]
    parts += [panel.ceiling[["q05", "q95"]].to_numpy(float) for panel in panels if panel.ceiling is not None]
    return np.concatenate(parts)


def _headline(fit: Fit, to: float, bands: Sequence[float], quantity: str, hazard: Hazard | None) -> list[str]:
    percents = " and ".join(f"{100 * band:g} %" for band in sorted(bands))
    end = f"{compute_text(to)} {unit_name(fit.runs.compute)}"
    lines = [
        f"Forecast to {end}: {quantity_text(fit.runs.metric, quantity)}",
        f"Bands: {percents} equal-tailed intervals; jumps and collapses beyond the data are not included"
        + ("" if hazard is None else ", but in the dotted one"),
    ]
    return [*lines, f"Note: {fit.runs.metric.caveat}"] if fit.runs.metric.caveat else lines


def _watermark(figure: Figure) -> None:
    figure.text(
        0.5,
        0.5,
        "DIAGNOSTICS FAILED\nnot a forecast",
        ha="center",
        va="center",
        rotation=20,
        fontsize=min(54, 7 * figure.get_figwidth()),
        color="#8c1c00",
        alpha=0.28,
        weight="bold",
        zorder=10,
    )
