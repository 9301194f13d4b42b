"""Do the data determine the ceiling, or does the prior? Convergence does not answer this."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forecast.inference.priors import PRIORS, get_priors
from forecast.inference.run_prior import run_gain
from forecast.outlook.draws import LEVELS
from forecast.outlook.fitted_curves import curve_draws, members

if TYPE_CHECKING:
    from forecast.fits import Fit

PRIOR_DRIVEN = 0.4
"""Posterior sd / prior sd of the ceiling from which the prior is speaking."""

SENSITIVE = 0.02
"""Shift of the ceiling (fraction) under another prior that makes it not identified."""

USABLE = 0.02
"""Half-width (fraction) of the 90 % interval of a ceiling that can be used as a number."""

ROUGH = 0.06
"""Half-width up to which it can be used as a rough number."""

_MINIMUM_WEIGHT_ESS = 200


def ceiling_shift(fit: Fit, level: str, name: str) -> float:
    """Shift of the ceiling's mean under the other prior on the ceiling, as a fraction.

    Wide is compared with llm-rl and the reverse, by importance weights on the draws: the posterior depends on
    that prior only through the population's centre (pooled), the recipe's own gain (not pooled) or the run's
    (fitted by itself). NaN when too few draws carry the weight.
    """
    mine = get_priors(fit.settings.prior)
    another = next(priors for key, priors in PRIORS.items() if key != fit.settings.prior)
    here, other = mine.gain, another.gain
    draws = fit.draws
    if fit.settings.engine == "particle":
        here, other = run_gain(mine), run_gain(another)
        centre = draws["gain"].sel(run=members(fit, level, name)[0]).to_numpy().ravel()
    elif "ceiling" in fit.pooled:
        centre = here.mean + here.sd * draws["gain_mean_z"].to_numpy().ravel()
    else:
        recipe = fit.runs.recipes[name] if level == LEVELS[0] else name
        centre = draws["recipe_gain"].sel(recipe=recipe).to_numpy().ravel()
    log_weight = 0.5 * ((centre - here.mean) / here.sd) ** 2 - 0.5 * ((centre - other.mean) / other.sd) ** 2
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    if 1 / np.sum(weight**2) < _MINIMUM_WEIGHT_ESS:
        return float("nan")
    curve = curve_draws(fit, level, name)
    assert curve is not None
    return float(np.sum(weight * curve.ceiling) - curve.ceiling.mean())


def verdict(
    ceiling: np.ndarray, sd_ratio: float, shift: float, own_sd_ratio: float | None, scale: float
) -> str:
    """Say in words whether the ceiling is identified.

    Parameters
    ----------
    ceiling : ndarray
        Draws, as fractions.
    sd_ratio, own_sd_ratio : float
        Posterior sd / prior sd with and without what sibling recipes teach (None: nothing is pooled).
    shift : float
        See `ceiling_shift`.
    scale : float
        Metric units per unit of pass rate, negative for an error rate.
    """
    half = float(np.diff(np.quantile(ceiling, [0.05, 0.95]))[0]) / 2
    width = f"90 % interval +-{half * abs(scale):.3g}"
    if sd_ratio > PRIOR_DRIVEN:
        return f"not identified: {width}, {sd_ratio:.0%} of the prior's sd is left"
    if np.isnan(shift):
        return "not identified: these draws cannot tell how far another prior would move it"
    if abs(shift) > SENSITIVE:
        return f"not identified: another prior moves it by {shift * scale:+.3g}"
    siblings = "" if own_sd_ratio is None or own_sd_ratio <= PRIOR_DRIVEN else ", through its siblings only"
    known = "identified" if half <= USABLE else "roughly known" if half <= ROUGH else "poorly known"
    return f"{known}: {width}{siblings}"
