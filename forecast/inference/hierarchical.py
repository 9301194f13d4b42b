"""The reference posterior: population -> recipe -> run, sampled with nutpie.

Everything that differs between two fits of the same shape (data, priors, which parameters are pooled, which
floors are known) enters as ``pm.Data``, so a model is compiled once per (runs, recipes).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import nutpie
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray

from forecast.inference.observations import Observations
from forecast.inference.priors import Normal, Priors

SAMPLER = "nutpie"
Progress = Callable[[int, int, int], None]
"""Called with (draws done, draws in all, divergences) from a background thread."""


@dataclass(frozen=True)
class Effort:
    """How long and how carefully to sample."""

    chains: int = 4
    tune: int = 1000
    draws: int = 1500
    target_accept: float = 0.95
    adaptation: str = "low_rank"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with the sampler's name."""
        return {"sampler": SAMPLER} | asdict(self)


EFFORT = Effort()
ESCALATED = Effort(tune=2000, draws=4000, target_accept=0.98)

_STEP = 0.3  # scale of the sampler's coordinates that evaluations determine well; keeps first guesses close
_MEMORY = 3  # evaluations that each is conditioned on
_CURVE = ("gain", "log_exponent", "log_midpoint")
_POOLED_AS = {"gain": "ceiling", "log_exponent": "exponent", "log_midpoint": "midpoint"}


def sample(
    observations: Observations,
    priors: Priors,
    pooled: tuple[str, ...],
    *,
    seed: int,
    effort: Effort = EFFORT,
    progress: Progress | None = None,
) -> xr.DataTree:
    """Draw from the posterior.

    Parameters
    ----------
    observations : Observations
    priors : Priors
    pooled : tuple of str
        Subset of ``("ceiling", "exponent", "midpoint")``.
    seed : int
        Same seed, same draws in one process, whatever the number of cores.
    effort : Effort
    progress : callable, optional

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` (per run: floor, ceiling, exponent, midpoint in compute units, noise; per recipe:
        recipe_gain, recipe_log_exponent, recipe_log_midpoint (absolute); spreads) and ``sample_stats``.
    """
    compiled = compile_model(len(observations.runs), len(observations.recipes))
    compiled = compiled.with_data(**_model_data(observations, priors, pooled))
    callback = None
    if progress is not None:

        def callback(chains: list[Any]) -> None:
            progress(
                sum(c.finished_draws for c in chains),
                sum(c.total_draws for c in chains),
                sum(c.divergences for c in chains),
            )

    tree = nutpie.sample(
        compiled,
        draws=effort.draws,
        tune=effort.tune,
        chains=effort.chains,
        cores=min(effort.chains, os.cpu_count() or 1),
        seed=seed,
        adaptation=effort.adaptation,
        target_accept=effort.target_accept,
        save_warmup=False,
        progress_bar=False,
        progress_callback=callback,
    )
    return _named(tree, observations, np.random.default_rng(seed))


@cache
def compile_model(runs: int, recipes: int) -> Any:
    """Compile the model for a number of runs and recipes, once per process."""
    return nutpie.compile_pymc_model(build_model(runs, recipes))


