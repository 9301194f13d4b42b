"""Scores of a backtest, averaged: overall, by cut, by distance, by run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from forecast.errors import InputError
from forecast.outlook.contenders import GRID, METHODS, OURS

INTERVALS = {50: ("q25", "q75"), 80: ("q10", "q90"), 90: ("q05", "q95"), 95: ("q025", "q975")}
"""Percent inside an equal-tailed interval and the columns of its ends."""

MARGIN = 0.02
"""Error bar (fraction) that ScaleRL attaches to a fitted ceiling."""

BINS: dict[str, tuple[list[float], list[str]]] = {
    "times_fitted": ([1.0, 1.5, 2.0, 4.0, np.inf], ["1-1.5", "1.5-2", "2-4", ">4"]),
    "times_midpoint": ([0.0, 1.0, 2.0, 4.0, np.inf], ["<1", "1-2", "2-4", ">4"]),
}
"""Edges (the upper one belongs to the bin) and names."""

BY = ("cut", "run", *BINS)


def summarise(forecasts: pd.DataFrame, by: str | None, scale: tuple[float, float]) -> pd.DataFrame:
    """Average the scores of every method, overall or within groups.

    Parameters
    ----------
    forecasts : pandas.DataFrame
        As `Backtest.forecasts`.
    by : {None, "cut", "run", "times_fitted", "times_midpoint"}
        The distances are binned, see `BINS`.
    scale : tuple of float
        Of the metric.

    Returns
    -------
    pandas.DataFrame
        See `Backtest.summary`.

    Raises
    ------
    InputError
        If `by` is something else.
    """
    if by is not None and by not in BY:
        raise InputError("cannot summarise by", found=repr(by), expected=" | ".join(BY))
    margin = MARGIN * abs(scale[1] - scale[0])
    groups = [(None, forecasts)] if by is None else _groups(forecasts, by)
    rows = []
    for name, group in groups:
        grid = group[group["method"] == GRID].set_index(_KEY)["crps"]
        expected = int((group["method"] == OURS).sum())
        for method in METHODS:
            own = group[group["method"] == method]
            if own.empty:
                continue
            key = {} if by is None else {by: name}
            rows.append(key | _row(method, own, grid, margin) | {"missing": expected - len(own)})
    return pd.DataFrame(rows)


_KEY = ["cut", "run", "compute"]


def _groups(forecasts: pd.DataFrame, by: str) -> list[tuple[Any, pd.DataFrame]]:
    values = forecasts[by]
    if by in BINS:
        edges, labels = BINS[by]
        values = pd.cut(values, edges, labels=labels)
    return list(forecasts.groupby(values, sort=by in BINS, observed=True))


def _row(method: str, own: pd.DataFrame, grid: pd.Series, margin: float) -> dict[str, Any]:
    error = own["error"].to_numpy()
    shared = own.set_index(_KEY)["crps"].reindex(grid.index)
    both = shared.notna().to_numpy()
    row: dict[str, Any] = {
        "method": method,
        "evaluations": len(own),
        "runs": own["run"].nunique(),
        "effective": effective_number(error, own["run"].to_numpy()),
        "bias": error.mean(),
        "rmse": np.sqrt(np.mean(error**2)),
        "crps": own["crps"].mean(),
        "crps_ratio": _ratio(shared[both].sum(), grid[both].sum()),
        "log_score": own["log_score"].mean(),
    }
    point = own["q50"].isna().to_numpy().all()
    for level, (low, high) in INTERVALS.items():
        inside = (own[low] <= own["observed"]) & (own["observed"] <= own[high])
        row[f"coverage_{level}"] = np.nan if point else inside.mean()
    for level, (low, high) in INTERVALS.items():
        row[f"width_{level}"] = (own[high] - own[low]).mean()
    row["within_02"] = np.mean(np.abs(error) <= margin)
    return row


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else np.nan


_FEW_RUNS = 5


def effective_number(errors: ArrayLike, runs: ArrayLike) -> float:
    """How many independent errors these are worth, since those of one run move together.

    ``n / (1 + (m - 1) ICC)`` (Kish 1965) with m the size of the run that an evaluation belongs to, averaged over
    evaluations, and ICC the share of the errors' variance that lies between runs, from a one-way analysis of
    variance: ``(B - W) / (B + (m0 - 1) W)``, B and W the mean squares between and within runs and
    ``m0 = (n - sum m_j^2 / n) / (k - 1)`` for k runs; within 0-1. The errors of a run count as one where there are
    fewer than five runs, which do not tell how far runs differ.
    """
    errors = np.asarray(errors, dtype=float)
    _, run, sizes = np.unique(np.asarray(runs), return_inverse=True, return_counts=True)
    n, k = len(errors), len(sizes)
    if k < _FEW_RUNS:
        return float(k)
    if n == k:
        return float(n)
    means = np.bincount(run, errors) / sizes
    between = float(sizes @ (means - errors.mean()) ** 2) / (k - 1)
    within = float(np.sum((errors - means[run]) ** 2)) / (n - k)
    typical = (n - np.sum(sizes**2) / n) / (k - 1)
    total = between + (typical - 1) * within
    correlation = float(np.clip((between - within) / total, 0.0, 1.0)) if total > 0 else 1.0
    return float(n / (1 + (np.sum(sizes**2) / n - 1) * correlation))
