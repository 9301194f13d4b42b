"""Records gathered column by column, so that a million of them fit in memory; numbers become numbers."""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from forecast.errors import printable
from forecast.runs.readers.base import SOURCE_ROW
from forecast.runs.receipt import Receipt

_CHUNK = 20_000
_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"
_BLANK = r"^\s*$|^\s*(?i:nan|null|none|na|n/a|-)\s*$"
_EXACT = 2**53


class Columns:
    """Builder of `RawLog.records`.

    Cells are held as arrays per 20 000 rows. A column of strings becomes numeric at the end, when all of
    its cells are numbers or blank; thousands separators and decimal commas are not guessed.
    """

    def __init__(self) -> None:
        """Start without rows."""
        self._open: dict[str, list[Any]] = {}
        self._open_rows = 0
        self._chunks: dict[str, list[Any]] = {}
        self._sizes: list[int] = []
        self._rows = array("q")

    def __len__(self) -> int:
        """Rows so far."""
        return len(self._rows)

    @property
    def names(self) -> list[str]:
        """Columns met so far."""
        return list(dict.fromkeys([*self._chunks, *self._open]))

    def add(self, record: Mapping[str, Any], row: int) -> None:
        """Append one record; nested mappings are flattened with ``/``."""
        self._put(record, "")
        self._rows.append(row)
        self._open_rows += 1
        if self._open_rows >= _CHUNK:
            self._close()

    def _put(self, record: Mapping[str, Any], prefix: str) -> None:
        cells, filled = self._open, self._open_rows
        for key, value in record.items():
            name = f"{prefix}{key}" if prefix else key if type(key) is str else str(key)
            if type(value) is dict:
                self._put(value, f"{name}/")
                continue
            column = cells.get(name)
            if column is None:
                column = cells[name] = []
            missing = filled - len(column)
            if missing > 0:
                column.extend([None] * missing)
            elif missing < 0:  # {"a": {"b": 1}, "a/b": 2}
                column[-1] = value
                continue
            column.append(value)

    def add_block(self, block: Mapping[str, Sequence[Any]], rows: Sequence[int]) -> None:
        """Append many records given as equally long columns."""
        self._close()
        self._open = {name: list(cells) for name, cells in block.items()}
        self._open_rows = len(rows)
        self._rows.extend(rows)
        self._close()

    def _close(self) -> None:
        if not self._open_rows:
            return
        for name, cells in self._open.items():
            cells.extend([None] * (self._open_rows - len(cells)))
            chunks = self._chunks.setdefault(name, [])
            chunks.extend([None] * (len(self._sizes) - len(chunks)))
            chunks.append(_packed(cells))
        self._sizes.append(self._open_rows)
        self._open, self._open_rows = {}, 0

    def frame(self, receipt: Receipt) -> pd.DataFrame:
        """Return the table with `SOURCE_ROW`; columns that are almost numeric are noted in `receipt`."""
        self._close()
        data: dict[str, Any] = {}
        for name in list(self._chunks):
            chunks = self._chunks.pop(name)
            chunks.extend([None] * (len(self._sizes) - len(chunks)))
            parts = [np.full(n, np.nan) if c is None else c for c, n in zip(chunks, self._sizes, strict=True)]
            name = printable(name)
            data[name] = _joined(name, parts, receipt)
        data[SOURCE_ROW] = np.array(self._rows, dtype=np.int64)
        return pd.DataFrame(data, copy=False)


def numbers(values: pd.Series) -> pd.Series | None:
    """Return strings as numbers, or None unless every cell is a number or blank."""
    text = pc.utf8_trim_whitespace(pa.array(values, type=pa.large_string(), from_pandas=True))
    text = pc.if_else(pc.match_substring_regex(text, _BLANK), None, text)
    if not pc.all(pc.match_substring_regex(text, _NUMBER)).as_py():
        return None
    text = pc.replace_substring_regex(text, r"^\+", "")
    if text.null_count == 0 and pc.all(pc.match_substring_regex(text, r"^-?\d{1,18}$")).as_py():
        return pd.Series(text.cast(pa.int64()).to_numpy(zero_copy_only=False), index=values.index)
    return pd.Series(text.cast(pa.float64()).to_numpy(zero_copy_only=False), index=values.index)


