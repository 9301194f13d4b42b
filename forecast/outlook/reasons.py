"""Why a flag stands as it does, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forecast.outlook.precursors import Precursor
from forecast.outlook.readings import MINIMUM, STATES
from forecast.outlook.strata import StratumFlag

if TYPE_CHECKING:
    import pandas as pd

    from forecast.outlook.transitions import Latched

MOVE_NAMES = {"rise": "a second rise", "collapse": "a collapse"}
_FADED = {
    "rise": "a rise that is over looks like one late curve",
    "collapse": "of a fall that stopped or recovered the evidence fades",
}


def run_reason(
    row: Mapping[str, Any],
    state: Latched,
    strata: Sequence[tuple[float, StratumFlag]],
    precursors: Sequence[Precursor],
) -> str:
    """One paragraph on a run: its state, what today's evidence says, prompt classes, precursors."""
    sentences = [_state_text(row, state)]
    if strata:
        sentences.append(max(strata, key=lambda one: (STATES.index(one[1].state), one[0]))[1].sentence)
    sentences += [one.sentence for one in precursors if one.fired]
    return " ".join(text if text.endswith(".") else f"{text}." for text in sentences if text)


def recipe_reason(row: Mapping[str, Any], own: pd.DataFrame) -> str:
    """Sentences on a recipe: the sum of its runs' evidence, and which of them were flagged."""
    n = len(own)
    together = f"log Bayes factors summed over {n} runs: {_factors(row)}"
    if row["state"] == STATES[0]:
        text = f"No common second move ({together})"
    elif row["now"] == row["state"]:
        text = f"{MOVE_NAMES[row['kind']].capitalize()} in all runs together ({together})"
    else:
        same = int((own["kind"] == row["kind"]).sum())
        text = f"{same} of {n} runs have been flagged for {MOVE_NAMES[row['kind']]} ({together})"
    flagged = [
        f"{one['run']} {one['state']} ({one['kind']})" for _, one in own[own["state"] != STATES[0]].iterrows()
    ]
    return f"{text}. Flagged: {', '.join(flagged) or 'none'}."


def _state_text(row: Mapping[str, Any], state: Latched) -> str:
    n, unit = row["evaluations"], row["unit"]
    ahead = (
        f"{row['p_ahead']:.0%} that one begins before {_compute(row['horizon'])} {unit} is the hazard's say"
    )
    if n < MINIMUM:
        return f"Only {n} evaluations, at least {MINIMUM} are needed to look for a second move; {ahead}"
    if state.state == STATES[0]:
        return (
            f"No sign of a second move in {n} evaluations (log Bayes factors: {_factors(row)}). Before one begins no "
            f"curve announces it: {ahead}"
        )
    if row["kind"] == "collapse" and row["lost"]:
        return f"A collapse: each of the last three evaluations has lost half of the gain or more (flagged at {_compute(state.since)} {unit})"
    seen = "" if state.state == STATES[2] else "Suspected: "
    what = f"{seen}{MOVE_NAMES[state.kind]}, flagged at {_compute(state.since)} {unit}"
    what = what[0].upper() + what[1:]
    if state.by == "strata" and row["now"] == STATES[0]:
        return (
            f"{what} by prompt classes; the mean curve does not show it (log Bayes factors: {_factors(row)})"
        )
    evidence = f"log Bayes factors {_factors(row)}, probability that it has begun {row['p_onset']:.2f}"
    if STATES.index(row["now"]) < STATES.index(state.state):
        return f"{what}. Today's evidence alone says {row['now']} ({evidence}); the flag stays, as {_FADED[state.kind]}"
    return f"{what}: {evidence}"


def _compute(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.4g}"


def _factors(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{kind} {row[f'log_bf_{kind}']:+.1f} ± {row[f'log_bf_{kind}_se']:.1f}" for kind in MOVE_NAMES
    )
