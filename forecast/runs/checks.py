"""Is the chosen column what it was declared to be? Each check raises one `InputError` or passes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs import columns
from forecast.runs.readers.base import SOURCE_ROW, RawLog
from forecast.runs.spec import MetricSpec


def choose_metric(logs: list[RawLog], spec: MetricSpec) -> tuple[str, str]:
    """Return the metric column and a note on how it was chosen: as declared, else the one clear candidate.

    Raises
    ------
    InputError
        If there is no candidate or more than one.
    """
    if spec.column is not None or spec.wide is not False:
        return spec.column or "value", ""
    found: dict[str, columns.Outcome] = {}
    for log in logs:
        for column in map(str, log.records.columns):
            if column not in found and pd.api.types.is_numeric_dtype(log.records[column]):
                judged = columns.outcome(column, log.records[column].to_numpy(dtype=float, na_value=np.nan))
                if judged is not None:
                    found[column] = judged
    fits = {c: o for c, o in found.items() if _fits(o, spec)}
    if not fits:
        # A column that would do but for a few cells of text: reading it names the first of them.
        found |= (partly := _partly_numbers(logs))
        fits = {c: o for c, o in partly.items() if _fits(o, spec)}
    # A name that says "val" or "test" beats one that says nothing.
    clear = {c: o for c, o in fits.items() if o.split == spec.split} or fits
    where = logs[0].source if len(logs) == 1 else ""
    if len(clear) == 1:
        column = next(iter(clear))
        return column, f"metric: {column!r} taken, the only candidate for a {spec.split} {spec.kind}"
    if clear:
        raise InputError(
            "several columns may be the metric",
            where=where,
            found=", ".join(clear),
            fix="choose one with --metric COLUMN ([metric] column)",
        )
    listed = [f"{c} ({o.why_not})" if o.why_not else f"{c} ({o.split or o.kind})" for c, o in found.items()]
    raise InputError(
        f"no column is clearly a {spec.split} {spec.kind}",
        where=where,
        found=", ".join(listed[:8]) or "no outcome column",
        fix="name it with --metric COLUMN, and say what it is with --kind and --split",
    )


def _partly_numbers(logs: list[RawLog]) -> dict[str, columns.Outcome]:
    """Judge the columns that hold mostly numbers and some text."""
    found: dict[str, columns.Outcome] = {}
    for log in logs:
        for column in map(str, log.records.columns):
            cells = log.records[column]
            if column in found or pd.api.types.is_numeric_dtype(cells):
                continue
            values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
            if np.isfinite(values).sum() >= 0.5 * cells.notna().sum():
                judged = columns.outcome(column, values)
                if judged is not None:
                    found[column] = judged
    return found


def _fits(judged: columns.Outcome, spec: MetricSpec) -> bool:
    rates = ("pass_rate", "accuracy", "pass_at_k")
    same_kind = judged.kind == spec.kind or (judged.kind in rates and spec.kind in rates)
    if (
        spec.kind in rates
        and judged.kind == "reward"
        and judged.why_not in ("reward", "reward on training prompts")
    ):
        same_kind = spec.split == "train"
    same_split = judged.split in (None, spec.split) or (spec.split == "validation" and judged.split == "test")
    return same_kind and same_split and judged.why_not != "constant"


def check_name(column: str, spec: MetricSpec, where: object) -> str:
    """Refuse a preference rate or a training reward that was not declared; return a note on a doubtful name.

    Raises
    ------
    InputError
        If the name contradicts the declared kind or split.
    """
    if columns.looks_like_preference(column) and spec.kind != "preference":
        raise InputError(
            f"{column!r} is a preference rate: it says which answer is liked, not which is right",
            where=where,
            found=f"kind {spec.kind!r}",
            fix="choose a pass rate, or declare --kind preference",
        )
    named = columns.split_of(column)
    if named == "train" and spec.split != "train" and spec.kind not in ("reward", "preference"):
        raise InputError(
            f"{column!r} looks like a value on training prompts",
            where=where,
            found=f"split {spec.split!r}, kind {spec.kind!r}",
            fix="choose a held-out metric, or declare --split train (or --kind reward)",
        )
    if named == "test" and spec.split == "validation":
        return f"{column!r} speaks of test prompts; it is read as {spec.split}, as declared"
    if named != "train" and spec.kind != "reward" and {"reward", "rewards"} & set(columns.words(column)):
        return f"{column!r} is named a reward; it is read as {spec.kind}, as declared"
    return ""


def check_values(
    values: np.ndarray, rows: pd.DataFrame, column: str, spec: MetricSpec, where: object
) -> None:
    """Refuse percent declared as fraction, fraction declared as percent, and values off the scale.

    Raises
    ------
    InputError
        With the first value that does not fit.
    """
    if not len(values):
        return
    zero, one = spec.limits
    low, high = min(zero, one), max(zero, one)
    slack = 1e-9 * (high - low)
    off = (values < low - slack) | (values > high + slack)
    if off.any():
        percent = (low, high) == (0, 1) and columns.looks_like_percent(column, values)
        first = int(np.flatnonzero(off)[0])
        raise InputError(
            "looks like percent, not a fraction" if percent else "value outside the declared scale",
            where=f"{where}, row {rows[SOURCE_ROW].iloc[first]}, column {column}",
            found=f"{values[first]:g} (all values {values.min():g} to {values.max():g})",
            expected=f"{low:g} to {high:g}",
            fix="declare the scale: --scale 0,100 (scale = [0, 100])"
            if percent
            else "declare the values that mean 0 and 1 with --scale LOW,HIGH",
        )
    if (low, high) == (0, 100) and 0 < values.max() <= 1:
        raise InputError(
            "declared as percent, but looks like a fraction",
            where=f"{where}, column {column}",
            found=f"values {values.min():g} to {values.max():g}",
            expected="values up to 100",
            fix="leave out --scale (scale = [0, 1])",
        )
