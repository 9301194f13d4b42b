"""What the command line shows to a person: consoles, progress, tables of intervals."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from forecast.outlook.reliability import WARNING_SEPARATOR
from forecast.records import records

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit
    from forecast.inference.sampling import Report
    from forecast.runs.receipt import Receipt
    from forecast.runs.table import Runs

_RECEIPTS_SHOWN = 6
_PIPE_WIDTH = 200
_WIDEST = 1000


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


def compute(value: float) -> str:
    """Format a compute as it was asked for: thousands separated, no padding."""
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.4g}"


def interval(row: pd.Series, decimals: int = 3) -> str:
    """Return ``median [q05, q95]``."""
    return f"{row['q50']:.{decimals}f} [{row['q05']:.{decimals}f}, {row['q95']:.{decimals}f}]"


def print_records(table: pd.DataFrame, form: str) -> None:
    """Print a table as data alone on stdout, as ``csv`` or ``json`` (one object per row)."""
    if form == "csv":
        click.echo(table.to_csv(index=False), nl=False)
    else:
        click.echo(json.dumps(records(table), indent=2))


def print_parameters(console: Console, fit: Fit, parameters: pd.DataFrame) -> None:
    """Print ceiling, midpoint, exponent and floor per run, with what the data say about the ceiling.

    One line per run where the console is wide enough, else one block per run: intervals never wrap.
    """
    title = f"Fitted curves: median [90 % equal-tailed interval], {fit.runs.metric.kind} on {fit.runs.metric.split}"
    midpoint = f"midpoint ({fit.runs.compute.unit})"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading, justify in (
        ("run", "left"),
        ("ceiling", "right"),
        ("is the ceiling identified?", "left"),
        (midpoint, "right"),
        ("fitted / midpoint", "right"),
        ("exponent", "right"),
        ("floor", "right"),
        ("least-squares ceiling", "right"),
    ):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    blocks: list[RenderableType] = [title]
    for name, group in parameters.groupby("name", sort=False):
        cells = _parameter_cells(group, _decimals(fit))
        table.add_row(escape(str(name)), *cells.values())
        block = Table.grid(padding=(0, 2))
        block.add_column(min_width=max(len(midpoint), 20))
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        block.add_row("  ceiling", cells["ceiling"], cells["verdict"])
        block.add_row("", "", f"least squares {cells['least squares']}")
        block.add_row(f"  {midpoint}", cells["midpoint"], f"fitted / midpoint {cells['reach']}")
        block.add_row("  exponent", cells["exponent"], "")
        block.add_row("  floor", cells["floor"], "")
        blocks += [Text(str(name), style="bold", overflow="fold"), block]
    fits = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum <= console.width
    console.print(table if fits else Group(*blocks))


def _parameter_cells(group: pd.DataFrame, decimals: int) -> dict[str, str]:
    row = {parameter: part.iloc[0] for parameter, part in group.groupby("parameter")}
    midpoint = row["midpoint"]
    return {
        "ceiling": interval(row["ceiling"], decimals),
        "verdict": row["ceiling"]["verdict"],
        "midpoint": f"{number(midpoint['q50'])} [{number(midpoint['q05'])}, {number(midpoint['q95'])}]",
        "reach": f"{midpoint['fitted_over_midpoint']:.1f}",
        "exponent": interval(row["exponent"], 2),
        "floor": interval(row["floor"], decimals),
        "least squares": number(row["ceiling"]["least_squares"]),
    }


def forecast_table(fit: Fit, forecast: pd.DataFrame) -> Table:
    """One line per name and compute."""
    quantity = {"curve": "true", "evaluation": "measured"}[forecast["quantity"].iloc[0]]
    metric = fit.runs.metric
    moves = {
        "excluded": "jumps and collapses not included",
        "averaged": f"averaged over curve families; second moves per decade of compute: {forecast['hazard'].iloc[0]}",
    }[forecast["transitions"].iloc[0]]
    table = Table(
        title=f"Forecast of the {quantity} {metric.kind} ({metric.split}) by {fit.runs.compute.unit}\nmedian [90 % equal-tailed interval]; {moves}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    pooled = forecast["independent"].notna().any()
    table.add_column(forecast["level"].iloc[0].replace("_", " "), overflow="fold", min_width=12)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("x fitted", justify="right", min_width=6)
    table.add_column("forecast", justify="right", no_wrap=True)
    table.add_column("least squares", justify="right", min_width=7)
    if pooled:
        table.add_column("recipes apart (mean)", justify="right", min_width=7)
    decimals = _decimals(fit)
    for _, row in forecast.iterrows():
        cells = [
            escape(row["name"]),
            compute(row["compute"]),
            f"{row['times_fitted']:.2f}",
            interval(row, decimals),
            _rounded(row["least_squares"], decimals),
        ]
        table.add_row(*cells, *([_rounded(row["independent"], decimals)] if pooled else []))
    return table


def print_warnings(console: Console, table: pd.DataFrame) -> None:
    """Print the warnings of a table: each once, with the names it holds for; of alike ones the first."""
    names: dict[str, list[str]] = {}
    shown: dict[tuple[str, str], str] = {}
    for name, cell in zip(table["name"], table["warning"], strict=True):
        for warning in filter(None, cell.split(WARNING_SEPARATOR)):
            kind = re.sub(r"[+-]?\d[\d.]*", "#", warning)
            text = shown.setdefault((name, kind), warning)
            if name not in names.setdefault(text, []):
                names[text].append(name)
    for warning, whose in names.items():
        listed = "all" if len(whose) > 1 and len(whose) == table["name"].nunique() else ", ".join(whose[:4])
        more = f" and {len(whose) - 4} more" if len(whose) > 4 and listed != "all" else ""
        console.print(f"[yellow]warning[/yellow] ({escape(listed)}{more}): {escape(warning)}")


def runs_table(runs: Runs) -> Table:
    """Runs as they were declared: evaluations, both axes, floor."""
    metric, unit = runs.metric, runs.compute.unit
    table = Table(
        title=f"y: {escape(metric.name)}, {metric.kind} on {metric.split}; x: {unit}, {escape(runs.compute.derivation)}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("run", "recipe", "evaluations", f"compute ({unit})", "at step 0", "first", "last"):
        table.add_column(
            heading, justify="left" if heading in ("run", "recipe") else "right", overflow="fold"
        )
    for name, own in runs.overall().groupby("run", sort=False):
        floor = runs.floors.get(str(name))
        first, last = own["compute"].iloc[0], own["compute"].iloc[-1]
        table.add_row(
            escape(str(name)),
            escape(runs.recipes[str(name)]),
            str(len(own)),
            f"{number(first)} to {number(last)}",
            "-" if floor is None else number(floor.value),
            number(own["value"].iloc[0]),
            number(own["value"].iloc[-1]),
        )
    return table


def print_receipts(console: Console, receipts: Sequence[Receipt], kept_in: str = "") -> None:
    """Say what became of the rows that were read; `kept_in` names the file that lists all sources."""
    for receipt in receipts[:_RECEIPTS_SHOWN]:
        dropped = "; ".join(f"{count:,} {reason}" for reason, count in receipt.dropped.items())
        console.print(
            f"{escape(receipt.source)} ({receipt.format}): {receipt.rows_read:,} rows read, {receipt.rows_kept:,} kept"
            + (f"; left out: {escape(dropped)}" if dropped else "")
        )
        for note in receipt.notes:
            console.print(f"  note: {escape(note)}")
    if len(receipts) > _RECEIPTS_SHOWN:
        listed = f", listed in {kept_in}" if kept_in else ""
        console.print(f"... and {len(receipts) - _RECEIPTS_SHOWN} more sources{listed}")


def print_undeclared(console: Console, runs: Runs) -> None:
    """Say what would sharpen the forecast if it were declared, and what contradicts what was."""
    if runs.metric.trials is None and runs.table["trials"].isna().all():
        console.print(
            "  note: the size of an evaluation is not declared, so its noise and a measured floor are known less well: "
            "--prompts and --samples, or --trials COLUMN"
        )
    below = (runs.metric.to_fraction(runs.table["value"]) < runs.metric.chance).mean()
    if below > 0.25:
        console.print(
            f"  note: {below:.0%} of the values lie below the declared chance of {runs.metric.chance:g}, which curves start from"
        )


def _decimals(fit: Fit) -> int:
    """Decimals that show a thousandth of the metric's scale."""
    zero, one = fit.runs.metric.scale
    return max(0, 3 - round(np.log10(abs(one - zero))))


def _rounded(value: float, decimals: int) -> str:
    return "-" if np.isnan(value) else f"{value:.{decimals}f}"