def _packed(cells: list[Any]) -> Any:
    kinds = set(map(type, cells))
    blanks = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return np.full(len(cells), np.nan)
    if kinds <= {int, float}:
        try:
            if kinds == {int}:
                whole = np.array([0 if c is None else c for c in cells], dtype=np.int64)
                if not blanks:
                    return whole
                if np.abs(whole).max() >= _EXACT:
                    return _objects(cells)
            return np.array(cells, dtype=np.float64)
        except OverflowError:
            return _objects(cells)
    if kinds == {bool} and not blanks:
        return np.array(cells)
    if kinds == {str}:
        try:
            return pd.array(cells, dtype="str")
        except UnicodeEncodeError:
            return pd.array([None if c is None else printable(c) for c in cells], dtype="str")
    return _objects([printable(c) if type(c) is str else c for c in cells])


def _objects(cells: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    out[:] = [np.nan if c is None else c for c in cells]
    return out


def _is_numeric(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind in "if"


def _is_empty(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype.kind == "f" and bool(np.isnan(part).all())


def _joined(name: str, parts: list[Any], receipt: Receipt) -> Any:
    if all(_is_numeric(p) for p in parts):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    if all(isinstance(p, np.ndarray) and p.dtype.kind == "b" for p in parts):
        return np.concatenate(parts)
    if any(isinstance(p, np.ndarray) and p.dtype.kind in "bO" for p in parts):
        column = pd.Series(np.concatenate([_objects(p) for p in parts]), dtype=object)
        return _mixed_numbers(column, name, receipt)
    # Strings, perhaps beside numbers: keep the strings as they are unless all of them are numbers.
    texts = [None if _is_numeric(p) else numbers(pd.Series(p)) for p in parts]
    if all(t is not None or _is_numeric(p) for t, p in zip(texts, parts, strict=True)):
        return np.concatenate([p if t is None else t.to_numpy() for t, p in zip(texts, parts, strict=True)])
    if all(not _is_numeric(p) or _is_empty(p) for p in parts):
        column = pd.concat([pd.Series(p, dtype="str") for p in parts], ignore_index=True)
        column = column.mask(column.str.strip() == "")
    else:
        column = pd.Series(np.concatenate([_objects(p) for p in parts]), dtype=object)
    _note_almost_numeric(name, column, receipt)
    return column


def _mixed_numbers(column: pd.Series, name: str, receipt: Receipt) -> Any:
    kinds = set(column.map(type))
    if kinds <= {str, int, float}:
        parsed = numbers(column.map(lambda v: v if isinstance(v, str) else None if v != v else repr(v)))
        if parsed is not None and not (parsed.abs() >= _EXACT).any():
            return parsed.to_numpy()
        _note_almost_numeric(name, column, receipt)
    return column


def _note_almost_numeric(name: str, column: pd.Series, receipt: Receipt) -> None:
    text = column.dropna().astype(str)
    if text.empty:
        return
    bad = ~text.str.strip().str.contains(f"(?:{_NUMBER})|(?:{_BLANK})", regex=True)
    if 0 < bad.mean() < 0.5:
        receipt.note(
            f"column {name!r}: {int(bad.sum())} of {len(text)} cells are not numbers "
            f"(first: {text[bad].iloc[0][:40]!r}), so the column was left as text"
        )


_STEP = re.compile(
    r"(?i)^(.*[/_. ])?(global_?step|steps?|iteration|iter|updates?|episode|epoch|evaluations)$|^_step$"
)
_METRIC = re.compile(
    r"(?i)loss|reward|acc|score|pass|kl\b|entropy|\blr\b|learning_rate|grad|return|success|solve|correct|eval"
    r"|\bval|valid|test|train|mean|std|perplex|ppl|f1|exact|ratio|rate\b|length|time|token|clip|win|count|total"
)


def step_like(name: str) -> bool:
    """Whether a column's name says that it counts training."""
    return bool(_STEP.match(name))


def metric_like(name: str) -> bool:
    """Whether a column's name sounds like something measured."""
    return bool(_METRIC.search(name))
