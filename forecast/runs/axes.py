"""The compute axis: from what was logged to compute that is cumulative in one unit."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs import columns
from forecast.runs.spec import ComputeSpec

RECORD = "#"
"""Stands for the number of the evaluation (1, 2, 3, ...) where nothing else was logged."""


@dataclass(frozen=True)
class Choice:
    """Which columns are the x-axis, in which unit, and what a person should know about the choice."""

    columns: tuple[str, ...]
    unit: str
    note: str = ""


def choose(records: pd.DataFrame, step: str | None, spec: ComputeSpec, where: object) -> Choice:
    """Choose the compute columns: those declared, else the one clear candidate, else the step.

    Raises
    ------
    InputError
        If there is no candidate or more than one, if the unit is unknown, or if the column's name is another
        unit than the one declared.
    """
    if spec.column is not None:
        named = tuple(step if c not in records and step and columns.is_step(c) else c for c in spec.column)
        for column in named:
            if column != RECORD and column not in records:
                raise columns.no_column(column, records, where)
        return Choice(named, _unit(named, step, spec, where))
    found = candidates(records)
    if len(found) > 1:
        raise InputError(
            "several columns may be the compute axis",
            where=where,
            found=", ".join(found),
            fix="choose one with --compute COLUMN ([compute] column)",
        )
    if found:
        chosen = (found[0],)
        note = f"compute: {found[0]!r} taken, the only column named as cumulative compute"
    elif step is not None:
        chosen = (step,)
        note = f"compute: no column of compute, training steps ({step!r}) taken"
    else:
        listed = []
        for column in (str(c) for c in records.columns if not str(c).startswith("__")):
            is_unit = columns.unit_of(column) is not None
            text = is_unit and not pd.api.types.is_numeric_dtype(records[column])
            listed.append(
                f"{column} (text)" if text else f"{column} (zero throughout)" if is_unit else column
            )
        raise InputError(
            "no compute column and no step column",
            where=where,
            found=", ".join(listed),
            fix="name the compute column (--compute COLUMN; '#' is the number of the evaluation)",
        )
    return Choice(chosen, _unit(chosen, step, spec, where), note)


def candidates(records: pd.DataFrame) -> list[str]:
    """Return the columns that are named as cumulative compute and are not zero throughout."""
    found = []
    for column in map(str, records.columns):
        if columns.unit_of(column) in (None, "steps") or not pd.api.types.is_numeric_dtype(records[column]):
            continue
        values = records[column].dropna().to_numpy(dtype=float)
        if len(values) and values.max() > 0:
            found.append(column)
    return found


def _unit(chosen: tuple[str, ...], step: str | None, spec: ComputeSpec, where: object) -> str:
    named = {"steps" if c == step else columns.unit_of(c) for c in chosen} - {None}
    if len(named) > 1:
        raise InputError(
            "columns of different units cannot be added up", where=where, found=", ".join(chosen)
        )
    name = named.pop() if named else None
    if spec.unit is None:
        if name is None or (spec.times != 1 and name != "steps"):
            raise InputError(
                f"unit of compute {'+'.join(chosen)!r} is not known",
                where=where,
                expected="gpu_hours | flops | tokens | rollouts | steps",
                fix="declare it: --compute-unit UNIT ([compute] unit)",
            )
        return name
    if spec.times == 1 and name not in (None, "steps", spec.unit):
        raise InputError(
            f"column {'+'.join(chosen)!r} is in {name}",
            where=where,
            expected=f"{spec.unit}, as declared",
            fix=f"declare --compute-unit {name}, or the factor with --times",
        )
    return spec.unit


def logged(records: pd.DataFrame, chosen: Choice, spec: ComputeSpec, where: object) -> np.ndarray:
    """Return the chosen columns, added up; NaN where the axis was not logged (or is no finite number)."""
    parts = [columns.finite(records, c, where) for c in chosen.columns if c != RECORD]
    if not parts:
        return np.full(len(records), np.nan)
    stacked = np.vstack(parts)
    if spec.cumulate:  # a part that was not logged in this record adds nothing
        return np.where(np.isnan(stacked).all(axis=0), np.nan, np.nansum(stacked, axis=0))
    return stacked.sum(axis=0)


def derivation(chosen: Choice, spec: ComputeSpec) -> str:
    """Say in words how compute was obtained."""
    what = " + ".join(chosen.columns)
    if what == RECORD:
        text = "number of the evaluation"
    else:
        text = f"sum of {what} over the run" if spec.cumulate else f"{what} as logged"
    if spec.times != 1:
        text += f" x {spec.times:g}"
    if spec.offset:
        text += f" {'+' if spec.offset > 0 else '-'} {abs(spec.offset):g}"
    return text


def nature(values: np.ndarray, step: np.ndarray | None = None) -> str:
    """Tell a cumulative counter from one logged per step.

    Returns
    -------
    str
        ``"cumulative"``, ``"resets"`` (cumulative within each of a few long segments), ``"per step"``,
        ``"constant"`` or ``"unknown"`` (fewer than two values).
    """
    known = np.isfinite(values)
    v = values[known]
    if len(v) < 2:
        return "unknown"
    if v.min() == v.max():
        return "constant"
    falls = np.flatnonzero(np.diff(v) < 0)
    if not len(falls):
        if step is not None and v[0] > 0:
            s = step[known]
            # A total that does not even double while the step grows eightfold is no total.
            if v[-1] < 2 * v[0] and len(v) >= 4 and s[-1] - s[0] >= 8 * max(s[0], np.diff(s).min()):
                return "per step"
        return "cumulative"
    # A total that starts anew falls far, and seldom.
    if len(v) >= 5 * (len(falls) + 1) and (v[falls + 1] <= 0.5 * v[falls]).all():
        return "resets"
    return "per step"


def cumulative(
    values: np.ndarray,
    step: np.ndarray,
    attempt: np.ndarray,
    spec: ComputeSpec,
    *,
    evaluated: np.ndarray,
    name: str,
    where: object,
) -> tuple[np.ndarray, list[str]]:
    """Turn what was logged into cumulative compute.

    Parameters
    ----------
    values : ndarray
        Logged compute of the rows kept of one run, in order of step; NaN where missing.
    step, attempt : ndarray
        Step (or order) and attempt of these rows.
    spec : ComputeSpec
        What was declared.
    evaluated : ndarray of bool
        Rows that hold an evaluation.
    name : str
        Column name, for messages.
    where : object
        File and run, for messages.

    Returns
    -------
    compute : ndarray
        In the declared unit, NaN where it cannot be known.
    notes : list of str
        What a person should read.

    Raises
    ------
    InputError
        If the column is not what it was declared to be.
    """
    if not np.isfinite(values).any():
        raise InputError(
            f"compute column {name!r} is empty", where=where, fix="choose another --compute COLUMN"
        )
    if (
        np.nanmin(values) > 1e8
        and re.search("time|date|stamp", name.lower())
        and not (spec.cumulate or spec.offset)
    ):
        raise InputError(
            f"compute column {name!r} is a time of day, not compute spent",
            where=where,
            found=f"{np.nanmin(values):.10g} onwards",
            fix="choose elapsed time, or set [compute] offset to minus the start of the run (in the unit)",
        )
    if spec.cumulate:
        total, notes = _summed(values, step, name, where)
    else:
        total, notes = _chained(values, step, attempt, evaluated, name, where)
    return total * spec.times + spec.offset, notes


def _summed(values: np.ndarray, step: np.ndarray, name: str, where: object) -> tuple[np.ndarray, list[str]]:
    notes = []
    known = np.isfinite(values)
    v, s = values[known], step[known]
    span = len(v) >= 5 and s[-1] > s[0]
    if span and (np.diff(v) >= 0).all() and v[-1] > max(5 * v[0], 0) and np.corrcoef(v, s)[0, 1] > 0.99:
        raise InputError(
            f"compute column {name!r} looks cumulative already",
            where=where,
            found=f"{v[0]:g} growing steadily to {v[-1]:g}",
            expected="a value per step",
            fix="leave out --cumulate (cumulate = false)",
        )
    stride = np.diff(np.unique(s))
    if len(stride) and np.median(stride) > 1:
        notes.append(
            f"{name!r} is logged every {np.median(stride):g} steps: its sum covers the logged steps alone "
            "(declare the factor with times if a value stands for one step)"
        )
    total = np.cumsum(np.where(known, values, 0.0))
    # An evaluation at a step has seen all that was spent on this step, in whatever order it was written.
    last_of_step = np.searchsorted(step, step, side="right") - 1
    return total[last_of_step], notes


def _chained(
    values: np.ndarray,
    step: np.ndarray,
    attempt: np.ndarray,
    evaluated: np.ndarray,
    name: str,
    where: object,
) -> tuple[np.ndarray, list[str]]:
    """Check that a counter is cumulative; go on from the last value where it starts anew at a restart."""
    notes: list[str] = []
    known = np.flatnonzero(np.isfinite(values))
    v, a = values[known], attempt[known]
    attempts = [a == n for n in np.unique(a)]
    kinds = {nature(v[one], step[known][one]) for one in attempts}
    # Attempts that each stay at one step are constant whatever the counter is.
    told = v[-1] <= v[0] or any(np.ptp(step[known][one]) > 0 for one in attempts)
    flat = kinds == {"constant"} and step[known][-1] > step[known][0] and told
    if "per step" in kinds or flat:
        if (np.diff(v) < 0).any():
            found = f"values {v.min():g} to {v.max():g} that go up and down"
        else:
            found = (
                f"{v[0]:g} to {v[-1]:g} while the step goes from {step[known][0]:g} to {step[known][-1]:g}"
            )
        raise InputError(
            f"compute column {name!r} is not cumulative",
            where=where,
            found=found,
            expected="a total that grows with the run",
            fix="add --cumulate (cumulate = true) if it is logged per step",
        )
    chained, carried, resets = v.copy(), 0.0, []
    for i in range(1, len(v)):
        if v[i] < v[i - 1]:
            carried += v[i - 1]
            resets.append(step[known][i])
        chained[i] = v[i] + carried
    if resets:
        at = ", ".join(f"{s:g}" for s in resets[:6])
        notes.append(
            f"{name!r} starts anew at step {at}: the segments are chained, each going on from the last total"
        )
    total = np.full(len(values), np.nan)
    total[known] = chained
    missing = ~np.isfinite(values)
    if missing.any():
        inside = missing & (step >= step[known[0]]) & (step <= step[known[-1]])
        total[inside] = np.interp(step[inside], step[known], chained)
        read_off = int((inside & evaluated).sum())
        if read_off:
            notes.append(
                f"{read_off} evaluations without {name!r}: read off the records around them, by step"
            )
    return total, notes
