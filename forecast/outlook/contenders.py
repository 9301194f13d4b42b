"""What every method would have said of one cut run, scored on what came later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecast.inference.curve_fit import fit_curve
from forecast.inference.least_squares import WIDE_CEILINGS, least_squares
from forecast.outlook.cuts import CutRun
from forecast.outlook.draws import CurveDraws
from forecast.outlook.scores import crps, log_score, pit
from forecast.runs.table import Metric

Array = NDArray[np.float64]

METHODS = {
    "rlforecast": "rlforecast",
    "least_squares": "least squares (grid)",
    "least_squares_covariance": "least squares + covariance",
    "power_law": "power law",
    "last_value": "last value",
}
"""As tables and figures name them; ScaleRL's grid, the power law and the last value are point forecasts."""

OURS, GRID = "rlforecast", "least_squares"

QUANTILES = {
    "q025": 0.025,
    "q05": 0.05,
    "q10": 0.10,
    "q25": 0.25,
    "q50": 0.50,
    "q75": 0.75,
    "q90": 0.90,
    "q95": 0.95,
    "q975": 0.975,
}
_DRAWS = 1000  # of a curve fit


@dataclass(frozen=True)
class Forecast:
    """One method's forecast of a run's later evaluations, as fractions.

    Attributes
    ----------
    method : str
        One of `METHODS`.
    point : ndarray, shape (points,)
    curve, sd : ndarray or None, shape (S, points)
        Draws of the curve, and the sd of an evaluation around each.
    evaluation : ndarray or None, shape (S, points)
        Draws of the evaluations.
    """

    method: str
    point: Array
    curve: Array | None = None
    sd: Array | None = None
    evaluation: Array | None = None


def score_run(run: CutRun, curve: CurveDraws, metric: Metric, seed: int, cut: int) -> list[dict[str, Any]]:
    """Score our draws and every incumbent on the later evaluations of one run.

    Returns
    -------
    list of dict
        One per method that could be fitted: columns of the forecast table, all of the same length or scalar.
    """
    shared = {
        "run": run.name,
        "recipe": run.recipe,
        "fitted_points": len(run.compute),
        "fitted_upto": run.fitted_upto,
        "compute": run.later_compute,
        "times_fitted": run.later_compute / run.fitted_upto,
        "times_midpoint": run.later_compute / float(np.median(curve.midpoint)),
        "observed": run.later_value,
    }
    forecasts = [_ours(run, curve, seed, cut), *_incumbents(run, seed, cut)]
    return [
        shared | {"method": forecast.method} | _scores(forecast, run.later_value, metric)
        for forecast in forecasts
    ]


def _ours(run: CutRun, curve: CurveDraws, seed: int, cut: int) -> Forecast:
    values = curve.curve(run.later_compute)
    evaluation = curve.evaluation(run.later_compute, run.trials, _rng(seed, run, cut, 1))
    return Forecast(
        OURS, evaluation.mean(axis=0), values, curve.evaluation_sd(values, run.trials), evaluation
    )


def _incumbents(run: CutRun, seed: int, cut: int) -> Iterable[Forecast]:
    floor = run.floor
    if floor is None or floor < WIDE_CEILINGS[-1]:
        grid = least_squares(run.compute, run.fraction, floor)
        if grid is not None:
            yield Forecast(GRID, grid.predict(run.later_compute))
    fitted = fit_curve("sigmoid", run.compute, run.fraction, floor)
    if fitted is not None:
        rng = _rng(seed, run, cut, 2)
        curve = fitted.draws(run.later_compute, _DRAWS, rng)
        sd = np.full_like(curve, fitted.residual_sd)
        evaluation = np.clip(curve + sd * rng.standard_normal((_DRAWS, 1)), 0.0, 1.0)
        point = fitted.predict(run.later_compute)
        yield Forecast("least_squares_covariance", point, curve, sd, evaluation)
    # A point forecast: its exponent and midpoint are often one parameter, whose covariance would do it injustice.
    power_law = fit_curve("power_law", run.compute, run.fraction, floor)
    if power_law is not None:
        yield Forecast("power_law", power_law.predict(run.later_compute))
    yield Forecast("last_value", np.full(len(run.later_compute), run.fraction[-1]))


def _scores(forecast: Forecast, observed: Array, metric: Metric) -> dict[str, Array]:
    """Point, quantiles and scores on the metric's scale."""
    point = metric.from_fraction(forecast.point)
    error = point - observed
    columns = {"mean": point, "error": error}
    if forecast.curve is None or forecast.sd is None or forecast.evaluation is None:
        nothing = np.full(len(observed), np.nan)
        return columns | dict.fromkeys((*QUANTILES, "log_score", "pit"), nothing) | {"crps": np.abs(error)}
    zero, one = metric.scale
    curve, sd = metric.from_fraction(forecast.curve), forecast.sd * abs(one - zero)
    draws = metric.from_fraction(forecast.evaluation)
    quantiles = np.quantile(draws, list(QUANTILES.values()), axis=0)
    return (
        columns
        | dict(zip(QUANTILES, quantiles, strict=True))
        | {
            "crps": crps(draws, observed),
            "log_score": log_score(curve, sd, observed),
            "pit": pit(curve, sd, observed),
        }
    )


def _rng(seed: int, run: CutRun, cut: int, stream: int) -> np.random.Generator:
    # Ends in a positive number: NumPy pads seeds with zeros, so the engine's shorter list is another stream.
    return np.random.default_rng([seed, run.number, cut, stream])
