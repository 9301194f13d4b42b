"""What a column probably is, judged by its name and values: outcome, compute, step or clock."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog

BOOKKEEPING = (SOURCE_ROW, LAUNCH, TIME)

_STEPS = (
    "step",
    "steps",
    "global_step",
    "global_steps",
    "iteration",
    "iterations",
    "iter",
    "update",
    "updates",
    "visit",  # how often a prompt has been trained on, in per-prompt histories
)
_UNITS = {
    "gpu_hours": ("gpu_hours", "gpu_hour", "gpuhours", "gpu_h", "gpu_hrs"),
    "flops": ("flops", "flop", "total_flops", "total_flop", "total_flos"),
    "tokens": ("tokens", "num_tokens", "total_tokens", "n_tokens", "tokens_seen", "num_input_tokens_seen"),
    "rollouts": ("rollouts", "num_rollouts", "n_rollouts", "total_rollouts"),
    "steps": _STEPS,
}
_CLOCKS = {"wall_time", "walltime", "elapsed", "elapsed_seconds", "elapsed_time", "runtime", "wall_clock"}
_PER_STEP = {"step_time", "time_per_step", "iter_time", "iter_time_s", "total_time"}
_STEP_IN_TEXT = re.compile(r"(?:step|iter|checkpoint)[ _\-=:]?(\d+)$")
_PREFERENCE = re.compile(r"rewards?/accurac|reward_accurac|win_?rate|rewards?/margins?|preference")
_NOT_AN_OUTCOME = re.compile(
    r"loss|entropy|\bkl\b|kl_|_kl|grad|\blr\b|lr_|learning_rate|length|\blen|std|clip|advantage|returns|epoch|time|"
    r"second|token|mem|throughput|ratio|norm|seed|index|\bid\b|_id|count|total|^n_|_n_|num|__min|__max|/min$|/max$|"
    r"values?/|done_frac|stop_rate|mfu|mbu|temperature|minus|version|perplexity|collapse|diversity|skipped|train_fraction|margin"
)
_RATE = re.compile(
    r"acc\b|accuracy|pass|solve|correct|success|exact_match|score|mean@|maj@|best@|solved|reward|error_rate|win|^value$"
)


@dataclass(frozen=True)
class Outcome:
    """A column that may be the y-axis.

    Attributes
    ----------
    kind : str
        Metric kind the name suggests.
    split : str or None
        Split the name suggests; None if it does not say.
    why_not : str
        Why it is not taken as a held-out pass rate without being declared; empty if it is.
    """

    kind: str
    split: str | None
    why_not: str = ""


def words(name: str) -> list[str]:
    """Lower-case words of a column name (``"val-core/gsm8k/acc/mean@16"`` has five)."""
    return [w for w in re.split(r"[^a-z0-9@]+", name.lower()) if w]


def leaf(name: str) -> str:
    """Last part of a ``/``-separated key, lower case, with ``_`` for blanks and dashes."""
    return re.sub(r"[\s\-.]+", "_", name.lower().rsplit("/", 1)[-1]).strip("_")


def unit_of(name: str) -> str | None:
    """Return the compute unit that a column name is, if it is one."""
    return next((unit for unit, names in _UNITS.items() if leaf(name) in names), None)


def is_step(name: str) -> bool:
    """Whether a column name means the training step."""
    return leaf(name).lstrip("_") in _STEPS


def is_clock(name: str) -> bool:
    """Whether a column name means the time since the launch."""
    return leaf(name).lstrip("_") in _CLOCKS


def is_per_step(name: str) -> bool:
    """Whether a column name means the cost of one step."""
    return leaf(name) in _PER_STEP or bool(re.match(r"(perf/time_per_step|timing(_s)?/|time/)", name.lower()))


def looks_like_preference(name: str) -> bool:
    """Whether a name is a preference accuracy (DPO) or a win rate: liked, not right."""
    return bool(_PREFERENCE.search(name.lower()))


def looks_like_percent(name: str, finite: np.ndarray) -> bool:
    """Whether values above 1 are percent: more than marks out of ten, unless the name says so."""
    return finite.min() >= 0 and 1 < finite.max() <= 100 and (finite.max() > 10 or "percent" in name.lower())


def split_of(name: str) -> str | None:
    """Return the split a metric name speaks of; names of optimised quantities mean training prompts."""
    found = words(name)
    if {"val", "valid", "validation", "eval", "heldout", "dev"} & set(found):
        return "validation"
    if "test" in found:
        return "test"
    if {"train", "training", "critic", "actor", "rollout", "batch"} & set(found):
        return "train"
    # An optimised reward without a word about evaluation is logged on training prompts.
    return "train" if {"reward", "rewards", "return"} & set(found) else None


def outcome(name: str, values: np.ndarray) -> Outcome | None:
    """Judge a column as y-axis; None if it is no outcome at all (losses, times, lengths, constants text)."""
    finite = values[np.isfinite(values)]
    text = name.lower()
    preference = looks_like_preference(name)
    if not len(finite) or name.startswith("__"):
        return None
    if not preference and (
        _NOT_AN_OUTCOME.search(text) or text == "pass" or not _RATE.search(text) or is_step(name)
    ):
        return None
    split = split_of(name)
    if preference:
        return Outcome("preference", split, "preference: says which answer is liked, not which is right")
    reward = {"reward", "rewards"} & set(words(name))
    kind = "reward" if reward else "error_rate" if "error_rate" in text else "pass_rate"
    k = re.search(r"(?:pass|best)(?:@|_at_)(\d+)", text)
    if k and int(k[1]) > 1:
        kind = "pass_at_k"
    elif not reward and re.search(r"acc\b|accuracy", text):
        kind = "accuracy"
    low, high = finite.min(), finite.max()
    if low < 0 or (high > 1 and (reward or not looks_like_percent(name, finite))):
        return Outcome(kind, split, "unbounded: no scale on which it is a fraction")
    if split == "train":
        return Outcome(
            kind, split, "reward on training prompts" if reward else "measured on training prompts"
        )
    if reward:
        return Outcome(kind, split, "reward")
    if len(finite) > 2 and low == high and low != 0:
        return Outcome(kind, split, "constant")
    return Outcome(kind, split)


def step_column(records: pd.DataFrame, log: RawLog, declared: str | None) -> str | None:
    """Return the column of the training step: as declared, as the format defines it, or by name."""
    if declared is not None:
        if declared not in records:
            raise no_column(declared, records, log.source)
        return declared
    if log.step is not None and log.step in records:
        return log.step
    named = [c for c in map(str, records.columns) if is_step(c) and _has_number(records[c])]
    # In a chart export the chart's own x is the axis, not wandb's counter of log calls.
    named = [c for c in named if log.run is None or not c.startswith("_")]
    # A framework's own step beats wandb's counter, which also counts evaluations.
    named.sort(key=lambda c: (c.startswith("_"), "/" in c, _STEPS.index(leaf(c).lstrip("_")), c))
    if named:
        return named[0]
    loose = [c for c in map(str, records.columns) if leaf(c).endswith("_step") and "model_step" not in c]
    loose = [c for c in loose if pd.api.types.is_numeric_dtype(records[c]) and records[c].notna().all()]
    if loose:
        return min(loose, key=lambda c: (c.count("/"), c))
    if "model_step" in records and _has_number(records["model_step"]):
        return "model_step"
    for column in map(str, records.columns):
        cells = records[column]
        text = not column.startswith("__") and isinstance(cells.iloc[0], str)
        if text and all(_STEP_IN_TEXT.search(str(cell)) for cell in cells):
            return column
    return None


def _has_number(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells, errors="coerce").notna().any())


def no_column(name: str, records: pd.DataFrame, where: object) -> InputError:
    """Build the error for a column that is not there, with the names most like it."""
    import difflib

    names = [str(c) for c in records.columns if not str(c).startswith("__")]
    wanted = set(words(name))
    close = difflib.get_close_matches(name, names, 4, 0.6) or [c for c in names if wanted & set(words(c))][:6]
    shown = close or names[:12]
    rest = "" if close or len(names) <= 12 else f" and {len(names) - 12} more"
    return InputError(
        f"no column {name!r}",
        where=where,
        found=", ".join(shown) + rest or "no columns",
        fix="name a column of the log; `rlforecast inspect` lists them",
    )


def finite(records: pd.DataFrame, column: str, where: object) -> np.ndarray:
    """Return a column as `numbers`, infinite ones as NaN: a counter cannot be infinite."""
    values = numbers(records, column, where)
    return np.where(np.isfinite(values), values, np.nan)


def numbers(records: pd.DataFrame, column: str, where: object) -> np.ndarray:
    """Return a column as floats, blanks as NaN.

    Text that ends in a step (``"..._step_4400"``) counts as that number, as checkpoint names are logged so.

    Raises
    ------
    InputError
        If the column is missing or a cell is no number.
    """
    if column not in records:
        raise no_column(column, records, where)
    cells = records[column]
    values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=float, na_value=np.nan, copy=True)
    text = cells.notna().to_numpy() & np.isnan(values)
    for i in np.flatnonzero(text):
        cell = str(cells.iloc[i]).strip()
        match = _STEP_IN_TEXT.search(cell)
        if match:
            values[i] = float(match[1])
        elif cell.lower() not in {"", "nan", "none", "null", "na", "n/a", "-"}:
            row = records[SOURCE_ROW].iloc[i] if SOURCE_ROW in records else i + 1
            raise InputError(
                "not a number",
                where=f"{where}, row {row}, column {column}",
                found=repr(cell[:60]),
                expected="a number",
                fix="correct the cell, leave it blank, or name another column",
            )
    return values
