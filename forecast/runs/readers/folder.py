"""Logs from a file or a folder: format by content, nested checkpoints known, nothing skipped silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from forecast.errors import InputError
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog
from forecast.runs.readers.console import read_console
from forecast.runs.readers.csv_table import find_delimiter, read_csv
from forecast.runs.readers.events import is_event_file, read_events
from forecast.runs.readers.json_document import looks_like_json_document, read_json_document
from forecast.runs.readers.json_lines import looks_like_json_lines, read_json_lines
from forecast.runs.readers.naming import distinct
from forecast.runs.readers.parquet import MAGIC, read_parquet
from forecast.runs.readers.text import TextFile, read_head

_SAMPLE = 100
_SKIPPED_FOLDERS = ("__pycache__", "node_modules")
_NESTED = "repeats an earlier checkpoint's log_history"


def read_log(path: str | Path) -> list[RawLog]:
    """Read a log file, a TensorBoard folder, or every log in a folder.

    Parameters
    ----------
    path : path-like
        A file of any known format, or a folder that is walked in sorted order.

    Returns
    -------
    list of RawLog
        One per run that the files themselves tell apart, in order of their paths, with distinct names.

    Raises
    ------
    InputError
        If `path` does not exist, or nothing in it is a log.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path)
    if not path.exists():
        raise InputError("no such file or folder", where=path, fix="check the path")
    if is_events(path):
        return read_events([path], path)
    return _read_file(path)


def is_events(path: Path) -> bool:
    """Whether `path` is a TensorBoard event file."""
    return is_event_file(read_head(path, 128), path.name)


def _read_file(path: Path) -> list[RawLog]:
    """Read one file that holds no TensorBoard events."""
    if read_head(path, len(MAGIC)) == MAGIC:
        return read_parquet(path)
    lines = TextFile(path).sample(_SAMPLE)
    if len(lines) > 1 and looks_like_json_lines(lines):
        return read_json_lines(path)
    first = lines[0] if lines else read_head(path, 64).decode("utf-8-sig", errors="replace")
    if looks_like_json_document(path, first):
        return read_json_document(path)
    delimiter = find_delimiter(lines) if lines else None
    return read_csv(path, delimiter) if delimiter else read_console(path)


def _read_folder(root: Path) -> list[RawLog]:
    logs: list[RawLog] = []
    skipped: dict[str, list[str]] = {}
    for folder, files in _walk(root):
        events = []
        for file in files:
            try:
                if is_events(file):
                    events.append(file)
                else:
                    logs += _read_file(file)
            except InputError as error:
                skipped.setdefault(error.what, []).append(str(file.relative_to(root)))
        if events:
            try:
                logs += read_events(events, folder)
            except InputError as error:
                skipped.setdefault(error.what, []).append(str(folder.relative_to(root)))
    if not logs:
        what = "; ".join(f"{what}: {_few(names)}" for what, names in skipped.items())
        raise InputError(
            "no logs in this folder", where=root, found=what or "no files", fix="give the folder of the logs"
        )
    logs = _without_nested(logs)
    for what, names in skipped.items():
        logs[0].receipt.note(f"skipped ({what}): {_few(names)}")
    for log, name in zip(logs, distinct([(log.name, log.source) for log in logs], root), strict=True):
        if log.run is None:
            log.receipt.runs = [name]
        log.name = name
    return logs


def _walk(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _SKIPPED_FOLDERS)
        yield Path(folder), [Path(folder, f) for f in sorted(files) if not f.startswith(".")]


def _few(names: list[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _without_nested(logs: list[RawLog]) -> list[RawLog]:
    """Drop each ``log_history`` that a longer one repeats; the longer one's receipt accounts for its rows."""
    kept = list(logs)
    for short in sorted((log for log in logs if log.format == "trl"), key=lambda log: len(log.records)):
        longer = [o for o in kept if o is not short and o.format == "trl" and _is_prefix(short, o)]
        if not longer:
            continue
        whole = max(longer, key=lambda o: len(o.records))
        for reason, count in short.receipt.dropped.items():
            whole.receipt.drop(reason, count)
        whole.receipt.rows_read += short.receipt.rows_read
        whole.receipt.drop(_NESTED, len(short.records))
        whole.receipt.note(f"{short.source} holds the beginning of the same run and was left out")
        kept = [log for log in kept if log is not short]
    return kept


def _is_prefix(short: RawLog, long: RawLog) -> bool:
    inner = [SOURCE_ROW, TIME, LAUNCH]
    a = short.records.drop(columns=inner, errors="ignore")
    b = long.records.drop(columns=inner, errors="ignore").head(len(a))
    if len(a) > len(b) or not set(a.columns) <= set(b.columns):
        return False
    later = [c for c in b.columns if c not in a.columns]
    return bool(b[later].isna().all(axis=None)) and a.astype(object).equals(b[list(a.columns)].astype(object))
