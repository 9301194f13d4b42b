"""How comparisons and decisions are shown in a terminal: sentences first, then tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from forecast.report.sentences import comparison_sentence, decision_sentences
from forecast.report.words import MISSING, compute_text, money_text, probability_text, value_text

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.outlook.budget import Decision

_SENTENCES, _WIDEST = 12, 1000


def print_comparison(console: Console, fit: Fit, table: pd.DataFrame) -> None:
    """Print what can be told apart in words, then one line per pair."""
    metric = fit.runs.metric
    decided = table[table["verdict"] != "not decided"]
    shown = decided if len(table) > _SENTENCES else table
    for _, row in shown.head(_SENTENCES).iterrows():
        console.print(Text(comparison_sentence(row, metric)))
    if len(shown) < len(table):
        rest = len(table) - len(shown)
        console.print(f"{rest} of {len(table)} pairs are not decided.", highlight=False)
    lines = Table(
        title=f"Second against first: median [90 % equal-tailed interval], {metric.kind} on {metric.split}; compute in {fit.runs.compute.unit}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    lines.add_column("first", overflow="fold", min_width=8)
    lines.add_column("second", overflow="fold", min_width=8)
    for heading in (
        "ceiling higher by",
        "P(higher)",
        "P(within)",
        "speed",
        "P(faster)",
        "exponent ratio",
        "P(crossing)",
        "at",
    ):
        lines.add_column(heading, justify="right")
    lines.add_column("verdict")
    for _, row in table.iterrows():
        lines.add_row(
            escape(_with_model(row, "first")),
            escape(_with_model(row, "second")),
            f"{value_text(row['difference_q50'], metric, signed=True)} "
            f"[{value_text(row['difference_q05'], metric, signed=True)}, {value_text(row['difference_q95'], metric, signed=True)}]",
            probability_text(row["p_higher"]),
            probability_text(row["p_within"]),
            _ratio(row, "speed"),
            probability_text(row["p_faster"]),
            _ratio(row, "efficiency"),
            probability_text(row["p_crossing"]),
            compute_text(row["crossing"]),
            row["verdict"],
        )
    _print_table(console, lines)


def _fits(console: Console, table: Table) -> bool:
    """Whether a table can be shown without cutting a number."""
    wide = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    return wide <= console.width


def _with_model(row: pd.Series, which: str) -> str:
    models = {row["first_model"], row["second_model"]}
    return f"{row[which]} ({row[f'{which}_model']})" if len(models) > 1 else str(row[which])


def _ratio(row: pd.Series, name: str) -> str:
    if pd.isna(row[f"{name}_q50"]):
        return MISSING
    return f"{row[f'{name}_q50']:.2f} [{row[f'{name}_q05']:.2f}, {row[f'{name}_q95']:.2f}]"


def print_decision(console: Console, decision: Decision) -> None:
    """Print per budget what to choose and why, then all options."""
    metric = decision.metric
    for (headline, details), size in zip(
        decision_sentences(decision), decision.choices["budget"], strict=True
    ):
        console.print(Text(headline, style="bold"))
        for sentence in details:
            console.print(Text(f"  {sentence}"))
        own = decision.options[decision.options["budget"] == size]
        _print_table(console, _options_table(decision, own))
    if decision.target is not None:
        _print_table(console, _targets_table(decision))
    moves = (
        f"transitions averaged, hazard per decade of compute {decision.hazard}"
        if decision.hazard
        else "transitions excluded: jumps and collapses beyond the data are not in these numbers"
    )
    console.print(
        f"{metric.kind} on {metric.split}; intervals are 90 %, equal-tailed; {moves}", soft_wrap=True
    )
    if metric.caveat:
        console.print(f"note: {metric.caveat}", soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    """Print a table, or one block per row where it is too wide: numbers are never cut."""
    if _fits(console, table):
        console.print(table)
        return
    if table.title:
        console.print(table.title)
    headings = [str(column.header) for column in table.columns]
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        console.print(Text.from_markup(str(cells[0]), style="bold"), overflow="fold")
        for heading, cell in zip(headings[1:], cells[1:], strict=True):
            console.print(Text(f"  {heading}: {cell}"), overflow="fold")
    console.print()


def _options_table(decision: Decision, own: pd.DataFrame) -> Table:
    metric = decision.metric
    priced, target = own["cost"].notna().any(), decision.target is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("option", overflow="fold", min_width=12)
    headings = [f"to spend ({decision.unit})", *(["money"] if priced else []), "x fitted", "value", "gain"]
    headings += [*(["P(target)"] if target else []), "P(best)", "regret", "next +10 %"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for _, row in own.sort_values("regret", kind="stable").iterrows():
        cells = [
            compute_text(row["extra"]) if row["extra"] else "0",
            *([money_text(row["cost"])] if priced else []),
            f"{row['times_fitted']:.2f}",
            f"{value_text(row['q50'], metric)} [{value_text(row['q05'], metric)}, {value_text(row['q95'], metric)}]",
            f"{value_text(row['gain_q50'], metric, signed=True)} "
            f"[{value_text(row['gain_q05'], metric, signed=True)}, {value_text(row['gain_q95'], metric, signed=True)}]",
            *([probability_text(row["p_target"])] if target else []),
            probability_text(row["p_best"]),
            value_text(row["regret"], metric),
            value_text(row["gain_per_unit"] * row["extra"] * 0.1, metric, signed=True),
        ]
        table.add_row(escape(row["option"]), *cells)
    return table


def _targets_table(decision: Decision) -> Table:
    metric = decision.metric
    assert decision.target is not None
    table = Table(
        title=f"Compute in all to {value_text(decision.target, metric)}, in {decision.unit}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("option", overflow="fold", min_width=12)
    priced = decision.targets["cost_q50"].notna().any()
    headings = (f"P(not by {compute_text(decision.horizon)})", "if it is reached", "more to spend (median)")
    for heading in (*headings, *(["money"] if priced else [])):
        table.add_column(heading, justify="right")
    for _, row in decision.targets.iterrows():
        table.add_row(
            escape(row["option"]),
            probability_text(row["p_never"]),
            MISSING
            if pd.isna(row["q50"])
            else f"{compute_text(row['q50'])} [{compute_text(row['q05'])}, {compute_text(row['q95'])}]",
            compute_text(row["extra_q50"]),
            *([money_text(row["cost_q50"])] if priced else []),
        )
    return table
