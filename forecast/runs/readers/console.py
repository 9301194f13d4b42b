"""Console logs: one pass that strips colours and prefixes and tries each kind of metric line."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from forecast.errors import InputError
from forecast.runs.readers import free_text, verl
from forecast.runs.readers import json_records as kinds
from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog
from forecast.runs.readers.columns import Columns, metric_like, step_like
from forecast.runs.readers.literals import parse_dict
from forecast.runs.readers.naming import run_name
from forecast.runs.readers.text import TextFile
from forecast.runs.readers.times import Stamps
from forecast.runs.receipt import Receipt

RECORD = "record"
RUN = "run"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:0|1|3[0-7]|9[0-7])m(?=\(|\s|\[|$)")
_PID = re.compile(r"^\s*(?:\x1b?\[3\dm)?\([\w.:\- ]*pid=\d+[^)]*\)(?:\x1b?\[0m)?\s?|^\s*\[?rank ?\d+\]?:\s?")
_HEADER = re.compile(r"^={3,}\s*(\S+)(.*?)\s*={3,}\s*$")
_RESUMED = re.compile(r"(?i)^\W*resum(ed|ing)\b")
_FIRST_KEY = re.compile(r"\{['\"]([^'\"]+)['\"]:")
_AFTER_DICT = re.compile(r"[\"')\],;.\s]*")


@dataclass
class _Found:
    """Metric lines of one kind."""

    columns: Columns = field(default_factory=Columns)
    shapes: list[tuple[str, ...]] = field(default_factory=list)


def read_console(path: Path) -> list[RawLog]:
    """Read the metric lines of one console log.

    Raises
    ------
    InputError
        If no line carries metrics.
    """
    return [_Console(path).read()]


class _Console:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = TextFile(path)
        self.receipt = Receipt(str(path), "console")
        self.stamps = Stamps()
        self.validation = verl.Validation()
        self.validated: list[tuple[str, dict[str, Any]]] = []
        self.steps, self.dicts, self.free = Columns(), _Found(), _Found()
        self.last_step: float | None = None
        self.headers: list[str] = []
        self.summaries = 0
        self.broken: Counter[str] = Counter()
        self.pending: tuple[dict[str, Any], int, float | None] | None = None
        self.labels: dict[str, None] = {}

    def read(self) -> RawLog:
        number = 0
        for number, raw in enumerate(self.text, 1):
            if "\r" in raw:
                for piece in raw.split("\r"):
                    if piece:
                        self._line(piece, number)
            elif raw:
                self._line(raw, number)
        self._flush()
        self.text.note_undecodable(self.receipt)
        kind, records = self._chosen()
        self.receipt.format = kind
        if not len(records):
            raise InputError(
                "no records found",
                where=self.path,
                found=f"{number} lines of text without metrics",
                expected="a table, JSON, JSON lines, or console lines with a step and metrics",
                fix="give the file that the trainer logged its metrics to",
            )
        if self.stamps.yearless:
            self.receipt.note("time stamps have no year; times count from the year 2000")
        step = next((s for s in ("step", "global_step") if s in records), None)
        log = RawLog(self.path, kind, run_name(self.path), records, self.receipt, step=step)
        self._name_runs(log)
        return log

    def _name_runs(self, log: RawLog) -> None:
        """Name the run after its header; headers with different names are different runs."""
        names = list(dict.fromkeys(self.headers))
        log.receipt.runs = names or [log.name]
        if len(names) > 1:
            started = log.records[LAUNCH].fillna(0).astype(int)
            log.records[RUN] = [self.headers[k] for k in started]
            log.run = RUN
            log.receipt.note(f"{len(names)} run headers in one file: rows belong to the header before them")
        elif names:
            log.name = names[0]

    def _line(self, raw: str, number: int) -> None:
        line = _ANSI.sub("", raw) if "\x1b" in raw or "[3" in raw else raw
        if "pid=" in line or "rank" in line:
            line = _PID.sub("", line)
        if line.startswith("==="):
            self._header(line)
        line = self.stamps.strip(line)
        if "step:" in line and (record := verl.parse_step_line(line)):
            self.last_step = record["step"]
            self._add(self.steps, record, number)
            return
        if self.validation.open or "alidation metrics" in line:
            if found := self.validation.feed(line):
                # The columns are only known at the end, where the keys are aligned with the step lines.
                self.validated.append(found)
                self._add(
                    self.steps, {_VALIDATED: len(self.validated), "step": self._step_of(found[0])}, number
                )
            return
        start = line.find("{")
        if start >= 0 and ":" in line and self._dict(line, start, number):
            return
        if _RESUMED.match(line):
            self.receipt.note(f"line {number}: {line.strip()[:80]}")
        elif record := free_text.parse_line(line):
            self._flush()
            self.pending = (record, number, self.stamps.last)
            self.free.shapes.append(tuple(record))
        elif self.pending and (label := free_text.parse_label(line)):
            for key, value in label.items():
                if key not in self.pending[0]:
                    self.pending[0][key] = value
                    self.labels[key] = None

    def _flush(self) -> None:
        """Add the last free-text record; until then lines without a step may add to it."""
        if self.pending:
            record, number, seconds = self.pending
            self._add(self.free.columns, record, number, seconds)
            self.pending = None

    def _step_of(self, kind: str) -> float:
        return 0 if kind == "initial" or self.last_step is None else self.last_step

    def _add(
        self, columns: Columns, record: dict[str, Any], number: int, seconds: float | None = None
    ) -> None:
        seconds = self.stamps.last if seconds is None else seconds
        if seconds is not None:
            record[TIME] = seconds
        if len(self.headers) > 1:
            record[LAUNCH] = len(self.headers) - 1
        columns.add(record, number)

    def _header(self, line: str) -> None:
        found = _HEADER.match(line)
        if not found or "END=" in found[2]:
            return
        if "START" in found[2] or (not found[2] and re.search(r"[_\-\d]", found[1])):
            self.headers.append(found[1])

    def _dict(self, line: str, start: int, number: int) -> bool:
        end = line.rfind("}")
        whole = end > start and _AFTER_DICT.fullmatch(line, end + 1)
        record = parse_dict(line[start : end + 1]) if whole else None
        if record is None and (first := _FIRST_KEY.match(line, start)):
            self.broken[first[1]] += 1
        if not record or not any(_numeric(v) for v in record.values()):
            return False
        if kinds.is_summary(record):
            self.summaries += 1
            return True
        if not any(map(step_like, record)) and (before := free_text.step_in(line[:start])) is not None:
            record = {"step": before} | record
        self.dicts.shapes.append(tuple(record))
        self._add(self.dicts.columns, record, number)
        return True

    def _chosen(self) -> tuple[str, Any]:
        receipt = self.receipt
        counts = {"verl": len(self.steps), "console-dict": 0, "console": 0}
        dict_shapes, free_shapes = _metric_dicts(self.dicts.shapes), free_text.belonging(self.free.shapes)
        counts["console-dict"] = sum(s in dict_shapes for s in self.dicts.shapes)
        counts["console"] = sum(s in free_shapes for s in self.free.shapes)
        # Step lines of verl are unmistakable; printed answers of the model may outnumber them.
        kind = "verl" if counts["verl"] else max(counts, key=lambda k: counts[k])
        if not counts[kind]:
            return kind, ()
        receipt.drop(kinds.SUMMARY, self.summaries)
        for other, count in counts.items():
            if other != kind:
                receipt.drop(f"metric line of another kind ({other}) than most ({kind})", count)
        receipt.rows_read = sum(counts.values()) + self.summaries
        if kind == "verl":
            return kind, self._verl_records()
        found, shapes = (self.dicts, dict_shapes) if kind == "console-dict" else (self.free, free_shapes)
        keep = [s in shapes for s in found.shapes]
        records = found.columns.frame(receipt)
        stray = keep.count(False)
        receipt.rows_read += stray
        receipt.drop("line with other keys than the metric lines", stray)
        records = records[keep].dropna(axis=1, how="all").reset_index(drop=True)
        if kind == "console":
            _note_percent(records, receipt)
            if self.labels:
                names = ", ".join(list(self.labels)[:6])
                receipt.note(f"lines without a step were added to the record before them: {names}")
        else:
            broken = sum(n for key, n in self.broken.items() if key in records)
            receipt.rows_read += broken
            receipt.drop("dictionary that is cut off or cannot be parsed", broken)
            if not any(step_like(str(n)) for n in records.columns if n != "epoch"):
                _count_records(records, receipt)
        return kind, records

    def _verl_records(self) -> Any:
        records = self.steps.frame(self.receipt)
        if _VALIDATED in records:
            known = set(map(str, records.columns))
            for index, (kind, metrics) in zip(
                records.index[records[_VALIDATED].notna()], self.validated, strict=True
            ):
                for key, value in verl.align_keys(metrics, known).items():
                    records.loc[index, key] = value
                step = records.loc[index, "step"]
                self.receipt.note(
                    f"{kind} validation metrics, logged without a step, placed at step {step:g}"
                )
            records = records.drop(columns=_VALIDATED)
        steps = records["step"]
        if steps.duplicated().any():
            self.receipt.note(
                f"{int(steps.duplicated().sum())} records repeat a step (validation beside training)"
            )
        order = [*(c for c in records.columns if c != SOURCE_ROW), SOURCE_ROW]
        return records[order]


_VALIDATED = "__validated__"


def _numeric(value: Any) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return kinds.is_number(value)


def _metric_dicts(shapes: list[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Shapes of dictionaries that are metrics: with keys met more than once that keep to named metrics."""
    if len(shapes) == 1:
        return {s for s in shapes if any(map(step_like, s)) and any(map(metric_like, s))}
    keys = Counter(key for shape in shapes for key in shape)
    shared = {shape for shape in shapes if any(keys[key] > 1 for key in shape)}
    named = {key for shape in shared if any(map(metric_like, shape)) for key in shape}
    return {shape for shape in shared if not named or named & set(shape)}


def _count_records(records: pd.DataFrame, receipt: Receipt) -> None:
    """Number the training records in place of a step; an evaluation gets the number of the record before."""
    # A record that holds nothing but eval_... (and the epoch) is an evaluation.
    beside = [
        c for c in records if not str(c).startswith("eval_") and c not in ("epoch", SOURCE_ROW, TIME, LAUNCH)
    ]
    training = records[beside].notna().any(axis=1) if beside else pd.Series(True, index=records.index)
    records[RECORD] = training.cumsum().clip(lower=1)
    receipt.note(f"the lines have no step; column {RECORD!r} counts the training records 1..{training.sum()}")


def _note_percent(records: pd.DataFrame, receipt: Receipt) -> None:
    percent = [str(c) for c in records.columns if str(c).endswith(free_text.PERCENT)]
    if percent:
        receipt.note(f"logged as percent, kept as 0-100: {', '.join(percent[:8])}")
