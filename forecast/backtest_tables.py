"""Scores of a backtest as a person reads them in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from forecast.outlook.backtest_summary import BINS, INTERVALS, MARGIN
from forecast.outlook.contenders import METHODS, OURS

if TYPE_CHECKING:
    from forecast.outlook.backtest import Backtest

_SKIPPED_SHOWN = 8
_DISTANCES = {"times_fitted": "x fitted", "times_midpoint": "x midpoint"}


def print_skipped(console: Console, skipped: pd.DataFrame, kept_in: str = "") -> None:
    """Say which runs were not scored and why; `kept_in` names the file that lists them all."""
    for row in skipped.head(_SKIPPED_SHOWN).itertuples():
        console.print(
            f"[yellow]not scored[/yellow]: {escape(str(row.run))} at {row.cut}: {escape(str(row.reason))}"
        )
    if len(skipped) > _SKIPPED_SHOWN:
        listed = f", listed in {kept_in}" if kept_in else ""
        console.print(f"... and {len(skipped) - _SKIPPED_SHOWN} more{listed}")


def print_scores(console: Console, result: Backtest) -> None:
    """Print errors and intervals of every cut, and how both change with distance."""
    scale = abs(result.metric.scale[1] - result.metric.scale[0])
    console.print(
        f"Errors and widths in percentage points of the {escape(result.metric.name)} scale; CRPS is an error too: smaller is better.",
        highlight=False,
    )
    for cut, group in result.summary("cut").groupby("cut", sort=False):
        ours = group[group["method"] == OURS].iloc[0]
        runs, independent = int(ours["runs"]), round(float(ours["effective"]))
        console.print(
            f"\nCut at {escape(str(cut))}: {int(ours['evaluations']):,} later evaluations of {_count(runs, 'run')}, worth about "
            f"{_count(independent, 'independent error')} (those of one run move together)",
            style="bold",
            highlight=False,
        )
        console.print(_errors(group, scale))
        console.print(_intervals(group, scale))
        for row in group[group["missing"] > 0].itertuples():
            console.print(
                f"{METHODS[str(row.method)]} could not be fitted for {row.missing} of these evaluations: compare it "
                "by the ratio, which leaves them out on both sides",
                highlight=False,
            )
    console.print(_distances(result, scale))


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _errors(summary: pd.DataFrame, scale: float) -> Table:
    table = _table("", "point forecast")
    for heading in ("bias", "RMSE", "CRPS", "CRPS / grid's"):
        table.add_column(heading, justify="right")
    table.add_column(f"within {100 * MARGIN:g}", justify="right")
    for _, row in summary.iterrows():
        table.add_row(
            METHODS[row["method"]],
            f"{100 * row['bias'] / scale:+.2f}",
            f"{100 * row['rmse'] / scale:.2f}",
            f"{100 * row['crps'] / scale:.2f}",
            "-" if np.isnan(row["crps_ratio"]) else f"{row['crps_ratio']:.2f}",
            f"{row['within_02']:.2f}",
        )
    return table


def _intervals(summary: pd.DataFrame, scale: float) -> Table:
    table = _table("", "share inside the interval")
    for level in INTERVALS:
        table.add_column(f"{level} %", justify="right")
    table.add_column("90 % width", justify="right")
    for _, row in summary[summary["coverage_90"].notna()].iterrows():
        shares = [f"{row[f'coverage_{level}']:.2f}" for level in INTERVALS]
        table.add_row(METHODS[row["method"]], *shares, f"{100 * row['width_90'] / scale:.1f}")
    return table


_SHORT = {"least_squares": "grid", "least_squares_covariance": "+ cov.", "last_value": "last"}


def _distances(result: Backtest, scale: float) -> Table:
    table = _table("\nCRPS by distance, all cuts", "compute")
    for heading in ("runs", *(_SHORT.get(method, name) for method, name in METHODS.items()), "in our 90 %"):
        table.add_column(heading.removesuffix(" + covariance"), justify="right")
    for by in BINS:
        for name, group in result.summary(by).groupby(by, sort=False):
            own = group.set_index("method")
            table.add_row(
                f"{name} {_DISTANCES[by]}",
                str(own["runs"][OURS]),
                *(_percent(score, scale) for score in own["crps"].reindex(list(METHODS))),
                f"{own['coverage_90'][OURS]:.2f}",
            )
    return table


def _percent(value: float, scale: float) -> str:
    return "-" if np.isnan(value) else f"{100 * value / scale:.2f}"


def _table(title: str, *left: str) -> Table:
    table = Table(
        title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
    )
    for heading in left:
        table.add_column(heading, no_wrap=True)
    return table
