"""Restarts, overlaps and interleaved launches: which rows are the run.

A log in which the step goes back holds several attempts at one run. By default the latest attempt wins: it
supersedes everything that earlier attempts logged at or after its first step, as a resumed trainer
overwrites what it does again. Nothing is decided silently: `describe` puts it into words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME


@dataclass(frozen=True)
class Attempt:
    """One launch of a run: rows logged, those kept, and the steps they cover."""

    first: float
    last: float
    rows: int
    kept: int
    first_kept: float
    last_kept: float


def number_attempts(
    step: np.ndarray,
    kind: np.ndarray,
    *,
    launch: np.ndarray | None = None,
    clock: np.ndarray | None = None,
) -> np.ndarray:
    """Number the attempts in a log, in the order in which they began.

    Parameters
    ----------
    step : ndarray of float
        Training step (or another counter that only grows within an attempt) of each row, in file order.
    kind : ndarray
        What kind of record a row is: two rows of different kinds may share a step (a training record and the
        evaluation after it), two of one kind may not.
    launch : ndarray, optional
        Identifier of the launch where the source tells launches apart.
    clock : ndarray of float, optional
        Time since the launch. Where it goes back, a new launch began; it also tells which of several launches
        writing to one file a row belongs to.

    Returns
    -------
    ndarray of int
        Attempt of each row, from 0.
    """
    n = len(step)
    launch = np.zeros(n, dtype=int) if launch is None else pd.factorize(launch)[0]
    clock = np.full(n, np.nan) if clock is None else clock
    # Fragments: rows in file order until the launch changes, the step repeats or the step or clock goes back.
    fragments: list[list[int]] = []
    open_fragment: dict[int, list[int]] = {}
    kinds: dict[int, set[object]] = {}  # of launch: kinds of record seen at its last step
    for i in range(n):
        fragment = open_fragment.get(launch[i])
        if fragment is not None:
            last = fragment[-1]
            goes_on = step[i] > step[last] or (step[i] == step[last] and kind[i] not in kinds[launch[i]])
            if goes_on and not clock[i] < clock[last]:
                kinds[launch[i]] = {kind[i]} | (kinds[launch[i]] if step[i] == step[last] else set())
                fragment.append(i)
                continue
        kinds[launch[i]] = {kind[i]}
        open_fragment[launch[i]] = fragment = [i]
        fragments.append(fragment)
    attempts = _untangle(fragments, step, launch, clock)
    numbers = np.empty(n, dtype=int)
    for number, rows in enumerate(attempts):
        numbers[rows] = number
    return numbers


def _untangle(
    fragments: list[list[int]], step: np.ndarray, launch: np.ndarray, clock: np.ndarray
) -> list[list[int]]:
    """Join the fragments of launches that wrote to one file at the same time.

    A fragment goes on with an earlier one when its first step is the very next one and its clock is later.
    This needs a clock that starts anew with each launch, seen in that it goes back; with any other clock a
    resumed run would look the same.
    """
    attempts: list[list[int]] = []
    strides = np.concatenate([np.diff(step[f]) for f in fragments] or [np.empty(0)])
    stride = np.median(strides[strides > 0]) if (strides > 0).any() else 1.0
    previous: int | None = None
    restarting_clock = False
    for fragment in fragments:
        head = fragment[0]
        restarting_clock |= previous is not None and clock[head] < clock[previous]
        fits = [
            a
            for a in attempts
            if restarting_clock
            and launch[a[-1]] == launch[head]
            and 0 < step[head] - step[a[-1]] <= stride
            and clock[head] >= clock[a[-1]]
        ]
        if fits:
            min(fits, key=lambda a: clock[head] - clock[a[-1]]).extend(fragment)
        else:
            attempts.append(list(fragment))
        previous = fragment[-1]
    return attempts


def keep_rows(step: np.ndarray, attempt: np.ndarray, rule: str = "latest") -> np.ndarray:
    """Return which rows are the run.

    ``"latest"``: an attempt supersedes all earlier ones from its first step on. ``"longest"``: the attempt
    with the most rows alone (the later one of two equals). ``"separate"``: all rows; each attempt is a run.
    """
    keep = np.ones(len(step), dtype=bool)
    count = int(attempt.max()) + 1 if len(attempt) else 0
    if rule == "longest" and count > 1:
        rows = np.bincount(attempt, minlength=count)
        keep = attempt == count - 1 - int(np.argmax(rows[::-1]))
    elif rule == "latest":
        cutoff = np.inf
        for number in range(count - 1, -1, -1):
            mine = attempt == number
            keep[mine] = step[mine] < cutoff
            cutoff = min(cutoff, step[mine].min())
    return keep


def summarise(step: np.ndarray, attempt: np.ndarray, keep: np.ndarray) -> list[Attempt]:
    """Describe each attempt."""
    attempts = []
    for number in range(int(attempt.max()) + 1 if len(attempt) else 0):
        mine = attempt == number
        kept = step[mine & keep]
        ends = (float(kept.min()), float(kept.max())) if len(kept) else (np.nan, np.nan)
        attempts.append(
            Attempt(float(step[mine].min()), float(step[mine].max()), int(mine.sum()), len(kept), *ends)
        )
    return attempts


def describe(run: str, attempts: list[Attempt], rule: str, axis: str = "step") -> str:
    """Say what was found and decided, in one sentence; empty if there is nothing to say."""
    if len(attempts) < 2:
        return ""
    shown = attempts if len(attempts) <= 8 else [*attempts[:3], *attempts[-4:]]
    parts = [f"{a.first:g}-{a.last:g} ({_kept(a)})" for a in shown]
    if shown is not attempts:
        parts.insert(3, f"... {len(attempts) - 7} more ...")
    lost = sum(a.rows - a.kept for a in attempts)
    decided = {
        "latest": f"a later attempt supersedes earlier ones from its first {axis} on: {lost} rows superseded",
        "longest": f"only the attempt with the most rows is kept: {lost} rows left out",
        "separate": "each is read as a run of its own",
    }[rule]
    others = " or ".join(f'"{r}"' for r in ("latest", "longest", "separate") if r != rule)
    return (
        f"run {run}: {len(attempts)} attempts, {axis} {', '.join(parts)}; {decided} "
        f"(attempts = {others} decides otherwise)"
    )


def _kept(attempt: Attempt) -> str:
    if attempt.kept == attempt.rows:
        return "kept"
    if not attempt.kept:
        return "left out"
    return f"kept {attempt.first_kept:g}-{attempt.last_kept:g}"


def fingerprints(records: pd.DataFrame) -> list[int]:
    """Return one number per row that is equal for rows logged with the same content, wherever they stand."""
    columns = [c for c in records.columns if c not in (SOURCE_ROW, LAUNCH, TIME)]
    cells = [(c, records[c].tolist(), records[c].notna().tolist()) for c in columns]
    return [hash(tuple((c, str(v[i])) for c, v, filled in cells if filled[i])) for i in range(len(records))]


def repeated_attempts(attempt: np.ndarray, prints: list[int]) -> dict[int, int]:
    """Return attempt -> attempt that holds a copy of all its rows (the first of two equals stays)."""
    rows = [
        {p for p, a in zip(prints, attempt, strict=True) if a == n} for n in range(int(attempt.max()) + 1)
    ]
    repeated: dict[int, int] = {}
    for number, mine in enumerate(rows):
        for other, theirs in enumerate(rows):
            contained = mine < theirs or (mine == theirs and other < number)
            if other != number and other not in repeated and contained:
                repeated[number] = other
                break
    return repeated


def same_evaluation(a: float, b: float) -> bool:
    """Whether two values are one number, at most rounded differently (to two decimals or more)."""
    if a == b:
        return True
    short = min(a, b, key=lambda v: len(repr(float(v))))
    decimals = len(repr(float(short)).partition(".")[2])
    # A value that rounds to zero is told by its size: 0.0 and 0.004 are two evaluations of a run that begins.
    close = abs(a - b) <= 0.05 * abs(short)
    return close and abs(a - b) <= 0.5 * 10.0 ** -max(decimals, 2) * (1 + 1e-9)
