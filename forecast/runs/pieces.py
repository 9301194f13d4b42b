"""Logs cut into the records of single runs: filters, columns that name runs, copies, order of files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from forecast.errors import InputError, printable
from forecast.runs import attempts, axes, columns
from forecast.runs.accounts import LOG, SOURCE, Accounts
from forecast.runs.readers.base import TIME, RawLog
from forecast.runs.spec import RunSpec, Spec


@dataclass
class Piece:
    """Records of one run from one log."""

    declared: RunSpec
    log: int
    records: pd.DataFrame
    name: str
    prefix: str
    pooled: bool  # whether pieces of this name belong to one run


def cut(
    sources: Sequence[tuple[RunSpec, Sequence[RawLog]]],
    logs: list[RawLog],
    spec: Spec,
    metric: str,
    accounts: Accounts,
) -> tuple[list[Piece], dict[int, axes.Choice]]:
    """Cut the logs into the records of single runs."""
    pieces: list[Piece] = []
    choices: dict[int, axes.Choice] = {}
    number = 0
    for declared, some in sources:
        mine = range(number, number + len(some))
        number += len(some)
        holders = [i for i in mine if metric in logs[i].records]
        if not holders:
            first = logs[mine[0]]
            raise columns.no_column(metric, first.records, first.source)
        copies = _copied_logs([logs[i] for i in mine])
        for i in mine:
            log = logs[i]
            frame = log.records.copy()
            frame[LOG], frame[SOURCE] = i, printable(str(log.source))
            if i not in holders:
                accounts.drop(frame, np.ones(len(frame), dtype=bool), f"log without column {metric!r}")
                continue
            if i - mine[0] in copies:
                other = logs[mine[copies[i - mine[0]]]].source
                accounts.drop(frame, np.ones(len(frame), dtype=bool), f"every row is repeated in {other}")
                continue
            frame = _where(frame, declared.where, log, accounts)
            if frame.empty:
                continue
            step = columns.step_column(frame, log, spec.compute.step)
            choices[i] = axes.choose(frame, step, spec.compute, log.source)
            accounts.note(frame, choices[i].note)
            whole = declared.name or logs[holders[0]].name
            pieces += _split(frame, declared, i, log, whole if declared.one_run else log.name)
    if not pieces:
        raise InputError(
            "no row is left",
            found="; ".join(f"{n} rows: {r}" for r, n in accounts.dropped().items()),
            fix="check --where",
        )
    if len({c.unit for c in choices.values()}) > 1:
        listed = [f"{logs[i].source}: {' + '.join(c.columns)} in {c.unit}" for i, c in choices.items()]
        raise InputError("runs in different compute units cannot be fitted together", found="; ".join(listed))
    return pieces, choices


def _copied_logs(logs: list[RawLog]) -> dict[int, int]:
    """Return log -> log that repeats all of its rows, as the state files of later checkpoints do.

    Rows must hold measured numbers: two dead runs that log nothing but zeros are no copies.
    """
    if len(logs) < 2:
        return {}
    prints = [attempts.fingerprints(log.records) for log in logs]
    plain = [i for i, log in enumerate(logs) if not _distinctive(log.records)]
    owner = np.concatenate([np.full(len(p), i) for i, p in enumerate(prints)])
    copies = attempts.repeated_attempts(owner, [p for some in prints for p in some])
    return {i: other for i, other in copies.items() if i not in plain}


def _distinctive(records: pd.DataFrame) -> bool:
    data = (
        records.drop(columns=list(columns.BOOKKEEPING), errors="ignore")
        .select_dtypes("number")
        .to_numpy(dtype=float)
    )
    broken = data[np.isfinite(data) & (data != np.round(data, 2))]
    return len(np.unique(broken)) >= 3


def _where(frame: pd.DataFrame, conditions: list[str], log: RawLog, accounts: Accounts) -> pd.DataFrame:
    for condition in conditions:
        column, _, wanted = (part.strip() for part in condition.partition("="))
        if column not in frame:
            raise columns.no_column(column, frame, f"{log.source}, filter {condition}")
        cells = frame[column]
        match = (cells.astype(str) == wanted).to_numpy()
        number = pd.to_numeric(pd.Series([wanted]), errors="coerce").iloc[0]
        if pd.api.types.is_numeric_dtype(cells) and not np.isnan(number):
            match = match | (cells == number).to_numpy(dtype=bool, na_value=False)
        if not match.any():
            values = list(dict.fromkeys(cells.dropna().astype(str)))[:8]
            raise InputError(
                f"no row has {condition}", where=log.source, found=f"{column}: {', '.join(values) or 'blank'}"
            )
        frame = accounts.drop(frame, ~match, f"not {column}={wanted}")
    return frame


def _split(frame: pd.DataFrame, declared: RunSpec, index: int, log: RawLog, name: str) -> list[Piece]:
    by = declared.split_by or ([log.run] if log.run else [])
    if not by:
        return [Piece(declared, index, frame, name, log.name, declared.one_run)]
    for column in by:
        if column not in frame:
            raise columns.no_column(column, frame, log.source)
    label = frame[by].map(text).agg("/".join, axis=1)
    if declared.name:
        label = declared.name + "/" + label
    return [
        Piece(declared, index, part.reset_index(drop=True), str(value), log.name, declared.one_run)
        for value, part in frame.groupby(label, sort=False)
    ]


def text(value: Any) -> str:
    """Return a cell as it is shown: whole numbers without a decimal point, blanks as nothing."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:g}"
    return str(value)


def by_run(pieces: list[Piece]) -> dict[str, list[Piece]]:
    """Group the pieces of each run; runs of one name in different logs are told apart by the log's name."""
    groups: dict[tuple[int, int, str], list[Piece]] = {}
    for piece in pieces:
        groups.setdefault((id(piece.declared), -1 if piece.pooled else piece.log, piece.name), []).append(
            piece
        )
    taken = Counter(mine[0].name for mine in groups.values())
    named: dict[str, list[Piece]] = {}
    for mine in groups.values():
        first = mine[0]
        name = first.name
        if taken[name] > 1 and first.prefix != name:
            name = f"{first.prefix}/{name}"
        base, k = name, 2
        while name in named:
            name, k = f"{base}#{k}", k + 1
        named[name] = mine
    return named


def in_order(mine: list[Piece], logs: list[RawLog], accounts: Accounts) -> list[Piece]:
    """Order the pieces of a run by time where all of them carry it, else leave them as listed."""
    if len(mine) < 2:
        return mine
    starts = [p.records[TIME].min() if TIME in p.records else np.nan for p in mine]
    timed = bool(np.isfinite(starts).all())
    order = [mine[i] for i in np.argsort(starts, kind="stable")] if timed else mine
    how = "by the time of their first record" if timed else "as listed (not all of them carry a time)"
    listed = ", ".join(logs[p.log].source.name for p in order)
    for piece in order:
        accounts.note(piece.records.head(1), f"one run in {len(mine)} files, ordered {how}: {listed}")
    return order
