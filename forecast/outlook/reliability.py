"""What a person must know about one run's or recipe's forecast besides its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from forecast.inference.diagnostics import failures
from forecast.outlook.fitted_curves import members

if TYPE_CHECKING:
    from forecast.fits import Fit

WARNING_SEPARATOR = " | "
"""Between the warnings of one row."""

NOISE_OVER_BINOMIAL = 3.0
"""A run whose noise beyond the binomial exceeds this many binomial sds is not described by a sigmoid."""

EVALUATION_SD = 0.004
"""Least sd expected of an evaluation (fraction): with very many trials the binomial is not what limits it."""

SURPRISE = 2.0
"""A recipe whose gain lies this many population sds from the population's centre is unlike its siblings."""


def run_warnings(fit: Fit, level: str, name: str) -> list[str]:
    """Return one sentence per thing that is wrong or doubtful."""
    warnings = []
    if not fit.passed:
        warnings.append(f"NOT RELIABLE, diagnostics failed: {failures(fit.checks)}")
    if fit.runs.metric.caveat:
        warnings.append(fit.runs.metric.caveat)
    for run in members(fit, level, name):
        if run in fit.refused:
            warnings.append(f"NOT RELIABLE, {run} {fit.refused[run]}")
        ratio = noise_over_expected(fit, run)
        if ratio > NOISE_OVER_BINOMIAL:
            warnings.append(
                f"{run} may not be described by a sigmoid: its noise is {ratio:.1f} times what evaluations explain"
            )
    if level != "run":
        left_out = [run for run, recipe in fit.runs.recipes.items() if recipe == name and run in fit.refused]
        left_out = [run for run in left_out if run not in fit.observations.runs]
        for run in left_out:
            warnings.append(f"run {run} of recipe {name} is not in this forecast: {fit.refused[run]}")
    if "ceiling" in fit.pooled:
        recipe = name if level != "run" else fit.runs.recipes[name]
        distance = surprise(fit, recipe)
        if distance > SURPRISE:
            warnings.append(
                f"recipe {recipe} is unlike its siblings ({distance:.1f} population sds), pooling may mislead"
            )
    return warnings


def left_out(fit: Fit, level: str, name: str) -> str:
    """Say which runs of a recipe, or of a run's recipe, its numbers leave out, and why; empty if none.

    What is said of the runs that are left holds for them: that others of the recipe collapsed is in no interval.
    """
    recipe = fit.runs.recipes[name] if level == "run" else name
    runs = [run for run, its in fit.runs.recipes.items() if its == recipe]
    missing = [run for run in runs if run in fit.refused and run not in fit.observations.runs]
    if not missing:
        return ""
    why = "; ".join(dict.fromkeys(fit.refused[run].partition(":")[0] for run in missing))
    return f"{len(missing)} of {len(runs)} runs of {recipe} {'is' if len(missing) == 1 else 'are'} not in these numbers ({why})"


def noise_over_expected(fit: Fit, run: str) -> float:
    """Fitted extra noise over the binomial sd, or over the scatter of first differences when trials are unknown."""
    observations = fit.observations
    at = observations.run == observations.runs.index(run)
    y = observations.fraction[at]
    noise = float(fit.draws["noise"].sel(run=run).median())
    inverse = float(np.median(observations.inverse_trials[at]))
    if inverse > 0:
        level = np.clip(np.mean(y), 0.01, 0.99)
        expected = max(np.sqrt(level * (1 - level) * inverse), EVALUATION_SD)
    else:
        differences = np.diff(y) if len(y) > 1 else np.zeros(1)
        expected = max(float(np.median(np.abs(differences))) * 1.4826 / np.sqrt(2), 0.002)
    return float(noise / expected)


def surprise(fit: Fit, recipe: str) -> float:
    """Distance of the independent posterior of a recipe's ceiling from the pooled population, in joint sds."""
    apart = fit.independent_draws
    if apart is None:
        return 0.0
    own = apart["recipe_gain"].sel(recipe=recipe)
    others = [name for name in fit.observations.recipes if name != recipe]
    if not others:
        return 0.0
    centre = fit.draws["recipe_gain"].sel(recipe=others).mean("recipe")
    spread = fit.draws["gain_between_sd"]
    # Compared as ceilings: far out on the logit scale nothing is known, which is no surprise.
    gap = float(np.abs(expit(own.mean()) - expit(centre.mean())))
    slope = float(expit(centre.mean()) * (1 - expit(centre.mean())))
    sd = np.hypot(float(expit(own).std()), slope * float(np.median(spread)))
    return gap / float(sd)
