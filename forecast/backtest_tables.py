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
from forecast.terminal import number

if TYPE_CHECKING:
    from forecast.outlook.backtest import Backtest

_SKIPPED_SHOWN = 8
_DISTANCES = {"times_fitted": "x fitted", "times_midpoint": "x midpoint"}


def print_skipped(console: Console, skipped: pd.DataFrame) -> None:
    """Say which runs were not scored and why."""
    for row in skipped.head(_SKIPPED_SHOWN).itertuples():
        console.print(
            f"[yellow]not scored[/yellow]: {escape(str(row.run))} at {row.cut}: {escape(str(row.reason))}"
        )
    if len(skipped) > _SKIPPED_SHOWN:
        console.print(f"... and {len(skipped) - _SKIPPED_SHOWN} more, listed in backtest.json")


def print_scores(console: Console, result: Backtest) -> None:
    """Print errors, intervals, and how both change with distance."""
    by_cut = result.summary("cut")
    scale = abs(result.metric.scale[1] - result.metric.scale[0])
    console.print(_errors(by_cut, scale))
    console.print(_intervals(by_cut))
    console.print(_distances(result))
    overall = result.summary().query("method == @OURS").iloc[0]
    console.print(
        f"Errors of one run move together: {int(overall['evaluations']):,} evaluations of {int(overall['runs'])} runs "
        f"are worth about {overall['effective']:.0f} independent ones."
    )
    for row in by_cut[by_cut["missing"] > 0].itertuples():
        console.print(
            f"{METHODS[str(row.method)]} at {row.cut} has no forecast of {row.missing} of these evaluations."
        )


def _errors(summary: pd.DataFrame, scale: float) -> Table:
    table = _table("Point forecasts (pp: percentage points)", "cut at", "method")
    for heading in ("runs", "evaluations", "bias (pp)", "RMSE (pp)", "CRPS", "CRPS / grid's"):
        table.add_column(heading, justify="right")
    table.add_column(f"within ±{MARGIN * scale:g}", justify="right")
    decimals = max(0, 4 - round(np.log10(scale)))
    for first, row in _rows(summary):
        table.add_row(
            *first,
            str(row["runs"]),
            f"{row['evaluations']:,}",
            f"{row['bias']:+.{decimals}f} ({100 * row['bias'] / scale:+.2f})",
            f"{row['rmse']:.{decimals}f} ({100 * row['rmse'] / scale:.2f})",
            f"{row['crps']:.{decimals}f}",
            "-" if np.isnan(row["crps_ratio"]) else f"{row['crps_ratio']:.2f}",
            f"{row['within_02']:.2f}",
        )
    return table


def _intervals(summary: pd.DataFrame) -> Table:
    table = _table("Intervals: share of evaluations inside (equal-tailed)", "cut at", "method")
    for level in INTERVALS:
        table.add_column(f"{level} %", justify="right")
    table.add_column("90 % width", justify="right")
    table.add_column("log score", justify="right")
    for first, row in _rows(summary[summary["coverage_90"].notna()]):
        shares = [f"{row[f'coverage_{level}']:.2f}" for level in INTERVALS]
        table.add_row(*first, *shares, number(row["width_90"]), f"{row['log_score']:.2f}")
    return table


def _distances(result: Backtest) -> Table:
    table = _table("By distance: CRPS of each method, share inside our 90 % interval", "compute")
    for heading in ("runs", "evaluations", *METHODS.values(), "in our 90 %"):
        table.add_column(heading, justify="right")
    for by in BINS:
        for name, group in result.summary(by).groupby(by, sort=False):
            own = group.set_index("method")
            table.add_row(
                f"{name} {_DISTANCES[by]}",
                str(own["runs"][OURS]),
                f"{own['evaluations'][OURS]:,}",
                *(number(score) for score in own["crps"].reindex(list(METHODS))),
                f"{own['coverage_90'][OURS]:.2f}",
            )
    return table


def _table(title: str, *left: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading in left:
        table.add_column(heading, no_wrap=True)
    return table


def _rows(summary: pd.DataFrame) -> list[tuple[list[str], pd.Series]]:
    """Rows with their first two cells; a cut is named once."""
    named: set[str] = set()
    rows = []
    for _, row in summary.iterrows():
        rows.append((["" if row["cut"] in named else row["cut"], METHODS[row["method"]]], row))
        named.add(row["cut"])
    return rows
