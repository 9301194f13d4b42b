"""Parquet tables."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from forecast.errors import InputError
from forecast.runs.readers.base import SOURCE_ROW, RawLog
from forecast.runs.readers.naming import run_name
from forecast.runs.readers.times import fill_time
from forecast.runs.receipt import Receipt

MAGIC = b"PAR1"
_RUN_TABLE = b"rlforecast"


def is_run_table(path: str | Path) -> bool:
    """Whether `path` is a run table saved by `Runs.save`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with Path(path).open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                return False
        return _RUN_TABLE in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def read_parquet(path: Path) -> list[RawLog]:
    """Read a table; nested fields are named with ``/``.

    Raises
    ------
    InputError
        If it is damaged or empty.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            "Parquet file is damaged",
            where=path,
            found=str(error)[:100],
            fix="write it again; it may be cut off",
        ) from error
    plain = set(table.column_names)
    while any(pa.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    names = [name if name in plain else name.replace(".", "/") for name in table.column_names]
    records = table.rename_columns(names).to_pandas()
    if isinstance(records.index.name, str) or records.index.nlevels > 1:
        records = records.reset_index()
    records = records.reset_index(drop=True)
    if records.empty:
        raise InputError("Parquet table without rows", where=path, found=f"columns {', '.join(names)[:80]}")
    receipt = Receipt(str(path), "parquet", rows_read=len(records))
    for column in records.columns:
        if records[column].dtype == object and records[column].map(type).eq(Decimal).any():
            records[column] = records[column].astype(float)
    records[SOURCE_ROW] = range(1, len(records) + 1)
    fill_time(records)
    name = run_name(path)
    receipt.runs = [name]
    return [RawLog(path, "parquet", name, records, receipt)]
