"""Evaluations of one run in the form of the run table: floor taken out, trials added, classes averaged."""

from __future__ import annotations

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs import checks, columns
from forecast.runs.accounts import SOURCE, Accounts
from forecast.runs.readers.base import SOURCE_ROW
from forecast.runs.series import STEP, VALUE, Series
from forecast.runs.spec import MetricSpec
from forecast.runs.table import Floor


def finish(
    rows: pd.DataFrame, series: Series, declared_floor: float | None, metric: MetricSpec, accounts: Accounts
) -> tuple[pd.DataFrame, Floor | None]:
    """Make rows of the run table.

    Parameters
    ----------
    rows : pandas.DataFrame
        Evaluations with ``compute``, ``stratum`` and the columns of `Series.frame`.
    series : Series
        The run they belong to.
    declared_floor : float or None
        Value before training, where it was declared; it replaces a logged one.
    metric : MetricSpec
        The declared metric.
    accounts : Accounts
        Receipts.

    Returns
    -------
    table : pandas.DataFrame
        Columns of the run table except run and its labels.
    floor : Floor or None
        Evaluation of the whole set before training.
    """
    where = rows[SOURCE].iloc[0] if len(rows) else f"run {series.run}"
    checks.check_values(rows[VALUE].to_numpy(dtype=float), rows, series.metric, metric, where)
    rows = rows.assign(trials=_trials(rows, metric, where))
    classed = rows["stratum"].notna()
    if metric.trials is None and metric.prompts is not None and classed.any() and not classed.all():
        rows.loc[classed, "trials"] = pd.NA
        accounts.note(
            rows,
            "prompts is the size of the whole set: trials of the prompt classes need a trials column",
        )
    # A value on training prompts at step 0 may be that of the first batch trained on; a held-out one is not.
    step_0 = (rows[STEP] == 0) & (series.has_step and metric.split != "train")
    before = (rows["compute"].fillna(0) == 0) | step_0
    initial = rows[before]
    first = ~initial.duplicated("stratum", keep="last")
    floors = {
        None if pd.isna(r["stratum"]) else str(r["stratum"]): Floor(
            float(r[VALUE]), None if pd.isna(r["trials"]) else int(r["trials"])
        )
        for _, r in initial[first].iterrows()
    }
    rows = accounts.drop(
        rows.reset_index(drop=True),
        (before & ~first.reindex(rows.index, fill_value=True)).to_numpy(),
        "another evaluation before training",
    )
    before = (rows["compute"].fillna(0) == 0) | (
        (rows[STEP] == 0) & (series.has_step and metric.split != "train")
    )
    late = rows[~before].reset_index(drop=True)
    table = pd.DataFrame(
        {
            "compute": late["compute"].astype(float),
            "value": late[VALUE].astype(float),
            "trials": late["trials"],
            "stratum": late["stratum"].astype(object),
            "step": late[STEP].astype(float) if series.has_step else np.nan,
            "source": late[SOURCE],
            "source_row": late[SOURCE_ROW],
        }
    )
    overall = _mean_of_classes(table)
    if len(overall):
        classes = table["stratum"].nunique()
        how = "weighted by trials" if overall["trials"].notna().all() else "each of equal weight"
        accounts.note(
            rows,
            f"run {series.run}: no row evaluates the whole set; the mean of its {classes} classes ({how}) "
            f"stands for it at {len(overall)} points",
        )
        if None not in floors and set(floors) == set(table["stratum"]):
            floors[None] = _mean_floor(list(floors.values()))
        table = pd.concat([table, overall], ignore_index=True)
    elif len(floors) > (None in floors):
        early = (before & rows["stratum"].notna()).to_numpy()
        accounts.drop(rows, early, "evaluation of a prompt class before training")
    if table.empty:
        gone, reason = np.ones(len(rows), dtype=bool), "of a run without an evaluation after training began"
    elif declared_floor is not None:
        gone, reason = (before & rows["stratum"].isna()).to_numpy(), "replaced by the declared floor"
    else:
        return table, floors.get(None)
    accounts.drop(rows, gone, reason)
    return table, floors.get(None) if declared_floor is None else Floor(declared_floor)


def _trials(rows: pd.DataFrame, metric: MetricSpec, where: object) -> pd.Series:
    if metric.trials is None:
        count = None if metric.prompts is None else metric.prompts * (metric.samples_per_prompt or 1)
        return pd.Series(count, index=rows.index, dtype="Int64")
    if rows.empty:
        return pd.Series(dtype="Int64")
    trials = columns.numbers(rows, metric.trials, where)
    broken = ~np.isnan(trials) & ((trials != np.round(trials)) | (trials < 1) | (trials > 1e15))
    if broken.any():
        i = int(np.flatnonzero(broken)[0])
        raise InputError(
            "trials must be whole numbers from 1 on",
            where=f"{where}, row {rows[SOURCE_ROW].iloc[i]}, column {metric.trials}",
            found=f"{trials[i]:g}",
            fix="correct the cell, or leave it blank where the size is not known",
        )
    return pd.Series(trials, index=rows.index).astype("Int64")


def _mean_of_classes(table: pd.DataFrame) -> pd.DataFrame:
    """Return whole-set evaluations where only prompt classes were logged, at points that have all of them."""
    classes = table["stratum"].nunique()
    if not classes or table["stratum"].isna().any():
        return table.head(0)
    groups = table.groupby("compute")
    complete = table[groups["stratum"].transform("nunique") == classes]
    known = bool(complete["trials"].notna().all()) and len(complete) > 0
    weight = complete["trials"].astype(float) if known else pd.Series(1.0, index=complete.index)
    sums = complete.assign(value=complete["value"] * weight, weight=weight).groupby("compute", as_index=False)
    mean = sums.agg(value=("value", "sum"), weight=("weight", "sum"), step=("step", "first"))
    trials = mean["weight"].astype("Int64") if known else pd.Series(pd.NA, index=mean.index, dtype="Int64")
    return pd.DataFrame(
        {
            "compute": mean["compute"],
            "value": mean["value"] / mean["weight"],
            "trials": trials,
            "stratum": pd.Series(None, index=mean.index, dtype=object),
            "step": mean["step"],
        }
    )


def _mean_floor(floors: list[Floor]) -> Floor:
    counts = [floor.trials for floor in floors if floor.trials is not None]
    if len(counts) < len(floors):
        return Floor(float(np.mean([floor.value for floor in floors])))
    return Floor(float(np.average([floor.value for floor in floors], weights=counts)), sum(counts))