def build_model(runs: int, recipes: int) -> pm.Model:
    """Return the PyMC model, with placeholder data of the right shape.

    The noise beyond the binomial persists (Ornstein-Uhlenbeck), the binomial part does not; each evaluation is
    conditioned on the three before it.
    """
    placeholder = {name: np.asarray(value) for name, value in _placeholder(runs, recipes).items()}
    with pm.Model() as model:
        data = {name: pm.Data(name, value) for name, value in placeholder.items()}
        in_recipe = data["recipe_of_run"]
        floor_group = pm.Normal("floor_group_z", shape=recipes)[data["floor_group"]]
        group_share = pm.math.sigmoid(data["latent_floor"][0] + data["latent_floor"][1] * floor_group)
        # What data determine is the level reached: where chains start from there, less a floor that may be latent.
        start = pt.switch(data["recipe_floor_known"], data["recipe_floor"], group_share * data["level"])
        reached = pt.log(data["level"] - start) - pt.log(1 - data["level"])
        made = reached + _STEP * pm.Flat("made_z", shape=recipes)
        log_exponent = data["log_exponent_prior"][0] + _STEP * pm.Flat("exponent_z", shape=recipes)
        left_z = pm.Flat("left_z", shape=recipes)
        # On a plateau the midpoint is known relative to 1 / exponent only: scale that side with the exponent.
        left = pt.softplus(left_z) - pt.exp(log_exponent) * pt.softplus(-left_z)
        mean_of_runs = {
            "gain": pt.logaddexp(made + pt.softplus(left), left),
            "log_exponent": log_exponent,
            "log_midpoint": -(made + pt.softplus(-left)) * pt.exp(-log_exponent),
        }
        stretch = pm.math.sigmoid(left_z) + pt.exp(log_exponent) * pm.math.sigmoid(-left_z)
        pm.Potential("volume", (pt.log(stretch) - log_exponent).sum())
        curve = {}
        for name, value in mean_of_runs.items():
            prior = data[f"{name}_prior"]
            between = data[f"{name}_between"]
            within = data[f"{name}_within"]
            pooled = data[f"{name}_pooled"]
            mean = pm.Normal(f"{name}_mean_z")
            spread = pm.LogNormal(f"{name}_between_sd", pt.log(between[0]), between[1])
            seed_spread = pm.LogNormal(f"{name}_within_sd", pt.log(within[0]), within[1])
            # Without pooling the population's parameters are not used: they keep their prior.
            centre = prior[0] + pooled * prior[1] * mean
            scale = pooled * spread + (1 - pooled) * prior[1]
            pm.Deterministic(f"{name}_centre", centre)
            pm.Deterministic(f"{name}_scale", scale)
            pm.Deterministic(f"{name}_mean_of_runs", value)
            sd = pt.sqrt(scale**2 + seed_spread**2 / data["runs_of_recipe"])
            pm.Potential(f"{name}_population", pm.logp(pm.Normal.dist(centre, sd), value).sum())
            # Half centred: good both for runs that their data determine and for those that only siblings do.
            ratio = pt.sqrt(seed_spread / within[0])
            z = pm.Normal(f"{name}_run_z", 0, ratio, shape=runs)
            curve[name] = value[in_recipe] + within[0] * ratio * (z - data["same_recipe"] @ z)
        gain = pm.math.sigmoid(pm.Deterministic("gain", curve["gain"]))
        exponent = pm.Deterministic("exponent", pt.exp(curve["log_exponent"]))
        log_midpoint = pm.Deterministic("log_midpoint", curve["log_midpoint"])

        floor_z = pm.Normal("floor_z", shape=runs)
        latent_z = floor_group[in_recipe] + data["floor_within"] * floor_z
        share = pm.math.sigmoid(data["latent_floor"][0] + data["latent_floor"][1] * latent_z)
        # Latent: floor = chance + share * (ceiling - chance), solved with ceiling = floor + (1 - floor) * gain.
        latent = (data["chance"] * (1 - share) + share * gain) / (1 - share * (1 - gain))
        known = _between_0_and_1(data["measured_floor"] + data["floor_se"] * floor_z, data["floor_se"])
        floor = pm.Deterministic("floor", pt.switch(data["floor_known"], known, latent))
        ceiling = pm.Deterministic("ceiling", floor + (1 - floor) * gain)

        # Runs are evaluated alike: most of what is unknown of their noise is common to them.
        common = data["noise_common"]
        noise_z = pt.sqrt(common) * pm.Normal("noise_common_z") + pt.sqrt(1 - common) * pm.Normal(
            "noise_run_z", shape=runs
        )
        noise = pm.Deterministic("noise", data["noise_median"] * pt.exp(data["noise_log_sd"] * noise_z))
        persistence_z = pm.Normal("persistence_z")
        persistence = pm.Deterministic(
            "persistence",
            pm.math.sigmoid(data["persistence_prior"][0] + data["persistence_prior"][1] * persistence_z),
        )

        run = data["run"]
        mu = floor[run] + (ceiling - floor)[run] * pm.math.sigmoid(
            exponent[run] * (data["log_compute"] - log_midpoint[run])
        )
        persistent = noise[run] ** 2
        variance = persistent + mu * (1 - mu) * data["inverse_trials"]
        before, own = data["before"], data["in_run"]
        expected, left = _given_before(
            data["fraction"] - mu, variance, persistent, persistence ** data["distance"], before, own
        )
        pm.Potential(
            "likelihood", pm.logp(pm.Normal.dist(mu + expected, pt.sqrt(left)), data["fraction"]).sum()
        )
    return model


