"""JSON lines: one record per line, read as a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forecast.errors import InputError
from forecast.runs.readers import json_records as kinds
from forecast.runs.readers.base import RawLog
from forecast.runs.readers.columns import Columns
from forecast.runs.readers.naming import run_name
from forecast.runs.readers.text import TextFile
from forecast.runs.readers.times import fill_time
from forecast.runs.receipt import Receipt


def looks_like_json_lines(lines: Sequence[str]) -> bool:
    """Whether at least half of `lines` are JSON objects of their own."""
    return sum(isinstance(_parsed(line), dict) for line in lines) >= 0.5 * len(lines)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def read_json_lines(path: Path) -> list[RawLog]:
    """Read one file of JSON lines.

    Raises
    ------
    InputError
        If no line is a record.
    """
    text = TextFile(path)
    receipt = Receipt(str(path), "jsonl")
    columns = Columns()
    decode = json.loads
    bad, bad_line, number = 0, 0, 0
    for number, line in enumerate(text, 1):
        if not line or line.isspace():
            continue
        try:
            record = decode(line)
        except (ValueError, RecursionError):
            bad, bad_line = bad + 1, number
            continue
        if type(record) is not dict:
            receipt.drop(kinds.NOT_OBJECT)
        elif "type" in record and kinds.is_config(record):
            receipt.drop(kinds.CONFIG_LINE)
        elif "train_runtime" in record and kinds.is_summary(record):
            receipt.drop(kinds.SUMMARY)
        else:
            columns.add(record, number)
    if bad and bad_line == number and not text.complete:
        bad -= 1
        receipt.drop(kinds.CUT_OFF)
    receipt.drop(kinds.NOT_JSON, bad)
    text.note_undecodable(receipt)
    receipt.rows_read = len(columns) + sum(receipt.dropped.values())
    if not len(columns):
        raise InputError(
            "no record in JSON lines",
            where=path,
            found=", ".join(f"{n} x {reason}" for reason, n in receipt.dropped.items()),
            expected="one JSON object per line with the metrics of one step",
        )
    records = columns.frame(receipt)
    fill_time(records)
    name = run_name(path)
    receipt.runs = [name]
    return [RawLog(path, "jsonl", name, records, receipt)]
