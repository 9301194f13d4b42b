"""CSV and TSV tables: delimiter found by content, ragged and repeated header rows accounted for."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain, dropwhile
from pathlib import Path

import pandas as pd

from forecast.errors import InputError
from forecast.runs.readers.base import LAUNCH, RawLog
from forecast.runs.readers.columns import Columns, metric_like, step_like
from forecast.runs.readers.naming import run_name
from forecast.runs.readers.text import TextFile
from forecast.runs.readers.times import fill_time
from forecast.runs.readers.wide import from_wandb_export, is_wandb_export
from forecast.runs.receipt import Receipt

_DELIMITERS = ",\t;|"
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_STAMP = re.compile(r"\d\d:\d\d:\d\d")
_HEADER_CELL = re.compile(r"\s*[\w./@\-]+( [\w./@\-]+){0,2}(?<!\.)\s*")
_BLOCK = 20_000
_UNCLOSED = "row after a quotation mark that is never closed"
csv.field_size_limit(1 << 26)


def find_delimiter(lines: Sequence[str]) -> str | None:
    """Return the character that splits `lines` into a table with a header, or None if they are no table."""
    lines = list(dropwhile(lambda line: line.lstrip().startswith("#"), lines))
    if not lines:
        return None
    best, widest = None, 1
    for delimiter in _DELIMITERS:
        try:
            rows = list(csv.reader([line + "\n" for line in lines], delimiter=delimiter))
        except csv.Error:
            continue
        header, body = rows[0], rows[1:]
        width = len(header)
        if width <= widest or any(_STAMP.search(cell) or len(cell) > 300 for cell in header):
            continue
        uneven = _uneven(header, body)
        if body and (
            uneven > max(1, 0.2 * len(body)) or uneven == len(body) or not _has_numbers(body, width)
        ):
            continue
        if not body and not all(_HEADER_CELL.fullmatch(cell) for cell in header):
            continue
        best, widest = delimiter, width
    return best


def _uneven(header: list[str], body: list[list[str]]) -> int:
    """Count rows that do not fit the header above them; the header may come again with more columns."""
    width, bad = len(header), 0
    for row in body:
        if row[0] == header[0] and not _NUMBER.fullmatch(row[0]):
            width = len(row)
        bad += len(row) < width or any(row[width:])
    return bad


def _has_numbers(body: list[list[str]], width: int) -> bool:
    for k in range(width):
        cells = [row[k] for row in body if k < len(row) and row[k].strip()]
        if cells and sum(bool(_NUMBER.fullmatch(c)) for c in cells) >= 0.5 * len(cells):
            return True
    return False


def _all_numbers(cells: list[str]) -> bool:
    return all(_NUMBER.fullmatch(c) for c in cells)


def read_csv(path: Path, delimiter: str) -> list[RawLog]:
    """Read one table; a W&B chart export is made long.

    Raises
    ------
    InputError
        If no row is usable.
    """
    text = TextFile(path)
    receipt = Receipt(str(path), "csv")
    rows = _numbered_rows(text, delimiter, receipt)
    try:
        line, first = next(rows)
    except StopIteration:
        raise _no_rows(path, "a file without a header") from None
    if _all_numbers(first):
        header = [f"column_{k + 1}" for k in range(len(first))]
        receipt.note(
            "the first row holds numbers only, so there is no header; columns are named column_1, ..."
        )
        pending: list[tuple[int, list[str]]] = [(line, first)]
    else:
        header, pending = _unique(first, receipt), []
    columns = _Blocks(header, first)
    for line, cells in chain(pending, rows):
        columns.take(line, cells, receipt)
    columns.flush()
    text.note_undecodable(receipt)
    if not text.complete:
        columns.drop_short_tail(receipt)
    if columns.short:
        receipt.drop("row with fewer cells than the header", columns.short)
    receipt.rows_read = len(columns.table) + sum(receipt.dropped.values())
    if not len(columns.table):
        raise _no_rows(path, f"a header ({', '.join(header)[:80]})")
    records = columns.table.frame(receipt)
    if LAUNCH in records:
        receipt.note(f"the header line is repeated: {int(records[LAUNCH].max()) + 1} launches in one file")
    if is_wandb_export(header):
        return [from_wandb_export(path, records, receipt)]
    fill_time(records)
    _hint_wide(header, records, receipt)
    name = run_name(path)
    receipt.runs = [name]
    return [RawLog(path, "csv", name, records, receipt)]


def _no_rows(path: Path, found: str) -> InputError:
    return InputError(
        "table without a usable row",
        where=path,
        found=found,
        fix="give a table with a header and one row per evaluation",
    )


def _numbered_rows(text: TextFile, delimiter: str, receipt: Receipt) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) without blank rows and comments."""
    taken: list[str] = []

    def lines() -> Iterator[str]:
        for line in text:
            taken.append(line)
            yield line + "\n"

    reader = csv.reader(lines(), delimiter=delimiter)
    started = False
    while True:
        taken.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            receipt.drop(f"row that cannot be parsed ({error})")
            continue
        if not any(cells) or (delimiter == "|" and not set("".join(cells)) - set("-: ")):
            continue
        if len(taken) > 1 and sum(line.count('"') for line in taken) % 2:
            receipt.drop(_UNCLOSED, sum(bool(line.strip()) for line in taken))
            receipt.note(
                f"line {reader.line_num - len(taken) + 1} opens a quotation mark that is never closed"
            )
            continue
        if not started and cells[0].lstrip().startswith("#"):
            receipt.drop("comment line")
            continue
        started = True
        yield reader.line_num, cells


