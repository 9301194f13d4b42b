"""Wide tables, one column per run, made long: W&B chart exports on sight, others when asked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog
from forecast.runs.readers.columns import step_like
from forecast.runs.readers.naming import run_name
from forecast.runs.receipt import Receipt

RUN = "run"
_BLANK = "blank in a wide table (the run has no value there)"
_BAND = re.compile(r"__(MIN|MAX)$")


def is_wandb_export(header: Sequence[str]) -> bool:
    """Whether the columns are those of a W&B chart: an x, then only ``<run> - <metric>``."""
    series = [name for name in header[1:] if " - " in name]
    return " - " not in header[0] and bool(series) and len(series) == len(header) - 1


def from_wandb_export(path: Path, records: pd.DataFrame, receipt: Receipt) -> RawLog:
    """Make a W&B chart export long: one row per run and x, one column per metric."""
    receipt.format = "wandb-export"
    inner = (SOURCE_ROW, LAUNCH, TIME)
    x, *series = [name for name in records.columns if name not in inner]
    bands = [name for name in series if _BAND.search(name)]
    if bands:
        differ = _band_differs(records, bands)
        receipt.note(
            f"{len(bands)} __MIN/__MAX columns left out"
            + (": each series is a group of runs or a smoothed line, not one run" if differ else "")
        )
    groups: dict[str, dict[str, str]] = {}
    for name in series:
        if name not in bands:
            run, _, metric = name.rpartition(" - ")
            groups.setdefault(run, {})[metric] = name
    long = _long(records, groups, x, receipt)
    receipt.runs = list(groups)
    step = x if step_like(x) and "eval" not in x else None
    return RawLog(path, "wandb-export", run_name(path), long, receipt, step=step, run=RUN)


def _band_differs(records: pd.DataFrame, bands: list[str]) -> bool:
    for name in bands:
        value = _BAND.sub("", name)
        if value in records and not np.allclose(records[name], records[value], equal_nan=True):
            return True
    return False


def melt_wide(raw: RawLog, columns: Sequence[str], x: str, value: str = "value") -> RawLog:
    """Make a table with one column per run long.

    Parameters
    ----------
    raw : RawLog
        The table as read.
    columns : sequence of str
        The columns that are runs.
    x : str
        The column they share as x-axis.
    value : str, default: "value"
        Name for the column that holds the values.

    Returns
    -------
    RawLog
        Columns ``run``, `x`, `value` and every column that is neither; one row per cell that is not blank.

    Raises
    ------
    InputError
        If a column is missing, is not numeric, or none is given.
    """
    for name in (x, *columns):
        if name not in raw.records:
            raise InputError(
                f"no column {name!r}", where=raw.source, found=", ".join(map(str, raw.records.columns))
            )
    if not columns or x in columns:
        raise InputError("a wide table needs an x column and columns that are runs", where=raw.source)
    for name in columns:
        if not pd.api.types.is_numeric_dtype(raw.records[name]):
            raise InputError(f"column {name!r} is not numeric, so it is not a run", where=raw.source)
    receipt = replace(raw.receipt, dropped=dict(raw.receipt.dropped), notes=list(raw.receipt.notes))
    receipt.note(f"wide table made long: {len(columns)} columns are one run each")
    long = _long(raw.records, {name: {value: name} for name in columns}, x, receipt)
    receipt.runs = list(columns)
    return replace(raw, records=long, receipt=receipt, run=RUN)


def _long(
    records: pd.DataFrame, groups: Mapping[str, Mapping[str, str]], x: str, receipt: Receipt
) -> pd.DataFrame:
    """Stack the groups of columns; `receipt` counts one row per wide row and run."""
    used = {name for metrics in groups.values() for name in metrics.values()}
    shared = [n for n in records.columns if n not in used and not _BAND.search(str(n)) and n != RUN]
    parts = []
    for run, metrics in groups.items():
        part = records[[*shared, *metrics.values()]].rename(
            columns={old: new for new, old in metrics.items()}
        )
        kept = part[part[list(metrics)].notna().any(axis=1)]
        receipt.drop(_BLANK, len(part) - len(kept))
        parts.append(kept.assign(**{RUN: run}))
    receipt.rows_read += len(records) * (len(groups) - 1)
    long = pd.concat(parts, ignore_index=True)
    if long.empty:
        raise InputError("wide table holds no values", where=receipt.source, found="blank cells only")
    return long[[RUN, x, *(c for c in long.columns if c not in (RUN, x))]]
