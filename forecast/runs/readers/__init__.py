"""Readers: one file per log format, and `read_log`, which recognises the format by content."""

from forecast.runs.readers.base import LAUNCH, SOURCE_ROW, TIME, RawLog
from forecast.runs.readers.columns import metric_like, step_like
from forecast.runs.readers.folder import read_log
from forecast.runs.readers.parquet import is_run_table
from forecast.runs.readers.wide import melt_wide

__all__ = [
    "LAUNCH",
    "SOURCE_ROW",
    "TIME",
    "RawLog",
    "is_run_table",
    "melt_wide",
    "metric_like",
    "read_log",
    "step_like",
]