def _given_before(
    residual: Any, variance: Any, persistent: Any, kept: Any, before: Any, own: Any
) -> tuple[Any, Any]:
    """Mean and variance of each residual given the three before it in its run (Vecchia 1988, JRSS B 50:297).

    Residuals are Ornstein-Uhlenbeck plus white noise: what is further back adds next to nothing. The four are
    eliminated in order, all evaluations at once.

    Parameters
    ----------
    residual, variance, persistent : tensor, shape (n,)
        Residuals, their variance, and the part of it that persists.
    kept : tensor, shape (n,)
        Correlation of the persistent part with the evaluation before.
    before : tensor of int, shape (3, n)
        Evaluation one, two and three back; any where there is none.
    own : tensor, shape (3, n)
        1 where that one belongs to the same run, else 0.
    """
    c, b, a = before[0], before[1], before[2]
    # Covariances between i, the evaluation itself, and c, b, a, one to three back.
    to_c, c_to_b, b_to_a = kept, kept[c], kept[b]
    ic, ib, ia = (
        persistent * own[0] * to_c,
        persistent * own[1] * to_c * c_to_b,
        persistent * own[2] * to_c * c_to_b * b_to_a,
    )
    cb, ca, ba = (
        persistent * own[1] * c_to_b,
        persistent * own[2] * c_to_b * b_to_a,
        persistent * own[2] * b_to_a,
    )
    left_a = variance[a]
    b_on_a, c_on_a, i_on_a = ba / left_a, ca / left_a, ia / left_a
    left_b = variance[b] - b_on_a * ba
    c_on_b, i_on_b = (cb - c_on_a * ba) / left_b, (ib - i_on_a * ba) / left_b
    left_c = variance[c] - c_on_a * ca - c_on_b**2 * left_b
    i_on_c = (ic - i_on_a * ca - i_on_b * c_on_b * left_b) / left_c
    left = variance - i_on_a * ia - i_on_b**2 * left_b - i_on_c**2 * left_c
    new_a = residual[a]
    new_b = residual[b] - b_on_a * new_a
    new_c = residual[c] - c_on_a * new_a - c_on_b * new_b
    return i_on_a * new_a + i_on_b * new_b + i_on_c * new_c, left


def _between_0_and_1(value: Any, softness: Any) -> Any:
    """Smoothly keep a measured floor inside (0, 1): the identity a few standard errors away from the ends."""
    above_0 = softness * pt.softplus(value / softness)
    return 1 - softness * pt.softplus((1 - above_0) / softness)


def _model_data(observations: Observations, priors: Priors, pooled: tuple[str, ...]) -> dict[str, Any]:
    n = len(observations.run)
    index = np.arange(n)
    wanted = index - np.arange(1, _MEMORY + 1)[:, None]
    back = np.maximum(wanted, 0)
    in_run = (wanted >= 0) & (observations.run[back] == observations.run)

    def pair(prior: Normal) -> NDArray[np.float64]:
        return np.array([prior.mean, prior.sd])

    data: dict[str, Any] = {
        "recipe_of_run": observations.recipe_of_run,
        **_starting_points(observations),
        "runs_of_recipe": np.bincount(observations.recipe_of_run).astype(float),
        "same_recipe": _averaging(observations.recipe_of_run),
        "run": observations.run,
        "log_compute": observations.log_compute,
        "fraction": observations.fraction,
        "inverse_trials": observations.inverse_trials,
        "distance": observations.distance,
        "before": np.where(in_run, back, index),
        "in_run": in_run.astype(float),
        "measured_floor": observations.floor,
        "floor_se": observations.floor_se,
        "floor_known": observations.floor_known,
        "noise_median": observations.noise_median,
        "noise_log_sd": observations.noise_log_sd,
        "latent_floor": pair(priors.latent_floor),
        "persistence_prior": pair(priors.noise_persistence),
    }
    for name in _CURVE:
        data[f"{name}_prior"] = pair(getattr(priors, name))
        data[f"{name}_between"] = pair(getattr(priors, f"{name}_between"))
        data[f"{name}_within"] = pair(getattr(priors, f"{name}_within"))
        data[f"{name}_pooled"] = np.float64(_POOLED_AS[name] in pooled)
    data["floor_group"] = observations.floor_group
    data["chance"] = np.float64(observations.chance)
    data["noise_common"] = np.float64(priors.noise_common)
    data["floor_within"] = np.float64(priors.latent_floor_within)
    return data


def _averaging(recipe_of_run: NDArray[np.int64]) -> NDArray[np.float64]:
    """Matrix (J, J) that replaces each run's value by the mean over the runs of its recipe."""
    same = (recipe_of_run[:, None] == recipe_of_run).astype(float)
    return same / same.sum(axis=1, keepdims=True)


