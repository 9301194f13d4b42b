"""The curves of a fit by level and name: draws, the runs behind them, the incumbent's curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from forecast.errors import InputError
from forecast.inference.least_squares import WIDE_CEILINGS, LeastSquares, least_squares
from forecast.inference.priors import drift_sd
from forecast.outlook.draws import LEVELS, CurveDraws, recipe_draws, run_draws

if TYPE_CHECKING:
    from forecast.fits import Fit


def curve_names(fit: Fit, level: str) -> list[str]:
    """Names that can be forecast at a level.

    Raises
    ------
    InputError
        If runs were fitted by themselves and a recipe has several, which then have no common curve.
    """
    if level == "run":
        return list(fit.observations.runs)
    if "recipe_gain" not in fit.draws:
        raise InputError(
            "the particle engine fitted each run by itself, so recipes with several runs have no curve",
            found=f"level {level}",
            fix="fit with --engine hierarchical",
        )
    return list(fit.observations.recipes)


def members(fit: Fit, level: str, name: str) -> list[str]:
    """Fitted runs behind a run or recipe."""
    if level == "run":
        return [name]
    return [run for run in fit.observations.runs if fit.runs.recipes[run] == name]


def models_of(fit: Fit, runs: Sequence[str]) -> list[str]:
    """Base models that these runs declare."""
    table = fit.runs.table
    return sorted(set(table.loc[table["run"].isin(list(runs)), "model"].dropna()))


def model_of(fit: Fit, runs: Sequence[str]) -> str:
    """Base model that all these runs declare; empty where they declare none, or different ones."""
    models = models_of(fit, runs)
    return models[0] if len(models) == 1 else ""


def curve_draws(fit: Fit, level: str, name: str, *, independent: bool = False) -> CurveDraws | None:
    """Draws of one curve; None when the independent fit is asked for and there is none."""
    posterior: xr.Dataset | None = fit.independent_draws if independent else fit.draws
    if posterior is None:
        return None
    observations = fit.observations
    runs = members(fit, level, name)
    rng = np.random.default_rng([fit.settings.seed, LEVELS.index(level), curve_names(fit, level).index(name)])
    at = [observations.runs.index(run) for run in runs]
    upto = float(observations.fitted_upto[at].max())
    drift = drift_sd(trials_per_evaluation(fit, runs))
    if level == "run":
        return run_draws(posterior, name, upto, drift, rng)
    return recipe_draws(posterior, name, runs, upto, drift, rng, new_run=level == "new_run")


def trials_per_evaluation(fit: Fit, runs: Sequence[str]) -> float:
    """Bernoulli trials of a typical evaluation of these runs; inf where the log does not say."""
    observations = fit.observations
    at = np.isin(observations.run, [observations.runs.index(run) for run in runs])
    inverse = float(np.median(observations.inverse_trials[at]))
    return np.inf if inverse == 0 else 1 / inverse


def incumbents(fit: Fit, level: str, name: str) -> LeastSquares | None:
    """Least-squares fit to the evaluations of a run, or of all runs of a recipe together."""
    observations = fit.observations
    at = np.isin(observations.run, [observations.runs.index(run) for run in members(fit, level, name)])
    reference = observations.log_reference[observations.recipe_of_run[observations.run[at]]]
    compute = np.exp(observations.log_compute[at] + reference)
    order = np.argsort(compute, kind="stable")
    js = np.unique(observations.run[at])
    floor = float(observations.floor[js].mean()) if observations.floor_known[js].all() else None
    if floor is not None and floor >= WIDE_CEILINGS[-1]:
        return None
    return least_squares(compute[order], observations.fraction[at][order], floor)
