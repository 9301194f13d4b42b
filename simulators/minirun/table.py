"""Logs of mini-runs as a run table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from forecast.errors import InputError
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

UNITS = {"flops": "flops", "tokens": "tokens", "rollouts": "rollouts", "steps": "step"}
"""Column of the logs that holds each unit of compute."""

_DERIVATION = {
    "flops": "generation and training, prompts and responses; warm start and evaluation apart",
    "tokens": "generated for the updates made, prompts once per group",
    "rollouts": "sampled for the updates made",
    "steps": "updates",
}


def run_table(logs: Mapping[str, Sequence[Mapping[Any, Any]]], unit: str = "flops") -> Runs:
    """Make a run table of logs by name of run.

    Parameters
    ----------
    logs : mapping of str to sequence of dict
        Rows as `simulators.minirun.training.train` returns them.
    unit : str
        Of compute, one of `UNITS`.

    Raises
    ------
    InputError
        If there is no such unit.
    """
    if unit not in UNITS:
        raise InputError("unknown unit of compute", found=repr(unit), expected=" | ".join(UNITS))
    tables, floors = [], {}
    for run, rows in logs.items():
        records = pd.DataFrame(rows)
        start = records[(records["step"] == 0) & records["stratum"].isna()].iloc[0]
        floors[run] = Floor(float(start["pass_rate"]), int(start["trials"]))
        later = records[records["step"] > 0]
        tables.append(
            later[["recipe", "pass_rate", "trials", "stratum", "step", "seed", "task"]]
            .rename(columns={"pass_rate": "value"})
            .assign(run=run, compute=later[UNITS[unit]].astype(float))
        )
    return Runs(
        table=pd.concat(tables, ignore_index=True),
        metric=Metric("pass_rate", split="validation"),
        compute=ComputeAxis(unit, derivation=_DERIVATION[unit]),
        floors=floors,
    )