def _starting_points(observations: Observations) -> dict[str, NDArray[Any]]:
    """Per recipe: the pass rate of its later evaluations, its measured floor, and whether it has one.

    They only place the sampler's coordinates; the posterior does not depend on them.
    """
    recipes = len(observations.recipes)
    level, floor, known = np.empty(recipes), np.zeros(recipes), np.zeros(recipes, dtype=bool)
    for r in range(recipes):
        runs = np.flatnonzero(observations.recipe_of_run == r)
        own = np.isin(observations.run, runs)
        late = own & (observations.log_compute >= np.median(observations.log_compute[own]))
        measured = observations.floor[runs][observations.floor_known[runs]]
        known[r] = len(measured) > 0
        floor[r] = np.clip(measured.mean(), 0.0, 0.97) if known[r] else 0.0
        level[r] = np.clip(observations.fraction[late].mean(), floor[r] + 0.02, 0.99)
    return {"level": level, "recipe_floor": floor, "recipe_floor_known": known}


def _placeholder(runs: int, recipes: int) -> dict[str, Any]:
    """Two evaluations per run: enough to compile, replaced before sampling."""
    from forecast.inference.priors import get_priors

    run = np.repeat(np.arange(runs), 2)
    flat = np.full(2 * runs, 0.5)
    per_run = np.full(runs, 0.5)
    observations = Observations(
        runs=tuple(map(str, range(runs))),
        recipes=tuple(map(str, range(recipes))),
        recipe_of_run=np.arange(runs) % recipes,
        log_reference=np.zeros(recipes),
        run=run,
        log_compute=np.tile([-1.0, 0.0], runs),
        fraction=flat,
        inverse_trials=flat * 0 + 1e-3,
        first=np.tile([True, False], runs),
        distance=flat * 2,
        floor=per_run,
        floor_se=per_run,
        floor_group=np.arange(recipes),
        chance=0.0,
        floor_known=np.ones(runs, dtype=bool),
        noise_median=per_run,
        noise_log_sd=per_run,
    )
    return _model_data(observations, get_priors("wide"), ())


def _named(tree: xr.DataTree, observations: Observations, rng: np.random.Generator) -> xr.DataTree:
    """Put names and absolute compute on the draws, and draw the recipes given the means of their runs."""
    posterior = tree["posterior"].dataset
    keep: dict[str, Any] = {}

    def renamed(name: str, dim: str) -> xr.DataArray:
        array = posterior[name]
        return array.rename({array.dims[-1]: dim}).drop_vars(str(array.dims[-1]), errors="ignore")

    reference = xr.DataArray(observations.log_reference, dims="recipe")
    run_reference = xr.DataArray(observations.log_reference[observations.recipe_of_run], dims="run")
    for name in ("floor", "ceiling", "exponent", "gain", "noise"):
        keep[name] = renamed(name, "run")
    keep["midpoint"] = np.exp(renamed("log_midpoint", "run") + run_reference)
    runs_of_recipe = xr.DataArray(np.bincount(observations.recipe_of_run), dims="recipe")
    for name in _CURVE:
        seen = renamed(f"{name}_mean_of_runs", "recipe")
        # Normal prior of the recipe times normal likelihood of the mean of its runs.
        from_prior = 1 / posterior[f"{name}_scale"] ** 2
        from_runs = runs_of_recipe / posterior[f"{name}_within_sd"] ** 2
        precision = from_prior + from_runs
        centre = (posterior[f"{name}_centre"] * from_prior + seen * from_runs) / precision
        keep[f"recipe_{name}"] = centre + rng.standard_normal(seen.shape) / np.sqrt(precision)
    keep["recipe_log_midpoint"] = keep["recipe_log_midpoint"] + reference
    keep["persistence"] = posterior["persistence"]
    for name in _CURVE:
        keep[f"{name}_between_sd"] = posterior[f"{name}_between_sd"]
        keep[f"{name}_within_sd"] = posterior[f"{name}_within_sd"]
        keep[f"{name}_mean_z"] = posterior[f"{name}_mean_z"]
    named = xr.Dataset(keep).assign_coords(run=list(observations.runs), recipe=list(observations.recipes))
    stats = tree["sample_stats"].dataset
    wanted = [
        name
        for name in ("diverging", "energy", "depth", "n_steps", "step_size", "maxdepth_reached")
        if name in stats
    ]
    return xr.DataTree.from_dict({"posterior": named, "sample_stats": stats[wanted]})
