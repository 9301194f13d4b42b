"""How flags are shown: a table, a paragraph per flag, a line per change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from forecast.errors import printable
from forecast.outlook.readings import STATES
from forecast.terminal import compute

if TYPE_CHECKING:
    import pandas as pd

_STYLES = {"prior_only": "", "watch": "yellow", "alarm": "bold red"}
_SHOWN = 12


def transitions_table(table: pd.DataFrame) -> Table:
    """One line per run and per recipe."""
    unit, hazard = table["unit"].iloc[0], table["hazard"].iloc[0]
    shown = Table(
        title=f"Second moves: state, and log Bayes factors (nats ± Monte-Carlo s.e.) against smooth curves\nhazard per decade of compute: {hazard}; compute in {unit}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    strata, signs = (bool(table[name].ne("").any()) for name in ("stratum", "precursors"))
    shown.add_column("run", overflow="fold", min_width=10)
    for heading in ("state", "since", "has begun", "begins by", "rise", "collapse", "CUSUM"):
        shown.add_column(heading, justify="left" if heading == "state" else "right", no_wrap=True)
    if strata:
        shown.add_column("prompt classes")
    if signs:
        shown.add_column("precursors")
    for _, row in table.iterrows():
        state = _state(row["state"], row["kind"])
        name = row["run"] if row["level"] == "run" else f"recipe {row['run']}"
        cells: list[str | Text] = [
            escape(name),
            Text(state, style=_STYLES[row["state"]]),
            _blank(row["since"], compute(row["since"])),
            _blank(row["p_onset"], f"{row['p_onset']:.2f}"),
            f"{row['p_ahead']:.2f} by {compute(row['horizon'])}",
            *(
                _blank(
                    row[f"log_bf_{kind}"], f"{row[f'log_bf_{kind}']:+.1f} ± {row[f'log_bf_{kind}_se']:.1f}"
                )
                for kind in ("rise", "collapse")
            ),
            _blank(row["cusum"], f"{row['cusum']:+.1f}"),
        ]
        shown.add_row(*cells, *([row["stratum"] or "-"] * strata), *([row["precursors"] or "-"] * signs))
    return shown


def print_reasons(console: Console, table: pd.DataFrame) -> None:
    """Print why: every flag, and what most of the others have in common once."""
    flagged = table[(table["state"] != STATES[0]) | table["precursors"].ne("")]
    for _, row in flagged.head(_SHOWN).iterrows():
        name = row["run"] if row["level"] == "run" else f"recipe {row['run']}"
        console.print(
            Text(f"{printable(name)}: ", style="bold").append(
                printable(f"{_state(row['state'], row['kind'])}. {row['reason']}"), style="not bold"
            )
        )
    if len(flagged) > _SHOWN:
        console.print(f"... and {len(flagged) - _SHOWN} more flags; --format json has every reason")
    quiet = table[(table["state"] == STATES[0]) & (table["level"] == "run")]
    if len(quiet):
        console.print(
            f"{len(quiet)} runs without a flag. Before a move begins no curve announces it: what lies ahead is the hazard's."
        )


def changed_lines(table: pd.DataFrame, shown: dict[tuple[str, str], tuple[str, str]]) -> Iterator[str]:
    """Give a line for every state that is new, and remember it in `shown`."""
    for _, row in table.iterrows():
        key, state = (row["level"], row["run"]), (row["state"], row["kind"])
        if shown.get(key) == state:
            continue
        before = shown.get(key)
        shown[key] = state
        name = row["run"] if row["level"] == "run" else f"recipe {row['run']}"
        change = f"{_state(*before)} -> {_state(*state)}" if before else _state(*state)
        yield f"{printable(name)} at {compute(row['compute'])} {row['unit']}: {change}. {printable(row['reason'])}"


def _state(state: str, kind: str) -> str:
    return state if kind == "none" else f"{state} ({kind})"


def _blank(value: float, text: str) -> str:
    return "-" if np.isnan(value) else text
