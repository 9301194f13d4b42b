"""One JSON document: records, ``{column: [..]}``, ``{prompt: [..]}``, trainer states."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from forecast.errors import InputError
from forecast.runs.readers import json_records as kinds
from forecast.runs.readers.base import RawLog
from forecast.runs.readers.columns import Columns, metric_like, step_like
from forecast.runs.readers.naming import run_name
from forecast.runs.readers.text import TextFile, read_head
from forecast.runs.readers.times import fill_time
from forecast.runs.receipt import Receipt

_HOLDERS = ("log_history", "history", "logs", "records", "metrics", "data", "rows", "results", "evals")
_COUNTED = re.compile(r"^\D*\d+\D*$")
_FEW = 30


def looks_like_json_document(path: Path, first: str) -> bool:
    """Whether the file is one JSON document; a log whose first line is ``[step 1] ...`` is none."""
    if not first.lstrip().startswith(("{", "[")):
        return False
    head = read_head(path).decode("utf-8-sig", errors="replace")
    try:
        json.loads(head)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Extra data"):
            return head[error.pos :].startswith("{")
        # The head of a document fails where it is cut; anything else fails at once.
        return error.pos > min(20, 0.5 * len(head.strip()))
    except RecursionError:
        return False
    return True


def read_json_document(path: Path) -> list[RawLog]:
    """Read one JSON document.

    Raises
    ------
    InputError
        If it is not valid or holds no records.
    """
    text = TextFile(path)
    receipt = Receipt(str(path), "json")
    try:
        document = _parsed("\n".join(text))
    except (json.JSONDecodeError, RecursionError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "too deeply nested"
        raise InputError(
            "JSON document is not valid",
            where=path,
            found=f"{error} ({where})",
            fix="write it again; it may be cut off",
        ) from error
    text.note_undecodable(receipt)
    columns = Columns()
    if isinstance(document, dict) and isinstance(document.get("log_history"), list):
        _note_state(document, receipt)
    _gather(document, columns, receipt, path)
    receipt.rows_read = len(columns) + sum(receipt.dropped.values())
    if not len(columns):
        raise _no_records(path, document)
    records = columns.frame(receipt)
    fill_time(records)
    name = run_name(path)
    receipt.runs = [name]
    step = "step" if receipt.format == "trl" and "step" in records else None
    if receipt.format == "trl":
        _note_evaluations(records.columns, receipt, records)
    return [RawLog(path, receipt.format, name, records, receipt, step=step)]


def _parsed(text: str) -> Any:
    """Parse one document, or several objects written one after the other as a list."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if not error.msg.startswith("Extra data"):
            raise
    decoder, found, at = json.JSONDecoder(), [], 0
    text = text.strip()
    while at < len(text):
        item, at = decoder.raw_decode(text, at)
        found.append(item)
        at += len(text[at:]) - len(text[at:].lstrip())
    return found


def _gather(document: Any, columns: Columns, receipt: Receipt, path: Path) -> None:
    if isinstance(document, list):
        _gather_list(document, columns, receipt)
    elif isinstance(document, dict):
        holder = next((k for k in _HOLDERS if _is_record_list(document.get(k))), None)
        lists = {k: v for k, v in document.items() if isinstance(v, list) and _scalars(v)}
        if holder:
            _gather_list(document[holder], columns, receipt)
            if holder != "log_history":
                receipt.note(f"records taken from {holder!r}")
        elif lists and len(lists) == len(document):
            _gather_lists(lists, columns, receipt, path)
        elif _is_table_of_records(document):
            receipt.note("one record per key; the key is in column 'key'")
            for row, (key, record) in enumerate(document.items(), 1):
                columns.add({"key": key} | record, row)
        elif kinds.has_step(document):
            columns.add(document, 1)


def _is_record_list(value: Any) -> bool:
    return (
        isinstance(value, list)
        and any(isinstance(r, dict) and any(map(kinds.is_number, r.values())) for r in value)
        and not any(isinstance(v, dict) for r in value if isinstance(r, dict) for v in r.values())
    )


