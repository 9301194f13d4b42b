"""Time stamps in log lines and columns, as seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pandas as pd

from forecast.runs.readers.base import TIME

_FULL = re.compile(
    r"\b(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|[+-]\d\d:?\d\d)?"
)
_YEARLESS = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_WHERE = 64
_HALF_YEAR = 182 * 86400
_COLUMNS = ("timestamp", "_timestamp", "time_stamp", "datetime", "wall time", "wall_time", "date")


class Stamps:
    """Reader of the time stamps in successive log lines.

    Attributes
    ----------
    last : float or None
        Seconds of the latest stamp seen.
    yearless : bool
        Whether stamps without a year were met (counted from the year 2000).
    """

    def __init__(self) -> None:
        """Start without a stamp."""
        self.last: float | None = None
        self.yearless = False
        self._year, self._dated = 2000, False

    def strip(self, line: str) -> str:
        """Take note of a stamp near the start of `line` and return the line without it."""
        head = line[:_WHERE]
        if head.count(":") < 2:
            return line
        if found := _FULL.search(head):
            year, month, day, hour, minute, second = map(int, found.groups()[:6])
            self._year, self._dated = year, True
            fraction = float(f"0.{found[7] or 0}")
            seconds = _seconds(year, month, day, hour, minute, second)
        elif found := _YEARLESS.search(head):
            month, day, hour, minute, second = map(int, found.groups())
            seconds, fraction = _seconds(self._year, month, day, hour, minute, second), 0.0
            if seconds is not None and self.last is not None and seconds < self.last - _HALF_YEAR:
                self._year += 1
                seconds = _seconds(self._year, month, day, hour, minute, second)
            self.yearless = not self._dated
        else:
            return line
        if seconds is None:
            return line
        self.last = seconds + fraction
        return line[: found.start()] + line[found.end() :]


def _seconds(*parts: int) -> float | None:
    try:
        return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc, arg-type]
    except ValueError:
        return None


def fill_time(records: pd.DataFrame) -> None:
    """Add `TIME` from a column of absolute times (ISO texts or Unix seconds), if there is one."""
    for name in records.columns:
        if str(name).lower().rpartition("/")[2] not in _COLUMNS or TIME in records:
            continue
        column = records[name]
        if pd.api.types.is_bool_dtype(column):
            continue
        if pd.api.types.is_datetime64_any_dtype(column):
            stamps = pd.to_datetime(column, utc=True)
        elif pd.api.types.is_numeric_dtype(column):
            # Smaller numbers are seconds since the launch, which a restart resets.
            if column.median() > 1e8:
                records[TIME] = column.astype(float) / (1e3 if column.median() > 1e11 else 1.0)
            continue
        else:
            stamps = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
            if stamps.notna().sum() < column.notna().sum() or stamps.isna().all():
                continue
        records[TIME] = (stamps - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