def _unique(header: list[str], receipt: Receipt) -> list[str]:
    names: list[str] = []
    for k, cell in enumerate(header):
        name = cell.strip() or f"column_{k + 1}"
        if name in names:
            again = 2
            while f"{name}.{again}" in names:
                again += 1
            receipt.note(
                f"column name {name!r} occurs more than once; the later one is called {name}.{again}"
            )
            name = f"{name}.{again}"
        names.append(name)
    return names


class _Blocks:
    """Rows of a table gathered in blocks; the header may come again, and then a new launch begins."""

    def __init__(self, header: list[str], first: list[str]) -> None:
        self.table = Columns()
        self.short = 0
        self._header, self._first, self._last_short = header, first, False
        self._launch = 0
        self._lines: list[int] = []
        self._cells: list[list[str]] = []
        self._launches: list[int] = []

    def take(self, line: int, cells: list[str], receipt: Receipt) -> None:
        width = len(self._header)
        self._last_short = False
        if (
            cells[0] == self._first[0]
            and not _NUMBER.fullmatch(cells[0])
            and not any(map(_NUMBER.fullmatch, cells))
        ):
            if cells == self._first:
                self._launch += 1
                receipt.drop("header line repeated")
                return
            if len(set(cells) & set(self._first)) > width / 2:
                self.flush()
                self._header, self._first = _unique(cells, receipt), cells
                self._launch += 1
                receipt.drop("header line repeated")
                receipt.note(f"the header changes at line {line}; columns are matched by name")
                return
        if len(cells) < width:
            self.short += 1
            self._last_short = True
        elif len(cells) > width and any(cells[width:]):
            receipt.drop("row with more cells than the header")
        else:
            self._lines.append(line)
            self._cells.append(cells[:width])
            self._launches.append(self._launch)
            if len(self._lines) >= _BLOCK:
                self.flush()

    def drop_short_tail(self, receipt: Receipt) -> None:
        """Call a short last row by its name: the file was cut off while it was written."""
        if self._last_short:
            self.short -= 1
            receipt.drop("last row is cut off")

    def flush(self) -> None:
        if not self._lines:
            return
        block: dict[str, Sequence[object]] = {
            name: [cell or None for cell in column]
            for name, column in zip(self._header, zip(*self._cells, strict=True), strict=True)
        }
        if self._launch:
            block[LAUNCH] = self._launches
        self.table.add_block(block, self._lines)
        self._lines, self._cells, self._launches = [], [], []


def _hint_wide(header: list[str], records: pd.DataFrame, receipt: Receipt) -> None:
    """Say so when a table looks like one column per run: content alone cannot tell."""
    first, rest = header[0], header[1:]
    if len(rest) < 2 or not step_like(first) or any(metric_like(n) or step_like(n) for n in rest):
        return
    if all(pd.api.types.is_numeric_dtype(records[name]) for name in header):
        some = ", ".join(rest[:6]) + (", ..." if len(rest) > 6 else "")
        receipt.note(f"columns {some} beside {first!r} may be one run each: if so, declare the table as wide")
