"""The saved result of a stress test, as the page shows it."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forecast.errors import InputError
from forecast.report.words import MISSING, value_text

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit
    from forecast.runs.table import Metric

TRANSITIONS = ("excluded", "averaged")


@dataclass(frozen=True)
class StressPart:
    """What the page says of a stress test.

    Attributes
    ----------
    rows : list of list of str
        Cells by scenario, in the order of the columns on the page.
    sentences : list of str
    figure : str
        PNG as a data URI.
    command : str
        What makes it again.
    """

    rows: list[list[str]]
    sentences: list[str]
    figure: str
    command: str


def read_stress(folder: str | Path, fit: Fit) -> StressPart:
    """Read what ``rlforecast stress`` wrote.

    Parameters
    ----------
    folder : path
    fit : Fit
        The result must be of this fit.

    Raises
    ------
    InputError
        If the folder holds no stress test, or that of another fit.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    data, image = folder / "stress.parquet", folder / "stress.png"
    try:
        arrow = pq.read_table(data)
        told: dict[str, Any] = json.loads((arrow.schema.metadata or {})[b"rlforecast"])
        settings, command = told["settings"], str(told["command"])
        sentences, fitted = [str(text) for text in settings["sentences"]], dict(settings["fit"])
        rows = stress_rows(arrow.to_pandas(), fit.runs.metric)
        picture = base64.b64encode(image.read_bytes()).decode("ascii")
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InputError(
            "not the result of a stress test",
            where=folder,
            found=type(error).__name__ if data.is_file() else "no stress.parquet",
            fix="name the folder that rlforecast stress wrote",
        ) from error
    if told["study"] != "stress" or told["data_sha256"] != fit.runs.hash():
        raise InputError(
            "stress test of another fit: its data differ", where=folder, fix="run rlforecast stress again"
        )
    if fitted != json.loads(json.dumps(asdict(fit.settings))):
        raise InputError(
            "stress test of another fit of these data", where=folder, fix="run rlforecast stress again"
        )
    return StressPart(rows, sentences, f"data:image/png;base64,{picture}", command)


def stress_rows(table: pd.DataFrame, metric: Metric) -> list[list[str]]:
    """Cells of the table on the page, one list per scenario."""

    def share(row: pd.Series, column: str) -> str:
        value, error = float(row[column]), float(row[f"{column}_se"])
        return f"{value:.2f} ± {error:.2f}" if np.isfinite(value) else MISSING

    def pair(texts: list[str]) -> str:
        return " / ".join(texts)

    return [
        [
            str(row["scenario"]),
            pair([f"{row[f'curve_90_{t}']:.2f}" for t in TRANSITIONS]),
            pair([f"{row[f'curve_95_{t}']:.2f}" for t in TRANSITIONS]),
            pair([f"{row[f'evaluation_90_{t}']:.2f}" for t in TRANSITIONS]),
            pair([value_text(row[f"width_90_{t}"], metric) for t in TRANSITIONS]),
            pair([value_text(row[f"bias_{t}"], metric, signed=True) for t in TRANSITIONS]),
            share(row, "detected"),
            f"{row['delay']:.2f}" if np.isfinite(row["delay"]) else MISSING,
            share(row, "false_alarm"),
            pair([f"{row[f'wrong_{t}']:.2f}" for t in TRANSITIONS]),
            pair([value_text(row[f"regret_{t}"], metric) for t in TRANSITIONS]),
        ]
        for _, row in table.iterrows()
    ]
