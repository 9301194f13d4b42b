"""Draws of curves that may move a second time: families averaged by their evidence, a hazard beyond the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from forecast.inference.priors import Priors, drift_sd, get_priors
from forecast.inference.run_prior import FAMILIES
from forecast.inference.weighing import MOVES, SMOOTH, Weighed, flattened
from forecast.outlook.draws import LEVELS, CurveDraws, drift_draws
from forecast.outlook.fitted_curves import curve_draws, curve_names, members, trials_per_evaluation
from forecast.outlook.hazard import Hazard

if TYPE_CHECKING:
    from forecast.fits import Fit

_DECADES = np.log(10.0)
_WITHIN = ("gain", "log_exponent", "log_midpoint")


def window_decades(priors: Priors) -> float:
    """Decades of compute, around the last evaluation, in which a second move is looked for."""
    low, high = priors.log_second_midpoint
    return (high - low) / _DECADES


def family_weights(weighed: Weighed, hazard: Hazard, priors: Priors) -> dict[str, float]:
    """Posterior probability of each family; what is not a second move shares as its evidence says."""
    prior = hazard.within(window_decades(priors))
    still = 1 - sum(prior.values())
    log_weight = {
        name: np.log(still * weight) + weighed.particles[name].log_evidence for name, weight in SMOOTH.items()
    }
    for kind, family in MOVES.items():
        if prior[kind] > 0:
            log_weight[family] = np.log(prior[kind]) + weighed.particles[family].log_evidence
    top = max(log_weight.values())
    weights = {name: float(np.exp(value - top)) for name, value in log_weight.items()}
    total = sum(weights.values())
    return {name: weights.get(name, 0.0) / total for name in FAMILIES}


def averaged_draws(fit: Fit, level: str, name: str, hazard: Hazard) -> CurveDraws:
    """Draws of one curve, averaged over families of curves.

    The sigmoid's draws are those of the fit, with all that runs and recipes taught each other; the other families'
    come from the run by itself. A recipe shares its weights with its runs: each draw takes the family of one of them at
    random. A new run differs from it as seeds of one recipe do. Draws without a move near the data may still move later,
    at a place that the hazard chooses.

    Parameters
    ----------
    fit : Fit
    level : {"run", "recipe", "new_run"}
    name : str
    hazard : Hazard
    """
    single = curve_draws(fit, level, name)
    assert single is not None
    runs = members(fit, level, name)
    # Ends in a 2: see `predict` and `curve_draws` for the other streams of the same curve.
    rng = np.random.default_rng(
        [fit.settings.seed, LEVELS.index(level), curve_names(fit, level).index(name), 2]
    )
    trials = trials_per_evaluation(fit, runs)
    within = None
    if level == "new_run":
        within = {name: fit.draws[f"{name}_within_sd"].to_numpy().ravel() for name in _WITHIN}
    return average(
        single,
        [fit.weighed[run] for run in runs],
        hazard,
        get_priors(fit.settings.prior),
        drift_sd(trials),
        rng,
        within=within,
    )


def average(
    single: CurveDraws,
    weighed: list[Weighed],
    hazard: Hazard,
    priors: Priors,
    drift: float,
    rng: np.random.Generator,
    *,
    within: Mapping[str, NDArray[np.float64]] | None = None,
) -> CurveDraws:
    """Mix the draws of a sigmoid with those of the other families of one or more runs.

    Parameters
    ----------
    single : CurveDraws
        Of the sigmoid, S draws.
    weighed : list of Weighed
        Of its run, or of the runs of its recipe.
    hazard : Hazard
    priors : Priors
        Of the moves beyond the window in which evidence is looked for.
    drift : float
        Sd of the drift per e-fold.
    rng : numpy.random.Generator
    within : mapping of str to ndarray, optional
        S sds between the runs of a recipe, of ``gain`` (logit), ``log_exponent`` and ``log_midpoint``: what is taken from
        a run that was fitted is then made another run of its recipe.

    Returns
    -------
    CurveDraws
        S draws.
    """
    size = len(single.floor)
    names = ("floor", "ceiling", "exponent", "midpoint", "noise")
    out = {name: getattr(single, name).copy() for name in names}
    out["drift"] = single.drift.copy()
    added = ("tail", "move", "second_exponent", "second_midpoint")
    out |= {name: np.ones(size) for name in added} | {"move": np.zeros(size)}
    shares = np.array([list(family_weights(one, hazard, priors).values()) for one in weighed]) / len(weighed)
    # Evenly spaced in place of independent choices: the weights are met as closely as S draws can.
    points = (np.arange(size) + rng.random()) / size
    cell = np.searchsorted(np.cumsum(shares.ravel()) / shares.sum(), points).clip(max=shares.size - 1)
    chosen = rng.permutation(cell)
    for k in np.unique(chosen):
        run, family = weighed[k // len(FAMILIES)], FAMILIES[k % len(FAMILIES)]
        at = np.flatnonzero(chosen == k)
        if family == "sigmoid":
            continue
        every, weights = flattened(run.particles[family])
        picked = rng.choice(len(weights), size=len(at), p=weights)
        draws = {name: values[picked] for name, values in every.items()}
        if within is not None:
            draws |= _another_run(draws, {name: sd[at] for name, sd in within.items()}, rng)
        for name in names:
            out[name][at] = draws[name]
        out["drift"][at] = drift_draws(drift, len(at), rng)
        if family == "burr":
            out["tail"][at] = draws["tail"]
        elif family == "power_law":
            out["tail"][at], out["exponent"][at] = draws["exponent"], 1.0
        else:
            sign, size_name = (1, "rise") if family == "second_rise" else (-1, "drop")
            out["move"][at] = sign * draws[size_name]
            for name in ("second_exponent", "second_midpoint"):
                out[name][at] = draws[name]
    still = np.isin(chosen % len(FAMILIES), [FAMILIES.index(family) for family in SMOOTH])
    later = _later_moves(out["ceiling"][still], single.fitted_upto, hazard, priors, rng)
    for name, value in later.items():
        out[name][still] = value
    return CurveDraws(**out, fitted_upto=single.fitted_upto)


def _another_run(
    draws: Mapping[str, NDArray[np.float64]],
    within: Mapping[str, NDArray[np.float64]],
    rng: np.random.Generator,
) -> dict[str, NDArray[np.float64]]:
    """Ceiling, exponent and midpoint of another run of the same recipe; a second move keeps its size."""
    z = {name: within[name] * rng.standard_normal(len(draws["floor"])) for name in _WITHIN}
    floor, ceiling = draws["floor"], draws["ceiling"]
    gain = np.clip((ceiling - floor) / (1 - floor), 1e-9, 1 - 1e-9)
    return {
        "ceiling": floor + (1 - floor) * expit(logit(gain) + z["gain"]),
        "exponent": draws["exponent"] * np.exp(z["log_exponent"]),
        "midpoint": draws["midpoint"] * np.exp(z["log_midpoint"]),
    }


def _later_moves(
    ceiling: NDArray[np.float64], fitted_upto: float, hazard: Hazard, priors: Priors, rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """First moves beyond the window, by the hazard alone; they may lie so far out that no forecast meets them."""
    n = len(ceiling)
    if hazard.total == 0:
        return {"move": np.zeros(n)}
    rises = rng.random(n) < hazard.rise / hazard.total
    size = expit(priors.move_size.mean + priors.move_size.sd * rng.standard_normal(n))
    steepness = priors.log_second_exponent
    away = priors.log_second_midpoint[1] + _DECADES * rng.exponential(1 / hazard.total, n)
    return {
        "move": size * np.where(rises, 1 - ceiling, -ceiling),
        "second_exponent": np.exp(steepness.mean + steepness.sd * rng.standard_normal(n)),
        # Beyond 1e30 times the data nothing is asked.
        "second_midpoint": fitted_upto * np.exp(np.minimum(away, 69.0)),
    }
