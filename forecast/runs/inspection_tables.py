"""The tables that ``rlforecast inspect`` prints."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from forecast.runs.inspection import CandidateY, Inspection

if TYPE_CHECKING:
    from rich.console import Console


def render(inspection: Inspection, console: Console) -> None:
    """Print an inspection as tables: sources, candidate axes, and what should be read before going on."""
    from rich.markup import escape
    from rich.table import Table

    def table(title: str, *headings: str) -> Table:
        made = Table(title=title, title_justify="left", pad_edge=False, show_edge=False)
        for heading in headings:
            made.add_column(heading, overflow="fold")
        return made

    paths = [source.source for source in inspection.sources]
    root = os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in paths])
    shown = {p: os.path.relpath(p, root) for p in paths}
    sources = table(
        f"Sources in {escape(root)}",
        "source",
        "format",
        "rows",
        "kept",
        "run",
        "evals",
        "compute",
        "value",
    )
    for source in inspection.sources:
        counts = (str(source.receipt["rows_read"]), str(source.receipt["rows_kept"]))
        head = (escape(shown[source.source]), source.format, *counts)
        if not source.runs:
            problem = source.problem.removeprefix(f"{source.source}: ")
            sources.add_row(*head, escape(problem), "", "", "")
        for run in source.runs:
            span = f"{run.compute[0]:.4g} to {run.compute[1]:.4g} {source.unit}"
            floor = "" if run.floor is None else f"{run.floor:.4g} at 0, "
            value = f"{floor}{run.first:.4g} to {run.last:.4g}"
            sources.add_row(*head, escape(run.name), str(run.evaluations), span, value)
            head = ("", "", "", "")
    console.print(sources)
    ys: dict[str, list[CandidateY]] = {}
    for source in inspection.sources:
        for y in source.y:
            ys.setdefault(y.name, []).append(y)
    outcomes = table(
        "Candidates for y (--metric)", "column", "logs", "values", "range", "kind", "split", "why not"
    )
    for name, some in ys.items():
        values = f"{min(y.low for y in some):.4g} to {max(y.high for y in some):.4g}"
        why = "; ".join(dict.fromkeys(y.why_not for y in some if y.why_not))
        count, total = str(len(some)), str(sum(y.values for y in some))
        outcomes.add_row(escape(name), count, total, values, some[0].kind, some[0].split or "not named", why)
    console.print(outcomes)
    xs = table("Candidates for x (--compute)", "column", "logs", "unit", "nature", "range")
    for name in dict.fromkeys(x.name for s in inspection.sources for x in s.x):
        same = [x for s in inspection.sources for x in s.x if x.name == name]
        nature = ", ".join(dict.fromkeys(x.nature for x in same))
        span = f"{min(x.low for x in same):.4g} to {max(x.high for x in same):.4g}"
        xs.add_row(escape(name), str(len(same)), same[0].unit or "?", nature, span)
    console.print(xs)
    said: dict[str, list[str]] = {}
    for source in inspection.sources:
        notes = [f"left out: {n} rows, {reason}" for reason, n in source.receipt["dropped"].items()]
        notes += [n for n in source.receipt["notes"] if " attempts, " not in n] + source.warnings
        for note in notes:
            said.setdefault(note, []).append(shown[source.source])
    for note, where in said.items():
        of = where[0] if len(where) == 1 else f"{len(where)} logs"
        console.print(f"[bold]{escape(of)}[/bold]: {escape(note)}")
    for path, reason in inspection.skipped.items():
        console.print(f"skipped {escape(path)}: {escape(reason)}", style="yellow")
