"""What the command line shows to a person: consoles, progress, tables of intervals."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from forecast.outlook.reliability import WARNING_SEPARATOR

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit
    from forecast.inference.sampling import Report
    from forecast.runs.receipt import Receipt

_RECEIPTS_SHOWN = 6
_PIPE_WIDTH = 200


def messages() -> Console:
    """Console for people's text: progress, notes, warnings (stderr)."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def output() -> Console:
    """Console for results (stdout); a pipe or file has room for every column."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console


@contextmanager
def progress_reporter(console: Console) -> Iterator[Report]:
    """Give a callback (stage, done, total) that shows a bar per stage, or a line per stage without a terminal."""
    if not console.is_terminal:
        seen: set[str] = set()
        lock = threading.Lock()

        def line(stage: str, done: int, total: int) -> None:
            with lock:
                if stage not in seen:
                    seen.add(stage)
                    console.print(f"{escape(stage)} ...")

        yield line
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def bar(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    progress.update(task, visible=False)
                tasks[stage] = progress.add_task(escape(stage), total=total or None)
            progress.update(tasks[stage], completed=done, total=total or None)

        yield bar


def number(value: float, digits: int = 3) -> str:
    """Format with `digits` significant digits, thousands separated; ``-`` for NaN."""
    if value is None or np.isnan(value):
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 1e7:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
    return f"{value:,.{decimals}f}"


def interval(row: pd.Series, decimals: int = 3) -> str:
    """Return ``median [q05, q95]``."""
    return f"{row['q50']:.{decimals}f} [{row['q05']:.{decimals}f}, {row['q95']:.{decimals}f}]"


def parameter_table(fit: Fit, parameters: pd.DataFrame) -> Table:
    """Ceiling, midpoint, exponent and floor per run, with what the data say about the ceiling."""
    table = Table(
        title=f"Fitted curves: median [90 % equal-tailed interval], {fit.runs.metric.kind} on {fit.runs.metric.split}",
        title_justify="left",
    )
    words = ("run", "is the ceiling identified?")
    numbers = ("ceiling", f"midpoint ({fit.runs.compute.unit})", "exponent", "floor")
    for heading in (
        words[0],
        numbers[0],
        words[1],
        numbers[1],
        "fitted / midpoint",
        *numbers[2:],
        "least-squares ceiling",
    ):
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=heading in numbers)
    decimals = _decimals(fit)
    for name, group in parameters.groupby("name", sort=False):
        row = {parameter: part.iloc[0] for parameter, part in group.groupby("parameter")}
        midpoint = row["midpoint"]
        table.add_row(
            escape(str(name)),
            interval(row["ceiling"], decimals),
            row["ceiling"]["verdict"],
            f"{number(midpoint['q50'])} [{number(midpoint['q05'])}, {number(midpoint['q95'])}]",
            f"{midpoint['fitted_over_midpoint']:.1f}",
            interval(row["exponent"], 2),
            interval(row["floor"], decimals),
            number(row["ceiling"]["least_squares"]),
        )
    return table


def forecast_table(fit: Fit, forecast: pd.DataFrame) -> Table:
    """One line per name and compute."""
    quantity = {"curve": "true", "evaluation": "measured"}[forecast["quantity"].iloc[0]]
    metric = fit.runs.metric
    table = Table(
        title=f"Forecast of the {quantity} {metric.kind} ({metric.split}): median [90 % equal-tailed interval]; jumps and collapses not included",
        title_justify="left",
    )
    pooled = forecast["independent"].notna().any()
    headings = [
        forecast["level"].iloc[0].replace("_", " "),
        f"at ({fit.runs.compute.unit})",
        "x fitted",
        "forecast",
        "least squares",
    ]
    headings += ["recipes apart (mean)"] if pooled else []
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=heading == "forecast")
    decimals = _decimals(fit)
    for _, row in forecast.iterrows():
        cells = [
            escape(row["name"]),
            number(row["compute"], 4),
            f"{row['times_fitted']:.2f}",
            interval(row, decimals),
            _rounded(row["least_squares"], decimals),
        ]
        table.add_row(*cells, *([_rounded(row["independent"], decimals)] if pooled else []))
    return table


def print_warnings(console: Console, warnings: Sequence[str]) -> None:
    """Print each distinct warning once."""
    for warning in dict.fromkeys(w for cell in warnings for w in cell.split(WARNING_SEPARATOR) if w):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def print_receipts(console: Console, receipts: Sequence[Receipt]) -> None:
    """Say what became of the rows that were read."""
    for receipt in receipts[:_RECEIPTS_SHOWN]:
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in receipt.dropped.items())
        console.print(
            f"{escape(receipt.source)} ({receipt.format}): {receipt.rows_read:,} rows read, {receipt.rows_kept:,} kept"
            + (f"; left out: {escape(dropped)}" if dropped else "")
        )
        for note in receipt.notes:
            console.print(f"  note: {escape(note)}")
    if len(receipts) > _RECEIPTS_SHOWN:
        console.print(f"... and {len(receipts) - _RECEIPTS_SHOWN} more sources, listed in fit.json")


def _decimals(fit: Fit) -> int:
    """Decimals that show a thousandth of the metric's scale."""
    zero, one = fit.runs.metric.scale
    return max(0, 3 - round(np.log10(abs(one - zero))))


def _rounded(value: float, decimals: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{decimals}f}"
