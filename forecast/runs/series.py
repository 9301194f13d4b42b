"""One run (or one prompt class of it): from records as logged to evaluations on the compute axis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs import attempts, axes, columns
from forecast.runs.accounts import LOG, SOURCE, Accounts
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME
from forecast.runs.spec import ComputeSpec

TABLES = ("csv", "wandb-export", "parquet")
"""Formats whose row order carries no time; the others are appended to as a run goes on."""

VALUE, X, STEP = "__value__", "__x__", "__step__"
"""Columns that the caller adds: metric, logged compute, step (NaN where missing)."""


class MixedRows(InputError):
    """Rows of several runs or prompt classes that `labels`, columns nobody named, tell apart."""

    def __init__(self, labels: list[str], what: str, **details: Any) -> None:
        """Keep the columns for whoever can do something about them."""
        super().__init__(what, **details)
        self.labels = labels


@dataclass
class Series:
    """Records of one run, with what is needed to make evaluations of them.

    Attributes
    ----------
    run : str
        Name, for messages.
    frame : pandas.DataFrame
        Records in file order, with `VALUE`, `X`, `STEP` and `LOG`.
    metric : str
        Metric column, for messages.
    axis : axes.Choice
        Compute columns.
    compute : ComputeSpec
        What was declared about them.
    has_step : bool
        Whether a step column is known.
    formats : set of str
        Formats of the logs.
    declared_one : bool
        Whether the records were declared to be one run (by a name).
    rule : str
        What to do with several attempts.
    """

    run: str
    frame: pd.DataFrame
    metric: str
    axis: axes.Choice
    compute: ComputeSpec
    has_step: bool
    formats: set[str]
    declared_one: bool
    rule: str

    @property
    def where(self) -> str:
        """Source and run, for messages."""
        return f"{self.frame[SOURCE].iloc[0]}, run {self.run}" if len(self.frame) else f"run {self.run}"


def clean(series: Series, accounts: Accounts) -> pd.DataFrame:
    """Return the records that are the run, in order, with their attempt and cumulative compute.

    Rows without an evaluation are still there, as their compute counts.
    """
    frame = series.frame
    no_step = series.has_step & frame[STEP].isna().to_numpy()
    evaluated = frame[VALUE].notna().to_numpy()
    frame = _no_value(frame, no_step & ~evaluated, series.metric, accounts)
    frame = accounts.drop(frame, (series.has_step & frame[STEP].isna()).to_numpy(), "no step")
    if frame.empty:
        return frame.assign(attempt=[], compute=[])
    series = replace(series, frame=frame)
    frame = _logged_twice(series, accounts)
    negative = (frame[X] < 0).to_numpy()
    if negative.any():
        row = frame[negative].iloc[0]
        raise InputError(
            f"compute column {_counter(series)!r} is negative",
            where=_row(series, row),
            found=f"{row[X]:g}",
            fix="correct the row, or choose another --compute COLUMN",
        )
    if not series.has_step and series.axis.columns != (axes.RECORD,) and not series.compute.cumulate:
        frame = accounts.drop(frame, _nowhere(frame), _not_logged(series))
        frame[STEP] = frame[X].ffill().bfill()  # the counter itself orders the rows
    elif not series.has_step:
        frame[STEP] = np.arange(1.0, len(frame) + 1)
    frame = _resolve(replace(series, frame=frame), accounts)
    if series.rule == "separate":
        parts = [part.reset_index(drop=True) for _, part in frame.groupby("attempt")]
    else:
        parts = [frame]
    return pd.concat([_with_compute(series, part, accounts) for part in parts], ignore_index=True)


def evaluations(series: Series, frame: pd.DataFrame, accounts: Accounts) -> pd.DataFrame:
    """Keep the rows that hold an evaluation with known compute, each evaluation once."""
    frame = _no_value(frame, frame[VALUE].isna().to_numpy(), series.metric, accounts)
    before = frame["compute"].isna() & ~(series.has_step & (frame[STEP] == 0))
    frame = accounts.drop(frame, before.to_numpy(), _not_logged(series))
    if frame.empty:
        return frame
    frame = _same_checkpoint(series, frame, accounts)
    negative = (frame["compute"] < 0).to_numpy()
    if negative.any():
        row = frame[negative].iloc[0]
        raise InputError(
            "compute is negative", where=_row(series, row), found=f"{row['compute']:g}", fix="check offset"
        )
    late = frame[frame["compute"] > 0]
    one_run = (late["attempt"].diff() == 0).to_numpy() if series.rule == "separate" else True
    flat = (late["compute"].diff() <= 0).to_numpy() & one_run
    if flat.any():
        row = late[flat].iloc[0]
        raise InputError(
            "two evaluations of one run at the same compute",
            where=_row(series, row),
            found=f"compute {row['compute']:g} again",
            expected="compute that grows from one evaluation to the next",
            fix="check the compute column, or name the runs apart (--run COLUMN)",
        )
    return frame


def _counter(series: Series) -> str:
    return " + ".join(series.axis.columns)


def _not_logged(series: Series) -> str:
    return f"no compute ({_counter(series)} not logged)"


def _nowhere(frame: pd.DataFrame) -> np.ndarray:
    """Return evaluations without a counter that no record beside them gives one: it has its own evaluation."""
    missing, evaluated = frame[X].isna(), frame[VALUE].notna()
    block = (~missing).cumsum().clip(lower=1)
    own = (evaluated & ~missing).groupby(block).transform("any")
    again = (evaluated & missing).groupby(block).cumsum() > 1
    return (evaluated & missing & (own | again)).to_numpy()


def _no_value(frame: pd.DataFrame, mask: np.ndarray, metric: str, accounts: Accounts) -> pd.DataFrame:
    return accounts.drop(frame, mask, f"no value of {metric!r}")


def _row(series: Series, row: pd.Series) -> str:
    return f"{row[SOURCE]}, row {row[SOURCE_ROW]}, run {series.run}"


def _logged_twice(series: Series, accounts: Accounts) -> pd.DataFrame:
    """Drop a record that directly follows itself, or whose value is that before it, rounded differently."""
    frame = series.frame
    rows = np.flatnonzero(frame[VALUE].notna().to_numpy())
    if not (np.diff(frame[STEP].to_numpy()[rows]) == 0).any():
        return frame
    value, step, log = frame[VALUE].to_numpy(), frame[STEP].to_numpy(), frame[LOG].to_numpy()
    prints = attempts.fingerprints(frame.drop(columns=[LOG, VALUE, X, STEP]))
    drop = np.zeros(len(frame), dtype=bool)
    for a, b in pairwise(rows):
        rounded = value[a] != value[b] and attempts.same_evaluation(value[a], value[b])
        # An equal value in a record that otherwise differs is the same step done again, after a restart.
        if step[a] == step[b] and log[a] == log[b] and (rounded or prints[a] == prints[b]):
            drop[a if len(repr(value[b])) > len(repr(value[a])) else b] = True
    return accounts.drop(frame, drop, "same evaluation logged twice")


def _resolve(series: Series, accounts: Accounts) -> pd.DataFrame:
    """Find attempts and keep the rows that the rule keeps, in order of step."""
    frame = series.frame
    step = frame[STEP].to_numpy(dtype=float)
    if (
        (np.diff(step) > 0).all()
        and frame[LOG].nunique() == 1
        and LAUNCH not in frame
        and _clock(frame) is None
    ):
        return frame.assign(attempt=0)
    evaluated = frame[VALUE].notna().to_numpy()
    kind = np.where(evaluated, -1, _kinds(frame))
    launch = pd.factorize(
        frame[LOG].astype(str) + "/" + (frame[LAUNCH].astype(str) if LAUNCH in frame else "")
    )[0]
    number = attempts.number_attempts(step, kind, launch=launch, clock=_clock(frame))
    goes_back = pd.Series(number).groupby(launch).nunique().max() > 1
    known_order = TIME in frame and frame[TIME].notna().all() and frame[TIME].is_monotonic_increasing
    if goes_back and not series.declared_one:
        _check_mixed(series, step, kind)
    repeated = pd.DataFrame({"s": step, "k": kind, "l": launch}).duplicated().any()
    if goes_back and not repeated and not known_order and series.formats <= set(TABLES):
        accounts.note(frame, f"run {series.run}: rows were not in order of {_axis(series)}; sorted")
        number = launch
    if number.max() > 0:
        copies = attempts.repeated_attempts(number, attempts.fingerprints(frame.drop(columns=[LOG])))
        copied = np.isin(number, list(copies))
        frame = accounts.drop(frame, copied, "exact copy of rows logged elsewhere")
        number = number[~copied]
        # A relaunch that never came to an evaluation has nothing to put in the place of what was measured.
        evaluated = evaluated[~copied]
        idle = number > (number[evaluated].max() if evaluated.any() else number.max())
        frame = accounts.drop(frame, idle, "of a later attempt without an evaluation")
        step = step[~copied][~idle]
        number = pd.factorize(number[~idle], sort=True)[0]
        keep = attempts.keep_rows(step, number, series.rule)
        accounts.note(
            frame,
            attempts.describe(series.run, attempts.summarise(step, number, keep), series.rule, _axis(series)),
        )
        frame = frame.assign(attempt=number)
        frame = accounts.drop(
            frame,
            ~keep,
            "superseded by a later attempt" if series.rule == "latest" else "of a shorter attempt",
        )
    else:
        frame = frame.assign(attempt=0)
    return frame.sort_values(
        ["attempt", STEP] if series.rule == "separate" else STEP, kind="stable"
    ).reset_index(drop=True)


def _clock(frame: pd.DataFrame) -> np.ndarray | None:
    """Return the time since the launch, where it was logged."""
    for column in map(str, frame.columns):
        if columns.is_clock(column) and pd.api.types.is_numeric_dtype(frame[column]):
            return frame[column].to_numpy(dtype=float, na_value=np.nan)
    return None


def _axis(series: Series) -> str:
    return "step" if series.has_step else _counter(series)


def _kinds(frame: pd.DataFrame) -> np.ndarray:
    """Number the kinds of records, two records being of one kind when they fill the same columns."""
    filled = frame.drop(columns=[SOURCE_ROW, LOG, VALUE, STEP, X], errors="ignore").notna()
    return pd.factorize(pd.util.hash_pandas_object(filled, index=False))[0]


def _check_mixed(series: Series, step: np.ndarray, kind: np.ndarray) -> None:
    """Refuse rows of several runs or prompt classes that are told apart by a column nobody named."""
    frame = series.frame[kind == -1]
    step = step[kind == -1]
    if not len(frame) or not pd.Series(step).duplicated().any():
        labels = _labels_of_segments(frame, step)
    else:
        labels = _labels_within_steps(frame, step)
    if labels:
        raise MixedRows(
            labels,
            f"one {_axis(series)} holds several rows that differ in {', '.join(map(repr, labels))}",
            where=series.where,
            expected="one evaluation of a run at a time",
            fix=f"name the runs apart (--run {labels[0]}), take one (--where {labels[0]}=VALUE), call it the "
            f"prompt class (--stratum {labels[0]}) or, if these are restarts, name the run in runs.toml",
        )


def _label_columns(frame: pd.DataFrame) -> list[str]:
    """Return columns that may name runs: text or seeds, with a few values that come again and again."""
    found = []
    for column in map(str, frame.columns):
        if column.startswith("__") or column == "attempt":
            continue
        text = frame[column].map(lambda cell: isinstance(cell, str)).all()
        if text or {"seed", "fold", "index", "problem", "prompt"} & set(columns.words(column)):
            different = frame[column].astype(str).nunique()
            if 2 <= different <= max(2, len(frame) // 2) and frame[column].notna().all():
                found.append(column)
    return found


def _labels_within_steps(frame: pd.DataFrame, step: np.ndarray) -> list[str]:
    """Return the columns (one if one suffices) that tell all rows of a step apart."""
    keys = frame[_label_columns(frame)].astype(str).assign(**{STEP: step})
    # Exact copies of a row are no sign of a second run.
    values = frame[VALUE].to_numpy()
    keys = keys[~keys.assign(v=values).duplicated().to_numpy()]
    varying = [c for c in keys.columns if c != STEP and (keys.groupby(STEP)[c].nunique() > 1).any()]
    for column in varying:
        if not keys.duplicated([STEP, column]).any():
            return [column]
    return varying if varying and not keys.duplicated([STEP, *varying]).any() else []


def _labels_of_segments(frame: pd.DataFrame, step: np.ndarray) -> list[str]:
    """Return a column that changes exactly where the counter goes back."""
    segment = np.concatenate([[0], np.cumsum(np.diff(step) <= 0)]) if len(step) else np.empty(0)
    for column in _label_columns(frame):
        label = frame[column].astype(str)
        if (label.groupby(segment).nunique() == 1).all() and label.nunique() == segment.max() + 1 > 1:
            return [column]
    return []


def _with_compute(series: Series, frame: pd.DataFrame, accounts: Accounts) -> pd.DataFrame:
    if series.axis.columns == (axes.RECORD,):
        order = frame[VALUE].notna().cumsum().to_numpy(dtype=float)
        return frame.assign(compute=order * series.compute.times + series.compute.offset)
    compute, notes = axes.cumulative(
        frame[X].to_numpy(dtype=float),
        frame[STEP].to_numpy(dtype=float),
        frame["attempt"].to_numpy(),
        series.compute,
        evaluated=frame[VALUE].notna().to_numpy(),
        name=_counter(series),
        where=series.where,
    )
    for sentence in notes:
        accounts.note(frame, f"run {series.run}: {sentence}")
    return frame.assign(compute=compute)


def _same_checkpoint(series: Series, frame: pd.DataFrame, accounts: Accounts) -> pd.DataFrame:
    """Keep one of several records of the same checkpoint's evaluation.

    Where a column says which model step was evaluated, two records with the same model step and (up to
    rounding) the same value are one evaluation: it keeps its first place and its most precise value.
    """
    named = [c for c in frame.columns if "model_step" in str(c) and pd.api.types.is_numeric_dtype(frame[c])]
    if not named:
        return frame
    checkpoint = frame[max(named, key=lambda c: frame[c].notna().sum())].to_numpy(dtype=float)
    value = frame[VALUE].to_numpy(dtype=float).copy()
    drop = np.zeros(len(frame), dtype=bool)
    for i in range(1, len(frame)):
        same = (checkpoint[:i] == checkpoint[i]) & ~drop[:i]
        if same.any() and attempts.same_evaluation(value[first := int(np.argmax(same))], value[i]):
            drop[i] = True
            value[first] = max(value[first], value[i], key=lambda v: len(repr(float(v))))
    if drop.any():
        accounts.note(
            frame,
            f"run {series.run}: {int(drop.sum())} evaluations were logged again later (same model step, "
            "value equal up to rounding); each is kept once, at its first place, with the more precise value",
        )
    return accounts.drop(frame.assign(**{VALUE: value}), drop, "same evaluation logged again later")
