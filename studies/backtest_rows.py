"""Backtests of logged runs as rows of a study: one scale for all metrics, their scores, the data's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from forecast.outlook.backtest import Backtest
    from forecast.runs.table import Runs

SKIPPED = "skipped"
"""Method of the rows that say which run could not be scored, and why."""

LEVELS = (50, 80, 95)

FEW = 5
"""Independent errors below which figures draw no bar: they say nothing of their own spread."""

ABOUT = "share of later evaluations inside (bars: 95 % sampling error)"
"""What the figures show."""


def backtest_rows(result: Backtest) -> pd.DataFrame:
    """All forecasts in fractions of the metric's scale, then what was skipped and why."""
    import pandas as pd

    from forecast.outlook.contenders import QUANTILES

    low, high = sorted(result.metric.scale)
    rows = result.forecasts.copy()
    values, sizes = ["observed", "mean", *QUANTILES], ["error", "crps"]
    rows[values] = (rows[values].astype(float) - low) / (high - low)
    rows[sizes] = rows[sizes].astype(float) / (high - low)
    rows["log_score"] = rows["log_score"].astype(float) + np.log(high - low)
    return pd.concat([rows, result.skipped.assign(method=SKIPPED)], ignore_index=True)


def scores(rows: pd.DataFrame) -> dict[str, Any]:
    """Our scores over all evaluations, and those of the incumbents beside them; NaN where nothing was scored.

    Runs of different experiments must not share a name.
    """
    from forecast.outlook.backtest_summary import summarise

    scored = rows[rows["method"] != SKIPPED]
    if scored.empty:
        return _columns(0, 0.0, {})
    methods = summarise(scored, None, (0.0, 1.0)).set_index("method").to_dict("index")
    return _columns(scored["run"].nunique(), methods["rlforecast"]["effective"], methods)


def scores_by_run(rows: pd.DataFrame) -> dict[str, Any]:
    """As `scores`, each run weighing the same however often it was evaluated."""
    from forecast.outlook.backtest_summary import summarise
    from forecast.outlook.contenders import GRID, METHODS

    scored = rows[rows["method"] != SKIPPED]
    if scored.empty:
        return _columns(0, 0.0, {})
    by_run = summarise(scored, "run", (0.0, 1.0))
    methods = by_run.groupby("method").mean(numeric_only=True)
    crps = by_run.pivot(index="run", columns="method", values="crps").reindex(columns=list(METHODS))
    for method in methods.index:
        # Of means, on the runs that both could be fitted to: ratios of single runs have no bound.
        both = crps[method].notna() & crps[GRID].notna()
        methods.loc[method, "crps_ratio"] = crps.loc[both, method].mean() / crps.loc[both, GRID].mean()
    methods["rmse"] = np.sqrt((by_run.set_index("method")["rmse"] ** 2).groupby("method").mean())
    runs = scored["run"].nunique()
    return _columns(runs, float(runs), methods.to_dict("index"))


def _columns(runs: int, effective: float, methods: Mapping[Any, Mapping[Any, Any]]) -> dict[str, Any]:
    def of(method: str, name: str) -> float:
        return float(methods.get(method, {}).get(name, np.nan))

    return {
        "scored": runs,
        "effective": effective,
        **{name: of("rlforecast", name) for name in ("bias", "rmse", "crps", "crps_ratio")},
        **{f"coverage_{level}": of("rlforecast", f"coverage_{level}") for level in LEVELS},
        "width_95": of("rlforecast", "width_95"),
        "grid_within_02": of("least_squares", "within_02"),
        "covariance_crps_ratio": of("least_squares_covariance", "crps_ratio"),
        "power_law_crps_ratio": of("power_law", "crps_ratio"),
    }


def shown(value: float, form: str) -> str:
    """A number as `form` says, or a dash where there is none."""
    return format(value, form) if np.isfinite(value) else "-"


def bar(what: str, value: float, *, most: float | None = None, least: float | None = None) -> str:
    """One line of Markdown: does a score keep to what was asked of it?"""
    limit, sign = (most, "<=") if most is not None else (least, ">=")
    assert limit is not None
    held = value <= limit if most is not None else value >= limit
    return f"- {what} {sign} {limit:.2f}: {'holds' if held else 'does not hold'} ({shown(value, '.3f')})"


def data_sha256(tables: Iterable[Runs]) -> str:
    """Hash of run tables, in whatever order they were read."""
    return hashlib.sha256("".join(sorted(table.hash() for table in tables)).encode()).hexdigest()