def _is_table_of_records(document: Mapping[str, Any]) -> bool:
    """``{"step_100": {"acc": ..}, "step_200": {"acc": ..}}``; a nested configuration shares no keys."""
    if len(document) < 2 or not all(isinstance(v, dict) for v in document.values()):
        return False
    shared = set.intersection(*({k for k, v in r.items() if kinds.is_number(v)} for r in document.values()))
    return bool(shared) and all(_COUNTED.match(key) for key in document)


def _scalars(values: list[Any]) -> bool:
    return not any(isinstance(v, (list, dict)) for v in values)


def _gather_list(items: Iterable[Any], columns: Columns, receipt: Receipt) -> None:
    items = list(items)
    if items and all(isinstance(i, list) and len(i) == 3 and all(map(kinds.is_number, i)) for i in items):
        receipt.note("rows of three numbers read as TensorBoard's download: Wall time, Step, Value")
        items = [dict(zip(("Wall time", "Step", "Value"), i, strict=True)) for i in items]
    found = [r for r in items if isinstance(r, dict)]
    if any(map(kinds.is_trl, found)):
        receipt.format = "trl"
    for row, record in enumerate(items, 1):
        if not isinstance(record, dict):
            receipt.drop(kinds.NOT_OBJECT)
        elif kinds.is_config(record):
            receipt.drop(kinds.CONFIG_LINE)
        elif kinds.is_summary(record):
            receipt.drop(kinds.SUMMARY)
        else:
            columns.add(record, row)


def _gather_lists(lists: dict[str, list[Any]], columns: Columns, receipt: Receipt, path: Path) -> None:
    lengths = {len(v) for v in lists.values()}
    counted = all(re.fullmatch(r"\d+", key) for key in lists)
    if len(lengths) == 1 and not counted:
        columns.add_block(lists, range(1, lengths.pop() + 1))
        return
    if len(lists) <= _FEW and any(step_like(k) or metric_like(k) for k in lists):
        sizes = ", ".join(f"{k} {len(v)}" for k, v in list(lists.items())[:4])
        raise InputError(
            "columns of different lengths",
            where=path,
            found=sizes,
            fix="write one record per evaluation instead",
        )
    receipt.note(
        f"{len(lists)} lists read as the history of one prompt each: columns prompt, visit (position), value"
    )
    if len(lengths) > 1:
        receipt.note(f"prompts were visited {min(lengths)} to {max(lengths)} times")
    block: dict[str, list[Any]] = {"prompt": [], "visit": [], "value": []}
    for prompt, values in lists.items():
        block["prompt"] += [prompt] * len(values)
        block["visit"] += range(1, len(values) + 1)
        block["value"] += values
    columns.add_block(block, range(1, len(block["value"]) + 1))


def _note_state(document: Mapping[str, Any], receipt: Receipt) -> None:
    receipt.format = "trl"
    done, planned = document.get("global_step"), document.get("max_steps")
    if isinstance(done, int) and isinstance(planned, int) and 0 < done < planned:
        receipt.note(f"the run was saved at step {done} of {planned}")


def _note_evaluations(names: Iterable[Any], receipt: Receipt, records: Any) -> None:
    evals = [n for n in names if str(n).startswith("eval_")]
    if evals:
        count = int(records[evals].notna().any(axis=1).sum())
        receipt.note(f"{count} of {len(records)} records are evaluations (eval_...)")


def _no_records(path: Path, document: Any) -> InputError:
    if isinstance(document, dict):
        found = f"one JSON object with keys {', '.join(map(str, list(document)[:5]))}" if document else "{}"
    else:
        found = (
            f"a JSON {type(document).__name__} of {len(document)}"
            if isinstance(document, list)
            else "one value"
        )
    return InputError(
        "no records in this JSON document",
        where=path,
        found=found,
        expected="a list of records, {column: [..]}, {prompt: [..]} or a trainer_state with log_history",
        fix="give the log itself, not a configuration or an evaluation report",
    )
