"""Evidence for a second move in the runs of a fit, with priors that have not seen the run they are used for."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecast.inference.observations import Observations, observe
from forecast.inference.priors import Normal, Priors, get_priors
from forecast.inference.run_prior import RunPrior, informed, run_prior
from forecast.inference.weighing import Weighed, weigh
from forecast.outlook.readings import ALARM_LOG_BF, WATCH_LOG_BF
from forecast.runs.table import Runs
from forecast.threads import in_threads

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.inference.sampling import Report

MOST_EVALUATIONS = 150

LEAST_OTHERS = 3
"""Other recipes needed before they say anything about a recipe's curve."""


def fit_observations(fit: Fit) -> Observations:
    """All runs in the fitted range, also those that carry no forecast: a collapsed run is one that a flag is about."""
    return observe(thinned(fit.runs.window(fit.settings.start, fit.settings.upto)), fit.settings.floor)


def thinned(runs: Runs) -> Runs:
    """Means of 2, 4, 8, ... neighbouring evaluations in runs that have more than `MOST_EVALUATIONS`.

    Time grows with the evaluations, evidence of a move hardly. The last evaluations, too few for a mean, stay as they
    are; prompt classes too.
    """
    parts = [runs.table[runs.table["stratum"].notna()]]
    for _, own in runs.overall().groupby("run", sort=False):
        size = 1
        while len(own) / size > MOST_EVALUATIONS:
            size *= 2
        parts.append(own if size == 1 else _means(own, size))
    return replace(runs, table=pd.concat(parts, ignore_index=True))


def _means(own: pd.DataFrame, size: int) -> pd.DataFrame:
    whole = len(own) // size * size
    block = np.arange(whole) // size
    head = own.iloc[:whole]
    # What stands for a block: its last evaluation, with the block's mean and all of its trials.
    last = head.iloc[size - 1 :: size].copy()
    last["value"] = head.groupby(block)["value"].mean().to_numpy()
    last["trials"] = head.groupby(block)["trials"].sum(min_count=size).to_numpy()
    return pd.concat([last, own.iloc[whole:]])


def prior_of(fit: Fit, observations: Observations, j: int) -> RunPrior:
    """Prior of run `j` from the other recipes, where the fit lets recipes teach each other.

    The other recipes' curves are those that were fitted apart, so that the run's data are not used twice. (What all
    runs of a fit share, the level of noise and a latent start, reaches them; their ceilings, exponents and midpoints do
    not.)
    """
    priors = get_priors(fit.settings.prior)
    own = run_prior(priors, observations, j)
    recipe = observations.recipes[observations.recipe_of_run[j]]
    others = [name for name in fit.observations.recipes if name != recipe]
    draws = fit.independent_draws
    if draws is None or len(others) < LEAST_OTHERS:
        return own
    fitted = fit.observations
    relative = {
        "gain": draws["recipe_gain"],
        "log_exponent": draws["recipe_log_exponent"],
        "log_midpoint": draws["recipe_log_midpoint"] - fitted.log_reference,
    }
    learned = {}
    for parameter, name in (("ceiling", "gain"), ("exponent", "log_exponent"), ("midpoint", "log_midpoint")):
        if parameter in fit.pooled:
            values = (
                relative[name].sel(recipe=others).transpose("recipe", ...).to_numpy().reshape(len(others), -1)
            )
            learned[name] = population(values, priors, name)
    return informed(priors, own, learned)


def population(draws: NDArray[np.float64], priors: Priors, name: str) -> Normal:
    """What the curves of some recipes, known by their posterior draws, say of one more recipe.

    Parameters
    ----------
    draws : ndarray, shape (recipes, S)
        One parameter on the scale of `Priors`, each recipe fitted apart.
    priors : Priors
    name : {"gain", "log_exponent", "log_midpoint"}

    Returns
    -------
    Normal
        Predictive mean and sd. The spread of recipes is the moment estimate of DerSimonian and Laird (1986,
        doi:10.1016/0197-2456(86)90046-2), at least half of what `Priors` expects.
    """
    centre, variance = draws.mean(axis=1), draws.var(axis=1)
    weight = 1 / variance
    mean = weight @ centre / weight.sum()
    excess = weight @ (centre - mean) ** 2 - (len(centre) - 1)
    between = max(
        excess / (weight.sum() - (weight**2).sum() / weight.sum()),
        (getattr(priors, f"{name}_between").mean / 2) ** 2,
    )
    weight = 1 / (variance + between)
    prior = getattr(priors, name)
    precision = weight.sum() + 1 / prior.sd**2
    mean = (weight @ centre + prior.mean / prior.sd**2) / precision
    return Normal(float(mean), float(np.sqrt(between + 1 / precision)))


def weigh_fit(fit: Fit, report: Report | None = None) -> dict[str, Weighed]:
    """Weigh the families for every run in the fitted range, by name; a few seconds per run and core."""
    observations = fit_observations(fit)

    def one(j: int) -> Weighed:
        return weigh(
            observations,
            j,
            prior_of(fit, observations, j),
            seed=[fit.settings.seed, zlib.crc32(observations.runs[j].encode())],
            close=(WATCH_LOG_BF, ALARM_LOG_BF),
        )

    found = {}
    names = observations.runs
    for j, weighed in enumerate(in_threads(one, range(len(names)), os.cpu_count() or 1)):
        found[names[j]] = weighed
        if report is not None:
            report("weighing transitions", j + 1, len(names))
    return found
