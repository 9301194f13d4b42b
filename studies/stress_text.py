"""What a stress test says: the table for a terminal, sentences and Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forecast.report.words import compute_text, unit_name
from studies.backtest_rows import shown

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from forecast.runs.table import Runs
    from studies.stress import Stress

HEADINGS = (
    ("scenario", ""),
    ("truth", "in 90 %"),
    ("truth", "in 95 %"),
    ("logged", "in 90 %"),
    ("width", "of 90 %"),
    ("bias of", "median"),
    ("flagged", ""),
    ("delay", ""),
    ("false", "alarm"),
    ("wrong", "decision"),
    ("regret", ""),
)
"""Columns of the short table, in two lines each."""

TITLE = "At the horizon, transitions excluded / averaged; delay: compute at the alarm / compute at a tenth of the move"


def cells(row: pd.Series, span: float) -> list[str]:
    """One scenario as text, in the order of `HEADINGS`; `span` is the length of the metric's scale."""
    small = f".{max(0, 3 - round(np.log10(span)))}f"
    return [
        str(row["scenario"]),
        _pair(row, "curve_90", ".2f"),
        _pair(row, "curve_95", ".2f"),
        _pair(row, "evaluation_90", ".2f"),
        _pair(row, "width_90", small),
        _pair(row, "bias", f"+{small}"),
        shown(row["detected"], ".2f"),
        shown(row["delay"], ".2f"),
        shown(row["false_alarm"], ".2f"),
        _pair(row, "wrong", ".2f"),
        _pair(row, "regret", small),
    ]


def _pair(row: pd.Series, column: str, form: str) -> str:
    return " / ".join(shown(row[f"{column}_{t}"], form) for t in ("excluded", "averaged"))


def stress_table(result: Stress, runs: Runs) -> Table:
    """One line per scenario."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=TITLE, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for heading, below in HEADINGS:
        table.add_column(
            f"{heading}\n{below}", justify="left" if heading == "scenario" else "right", no_wrap=True
        )
    for _, row in result.table.iterrows():
        table.add_row(*cells(row, _span(runs)))
    return table


def sentences(result: Stress, runs: Runs) -> list[str]:
    """What the table does not say by itself: what was put to the test, what was decided, what nothing shows."""
    table, each = result.table, result.runs
    unit = unit_name(runs.compute)
    left_out = f", of {len(each) + result.left_out} in the fit" if result.left_out else ""
    said = [
        f"{_count(len(each), 'run')}{left_out}; per scenario {int(table['worlds'].iloc[0])} worlds, "
        f"{int(table['watched'].max())} of them watched for flags. The past of every world is the real log, its future a "
        "curve of the posterior: coverage under `smooth` is right by construction, a check of the band's arithmetic."
    ]
    said += [_decision(row, unit, runs.compute.price_per_unit, _span(runs)) for _, row in each.iterrows()]
    if (each["pays_excluded"] == each["pays_averaged"]).all():
        said.append(
            "Both forecasts decide alike for every run: averaging over transitions changes the bands here, not the decisions."
        )
    rows = {str(row["scenario"]): row for _, row in table.iterrows()}
    if "collapse" in rows and rows["collapse"]["watched"] > 0:
        saved, money = (float(rows["collapse"][column]) for column in ("compute_saved", "money_saved"))
        said.append(
            f"In `collapse`, stopping at the alarm would have saved {compute_text(saved)} {unit}"
            + (f" ({money:,.0f} in money)" if np.isfinite(money) else "")
            + f" of {compute_text(float((each['horizon'] - each['compute']).mean()))} per run on average."
        )
    if "reward_hacking" in rows:
        said.append(
            "In `reward_hacking` the logged metric follows the smooth curve while the true pass rate falls: nothing in the "
            "log can show it, no flag is due, and an alarm there is a false one. Only another verifier or other prompts tell."
        )
    said += [
        f"{row['run']} is in alarm for a {row['alarm']} already: its worlds were not watched."
        for _, row in each.iterrows()
        if row["alarm"]
    ]
    return said


def _decision(row: pd.Series, unit: str, price: float | None, span: float) -> str:
    small = f".{max(0, 3 - round(np.log10(span)))}f"
    more = row["horizon"] - row["compute"]
    money = f" ({more * price:,.0f} in money)" if price is not None else ""
    answer = {t: "pay" if row[f"pays_{t}"] else "stop" for t in ("excluded", "averaged")}
    return (
        f"{row['run']}: {compute_text(more)} {unit}{money} more, up to {compute_text(row['horizon'])}, are worth a gain of "
        f"{row['worth']:{small}}. The single sigmoid forecasts {row['gain_excluded']:+{small}} ({answer['excluded']}), the "
        f"averaged forecast {row['gain_averaged']:+{small}} ({answer['averaged']})."
    )


def markdown(result: Stress, runs: Runs) -> str:
    """Sentences, the short table, and the scenarios with their sizes."""
    head = "| " + " | ".join(f"{top} {below}".strip() for top, below in HEADINGS) + " |"
    rule = "|" + "---|" * len(HEADINGS)
    lines = ["| " + " | ".join(cells(row, _span(runs))) + " |" for _, row in result.table.iterrows()]
    listed = [f"- `{name}`: {scenario.what}{_sizes(scenario)}" for name, scenario in result.scenarios.items()]
    said = "\n".join(f"- {sentence}" for sentence in sentences(result, runs))
    return (
        f"{said}\n\n"
        + "\n".join([head, rule, *lines])
        + "\n\nScenarios (compute in units of what the run has used):\n\n"
        + "\n".join(listed)
        + "\n\nSingle: one sigmoid, transitions excluded. Averaged: over curve families and possible transitions. Standard "
        "errors, runs counted as clusters, are in the table's file. A decision is wrong where the true gain is on the other "
        "side of what the compute is worth; regret is by how much, 0 where right."
    )


def _sizes(scenario: Any) -> str:
    from dataclasses import asdict

    def text(value: Any) -> str:
        return " to ".join(f"{one:g}" for one in value) if isinstance(value, tuple) else f"{value:g}"

    return "".join(f", {name} {text(value)}" for name, value in asdict(scenario).items())


def _span(runs: Runs) -> float:
    zero, one = runs.metric.scale
    return float(abs(one - zero))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
