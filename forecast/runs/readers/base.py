"""What every reader returns: the records of one source as they were logged, and a receipt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forecast.runs.receipt import Receipt

SOURCE_ROW = "__source_row__"
"""Column of `RawLog.records`: 1-based line, row or record number in the source."""

LAUNCH = "__launch__"
"""Optional column of `RawLog.records`: an identifier where the source itself tells launches apart."""

TIME = "__time__"
"""Optional column of `RawLog.records`: seconds (any origin) at which the record was written, where known."""


@dataclass
class RawLog:
    """Records of one source before anybody decided what they mean.

    Attributes
    ----------
    source : Path
        The file (or TensorBoard folder) read.
    format : str
        Reader's name.
    name : str
        Name for the run when the source holds one run (from a header line, else file or folder name).
    records : pandas.DataFrame
        One row per logged record, in file order. Column names are the keys as logged; numbers are numbers
        (also when they were logged as strings such as ``"0.5"``), blanks and nulls are NaN, the rest stays as
        logged. Plus `SOURCE_ROW`, and `LAUNCH` / `TIME` where known.
    receipt : Receipt
        Rows read and dropped so far.
    step : str or None
        Column that the format defines as the step, if it does.
    run : str or None
        Column that names the run when the source itself holds several (wide exports are made long first).
    """

    source: Path
    format: str
    name: str
    records: pd.DataFrame
    receipt: Receipt
    step: str | None = None
    run: str | None = None
