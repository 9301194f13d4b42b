"""Cut every run early, refit, and score the forecast on what came later."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.inference.observations import observe
from forecast.inference.priors import get_priors, pooled_parameters
from forecast.outlook.backtest_summary import BY, summarise
from forecast.outlook.contenders import QUANTILES
from forecast.outlook.cuts import make_cuts
from forecast.outlook.refits import Rows, refit_alone, refit_together
from forecast.runs.table import Metric, Runs

if TYPE_CHECKING:
    from forecast.inference.sampling import Report

ENGINES = ("particle", "hierarchical")
SIBLINGS = ("cut", "whole")
FRACTIONS = (0.25, 0.5)
COLUMNS = (
    *("cut", "run", "recipe", "method", "fitted_points", "fitted_upto", "compute", "unit"),
    *("times_fitted", "times_midpoint", "observed", "mean", *QUANTILES, "error", "crps", "log_score", "pit"),
)
_VERSIONS = ("rlforecast", "numpy", "scipy", "numba", "pymc", "nutpie")


@dataclass(frozen=True)
class Backtest:
    """Forecasts made early, beside what was observed later.

    Attributes
    ----------
    forecasts : pandas.DataFrame
        One row per cut, run, later evaluation and method, columns `COLUMNS`; all values, errors and scores are in
        metric units. ``mean`` is the point forecast: the mean of our draws, the fitted curve of an incumbent.
        ``q025 ... q975`` are quantiles of the evaluation, NaN for a point forecast, and so are ``log_score`` (log
        density, larger is better) and ``pit`` (forecast probability of less than was observed). ``times_fitted``
        is compute / largest fitted compute, ``times_midpoint`` compute / our median midpoint.
    skipped : pandas.DataFrame
        Columns cut, run, reason: what could not be scored.
    metric : Metric
    settings : mapping
        What was asked for.
    data_sha256 : str
        Of the run table.
    """

    forecasts: pd.DataFrame
    skipped: pd.DataFrame
    metric: Metric
    settings: Mapping[str, Any]
    data_sha256: str

    def __repr__(self) -> str:
        scored = self.forecasts[["cut", "run"]].drop_duplicates()
        return (
            f"Backtest({len(scored)} refits of {scored['run'].nunique()} runs, "
            f"{len(self.forecasts)} scored forecasts, {len(self.skipped)} skipped)"
        )

    def summary(self, by: str | None = None) -> pd.DataFrame:
        """Average the scores.

        Parameters
        ----------
        by : {None, "cut", "run", "times_fitted", "times_midpoint"}
            Distances are binned.

        Returns
        -------
        pandas.DataFrame
            One row per group and method: ``method, evaluations, runs, effective`` (independent errors they are
            worth, see `effective_number`), ``bias, rmse, crps`` (metric units), ``crps_ratio`` (to least squares
            on the same evaluations), ``log_score``, ``coverage_50 ... width_95`` (NaN for point forecasts),
            ``within_02`` (errors of at most .02 of the scale) and ``missing`` (evaluations of runs that the
            method could not be fitted to).

        Raises
        ------
        InputError
            If `by` is something else.
        """
        return summarise(self.forecasts, by, self.metric.scale)

    def to_dict(self) -> dict[str, Any]:
        """Return settings, versions, summaries and what was skipped as plain JSON types."""

        def records(table: pd.DataFrame) -> list[dict[str, Any]]:
            return json.loads(table.to_json(orient="records", double_precision=12))

        return {
            "settings": dict(self.settings),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in _VERSIONS},
            "data_sha256": self.data_sha256,
            "metric": {"name": self.metric.name, "kind": self.metric.kind, "scale": list(self.metric.scale)},
            "summary": records(self.summary()),
            **{f"summary_by_{by}": records(self.summary(by)) for by in BY},
            "skipped": records(self.skipped),
        }


def backtest(
    runs: Runs,
    *,
    fractions: Sequence[float] | None = None,
    upto: Sequence[float] | Mapping[str, float] | None = None,
    engine: str = "particle",
    siblings: str = "cut",
    prior: str = "wide",
    floor: str | float = "measured",
    pool: str = "auto",
    seed: int = 0,
    workers: int | None = None,
    report: Report | None = None,
) -> Backtest:
    """Cut runs early, refit, and score every later evaluation of the whole prompt set.

    Parameters
    ----------
    runs : Runs
    fractions : sequence of float, optional
        Cut each run at these shares of its own largest compute. Default .25 and .5.
    upto : sequence of float, or mapping of str to float, optional
        Cut all runs at these computes instead, or each run at its own (run -> compute).
    engine : {"particle", "hierarchical"}
        Every run by itself (fast), or all runs of a cut in one hierarchical fit.
    siblings : {"cut", "whole"}
        With the hierarchical engine ``whole`` cuts one run of each recipe at a time and leaves its siblings as
        they are, as when a new seed is started of a recipe that has been run: one fit per run of a recipe.
    prior, floor, pool
        As in `forecast.fit`; nothing is pooled by the particle engine.
    seed : int
        The same seed gives the same result with any number of workers.
    workers : int, optional
        Threads of the particle engine; default as many as there are cores.
    report : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    Backtest
        Also if no run could be scored.

    Raises
    ------
    InputError
        If an argument is wrong or a cut leaves nothing to fit or nothing to score.
    """
    for what, value, allowed in (("engine", engine, ENGINES), ("siblings", siblings, SIBLINGS)):
        if value not in allowed:
            raise InputError(f"unknown {what}", found=repr(value), expected=" | ".join(allowed))
    if siblings == "whole" and engine == "particle":
        raise InputError(
            "siblings teach nothing to the particle engine, which fits every run by itself",
            found="siblings whole",
            fix="ask for the hierarchical engine (--engine hierarchical)",
        )
    if engine == "particle" and pool not in ("auto", "none"):
        raise InputError(
            "the particle engine fits each run by itself and pools nothing",
            found=f"--pool {pool}",
            fix="leave --pool out, or use --engine hierarchical",
        )
    if seed < 0:
        raise InputError("seed must not be negative", found=seed)
    if workers is not None and workers < 1:
        raise InputError("workers must be at least 1", found=workers)
    priors = get_priors(prior)
    pooled_parameters(pool, 1)
    observe(runs, floor)  # fail on a wrong floor, or no evaluation at all, before any work
    if fractions is None and upto is None:
        fractions = FRACTIONS
    cuts = make_cuts(runs, fractions, upto)
    quiet: Report = report or (lambda stage, done, total: None)
    rows: Rows = []
    skipped: list[tuple[str, str, str]] = []
    if engine == "particle":
        work = refit_alone(runs, cuts, priors, floor, seed, workers or os.cpu_count() or 1, quiet)
    else:
        options = {"prior": prior, "floor": floor, "pool": pool, "seed": seed, "report": quiet}
        work = refit_together(runs, cuts, siblings, options)
    for cut, own_rows, own_skipped in work:
        rows += [row | {"cut": cut.label} for row in own_rows]
        skipped += [(cut.label, name, reason) for name, reason in own_skipped.items()]
    asked = {"fractions": fractions, "upto": upto}
    return Backtest(
        forecasts=_table(rows, runs.compute.unit),
        skipped=pd.DataFrame(skipped, columns=["cut", "run", "reason"], dtype=str),
        metric=runs.metric,
        settings={
            "cuts": [cut.label for cut in cuts],
            **{
                key: dict(value) if isinstance(value, Mapping) else None if value is None else list(value)
                for key, value in asked.items()
            },
            **{"engine": engine, "siblings": siblings, "prior": prior, "floor": floor, "seed": seed},
            "pool": pool if engine == "hierarchical" else "none",
        },
        data_sha256=runs.hash(),
    )


def _table(rows: Rows, unit: str) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    sizes = [len(row["compute"]) for row in rows]
    columns = {}
    for name in COLUMNS:
        if name == "unit":
            columns[name] = np.full(sum(sizes), unit, dtype=object)
            continue
        parts = [row[name] for row in rows]
        if isinstance(parts[0], np.ndarray):
            columns[name] = np.concatenate(parts)
        else:
            columns[name] = np.repeat(
                np.array(parts, dtype=object if isinstance(parts[0], str) else None), sizes
            )
    return pd.DataFrame(columns).astype(dict.fromkeys(("cut", "run", "recipe", "method", "unit"), "str"))
