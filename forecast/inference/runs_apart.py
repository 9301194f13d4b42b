"""Fit every run by itself with the particle engine, checked, in the form of a hierarchical posterior."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import xarray as xr

from forecast.inference.diagnostics import Check, all_passed
from forecast.inference.observations import Observations
from forecast.inference.particle import ACCURATE, CAREFUL, ParticleEffort, Particles, sample_run
from forecast.inference.priors import Priors
from forecast.inference.run_prior import run_prior
from forecast.inference.sampling import Report, Sampled
from forecast.threads import in_threads

QUANTILES = (0.05, 0.50, 0.95)
QUANTILE_ERROR = {"floor": 0.15, "ceiling": 0.15, "exponent": 0.30, "midpoint": 0.30}
"""Largest standard error of a quantile, in posterior sds, that a fit may have. Where data say little of exponent and
midpoint (a run that levelled off before its first evaluation), the curve does not depend on them."""

LOG_EVIDENCE_SD = 1.0
"""Largest sd of one repeat's log marginal likelihood, in nats: beyond it repeats may have found different curves."""

_CURVE = ("gain", "log_exponent", "log_midpoint")


def sample_apart(
    observations: Observations,
    priors: Priors,
    *,
    seed: int,
    report: Report,
    efforts: tuple[ParticleEffort, ...] = (ACCURATE, CAREFUL),
) -> Sampled:
    """Sample every run with the first effort whose repeats agree; runs differ in how much they need.

    Returns
    -------
    Sampled
        Chains are repeats. Recipes have draws where each is one run: given the run, as in the hierarchical posterior.
    """
    stage, total = "sampling, each run by itself", len(observations.runs)

    def fit(j: int) -> tuple[Particles, ParticleEffort]:
        for effort in efforts:
            found = sample_run(
                observations, j, run_prior(priors, observations, j), seed=[seed, j], effort=effort
            )
            if all_passed(check_repeats({observations.runs[j]: found})):
                break
        return found, effort

    report(stage, 0, total)
    found = []
    for done, one in enumerate(in_threads(fit, range(total), os.cpu_count() or 1), start=1):
        found.append(one)
        report(stage, done, total)
    fits = [one for one, _ in found]
    hardest = max((effort for _, effort in found), key=lambda effort: effort.particles)
    checks = check_repeats(dict(zip(observations.runs, fits, strict=True)))
    return Sampled(
        _tree(fits, observations, priors, np.random.default_rng([seed, len(fits)])), checks, hardest
    )


def check_repeats(fits: dict[str, Particles]) -> list[Check]:
    """Check that independent repeats of each run's fit agree: quantiles of the curve and log evidence.

    The standard error of a quantile is its sd over repeats / sqrt(repeats), in units of the posterior's sd.
    """
    errors: dict[tuple[str, ...], dict[str, float]] = {("floor", "ceiling"): {}, ("exponent", "midpoint"): {}}
    for names, values in errors.items():
        for run, fit in fits.items():
            for name in names:
                draws = np.log(fit.draws[name]) if "exponent" in names else fit.draws[name]
                each = np.quantile(draws, QUANTILES, axis=1)
                spread = np.std(each, axis=1, ddof=1).max() if len(draws) > 1 else np.nan
                values[f"{name}[{run}]"] = float(spread / np.sqrt(len(draws)) / max(draws.std(), 1e-12))
    evidence = {run: fit.log_evidence_sd for run, fit in fits.items()}
    return [
        *(
            _check(
                f"repeatability of {' and '.join(names)}",
                "standard error of a quantile in posterior sds",
                values,
                QUANTILE_ERROR[names[0]],
            )
            for names, values in errors.items()
        ),
        _check("repeatability of the log evidence", "sd in nats", evidence, LOG_EVIDENCE_SD),
    ]


def _check(name: str, what: str, values: dict[str, float], limit: float) -> Check:
    """Check the largest value; one that is no number could not be checked, which is worse."""
    at = max(values, key=lambda key: np.inf if np.isnan(values[key]) else values[key])
    value = values[at]
    if not np.isfinite(value):
        return Check(name, None, None, limit, f"{name} could not be computed for {at}")
    return Check(name, value <= limit, value, limit, f"{name}: {what} {value:.2g} at {at} (<= {limit:g})")


def _tree(
    fits: list[Particles], observations: Observations, priors: Priors, rng: np.random.Generator
) -> xr.DataTree:
    # Runs that needed more particles are thinned to the common number: xarray wants one shape.
    size = min(fit.draws["floor"].shape[1] for fit in fits)
    per_run: dict[str, np.ndarray] = {}
    for name in ("floor", "ceiling", "exponent", "midpoint", "noise", "persistence", "gain"):
        per_run[name] = np.stack([_thinned(fit.draws[name], size) for fit in fits], axis=-1)
    keep: dict[str, Any] = {name: (("chain", "draw", "run"), value) for name, value in per_run.items()}
    coords: dict[str, Any] = {"run": list(observations.runs)}
    if len(observations.recipes) == len(observations.runs):
        seen = {
            "gain": per_run["gain"],
            "log_exponent": np.log(per_run["exponent"]),
            "log_midpoint": np.log(per_run["midpoint"]),
        }
        coords["recipe"] = list(observations.recipes)
        for name in _CURVE:
            within = getattr(priors, f"{name}_within")
            shape = seen[name].shape
            # One spread for all recipes, as in the hierarchical posterior.
            seed_sd = within.mean * np.exp(within.sd * rng.standard_normal((*shape[:2], 1)))
            prior = getattr(priors, name)
            centre = prior.mean + (observations.log_reference if name == "log_midpoint" else 0.0)
            # Normal prior of the recipe times normal likelihood of its run.
            precision = 1 / prior.sd**2 + 1 / seed_sd**2
            mean = (centre / prior.sd**2 + seen[name] / seed_sd**2) / precision
            value = mean + rng.standard_normal(shape) / np.sqrt(precision)
            keep[f"recipe_{name}"] = (("chain", "draw", "recipe"), value)
            keep[f"{name}_within_sd"] = (("chain", "draw"), seed_sd[..., 0])
    stats = xr.Dataset(
        {
            "log_evidence": (("chain", "run"), np.stack([fit.log_evidences for fit in fits], axis=-1)),
            "walk_acceptance": ("run", [fit.walk_acceptance for fit in fits]),
            "leap_acceptance": ("run", [fit.leap_acceptance for fit in fits]),
        },
        coords={"run": list(observations.runs)},
    )
    return xr.DataTree.from_dict({"posterior": xr.Dataset(keep, coords=coords), "sample_stats": stats})


def _thinned(draws: np.ndarray, size: int) -> np.ndarray:
    """Evenly spaced draws of each repeat: resampling leaves copies side by side."""
    return draws[:, np.linspace(0, draws.shape[1] - 1, size).round().astype(int)]
