"""The hierarchical and the particle engine on the same runs, one at a time, where both have the same model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray

from forecast.curves import sigmoid
from forecast.inference.observations import Observations, observe
from forecast.inference.particle import ACCURATE, INTERVALS, ParticleEffort, Particles, sample_run
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import run_prior
from forecast.inference.runs_apart import sample_apart
from forecast.inference.sampling import sample_checked
from forecast.runs.table import Metric, Runs
from simulators.worlds import sigmoid_world

Array = NDArray[np.float64]
UPTO = 8_000.0
PROBABILITIES = (0.05, 0.5, 0.95)
THOROUGH = ParticleEffort(repeats=8, particles=1500, moves=12, keep=0.7)
"""Five times the moves change no quantile of the ceiling by more than chance (measured on four worlds)."""


def half_a_run(seed: int, *, trials: bool) -> Observations:
    """A simulated run up to half of its compute; without trials the hierarchical likelihood is exact too."""
    runs = sigmoid_world(1, 1, rng=np.random.default_rng([50, seed])).runs
    if not trials:
        runs = Runs(
            runs.table.drop(columns=["trials"]), Metric("pass_rate"), runs.compute, floors=runs.floors
        )
    return observe(runs.window(upto=UPTO))


def quantities(posterior: object) -> dict[str, Array]:
    """Ceiling and curve, without drift, by repeat or chain."""
    draws = {
        name: posterior[name].to_numpy()[..., 0]  # type: ignore[index]
        for name in ("floor", "ceiling", "exponent", "midpoint")
    }
    found = {"ceiling": draws["ceiling"]}
    for times in (1, 2, 4):
        found[f"curve at {times}x"] = sigmoid(times * UPTO, **draws)
    return found


def scores(observations: Observations, seed: int) -> dict[tuple[str, float], tuple[float, float, float]]:
    """Per quantity and probability: particle, hierarchical, and their standardised difference."""
    priors = PRIORS["wide"]
    reference = sample_checked(
        observations, priors, (), seed=seed, stage="", report=lambda stage, done, total: None
    ).tree
    particle = sample_apart(
        observations,
        priors,
        seed=seed,
        report=lambda stage, done, total: None,
        efforts=(THOROUGH,),
    ).tree
    ours, theirs = (quantities(tree["posterior"].to_dataset()) for tree in (particle, reference))
    found = {}
    for name in ours:
        for probability in PROBABILITIES:
            each = np.quantile(ours[name], probability, axis=1)
            here, there = each.mean(), float(np.quantile(theirs[name], probability))
            error = np.hypot(
                each.std(ddof=1) / np.sqrt(THOROUGH.repeats),
                float(az.mcse(theirs[name], method="quantile", prob=probability)),
            )
            found[name, probability] = (float(here), there, float((here - there) / error))
    return found


@pytest.mark.slow
def test_quantiles_of_twenty_runs_agree_within_monte_carlo_error() -> None:
    z = {
        (seed, *key): score
        for seed in range(20)
        for key, (_, _, score) in scores(half_a_run(seed, trials=False), seed).items()
    }
    values = np.array(list(z.values()))
    assert len(values) == 240
    # Errors estimated from eight repeats have the tails of a Student-t with seven degrees of freedom.
    assert np.abs(values).max() < 5, max(z.items(), key=lambda item: abs(item[1]))
    assert np.sqrt(np.mean(values**2)) < 1.5
    # A shift common to all runs would hide in single comparisons; a run's own are correlated, runs are not.
    for name in dict.fromkeys(key[1:] for key in z):
        of_runs = [score for key, score in z.items() if key[1:] == name]
        assert abs(np.mean(of_runs)) < 4 / np.sqrt(len(of_runs)), name


@pytest.mark.slow
def test_conditioning_on_three_evaluations_is_near_enough_to_all_of_them() -> None:
    """With trials known the hierarchical likelihood is an approximation: quantiles must agree to a thousandth or so."""
    gaps: dict[tuple[str, float], list[float]] = {}
    for seed in range(8):
        for key, (ours, theirs, score) in scores(half_a_run(seed, trials=True), seed).items():
            gaps.setdefault(key, []).append(ours - theirs)
            assert abs(score) < 6, (seed, key)
    for key, gap in gaps.items():
        # Upper quantiles far out are known to a few thousandths only.
        assert abs(np.mean(gap)) < (0.006 if key[1] > 0.9 else 0.0015), key


@cache
def thorough(seed: int) -> Particles:
    observations = half_a_run(seed, trials=False)
    prior = run_prior(PRIORS["wide"], observations, 0)
    return sample_run(observations, 0, prior, seed=[seed, 2], effort=replace(THOROUGH, repeats=32))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effort", "within"), [(ACCURATE, 0.12), (INTERVALS, 0.25)], ids=["kept", "backtest"]
)
def test_efforts_in_use_find_the_quantiles_of_thorough_ones(effort: ParticleEffort, within: float) -> None:
    """What all repeats have in common, `check_repeats` cannot see. Of 32 repeats each, .03 posterior sds are chance."""
    off = {}
    for seed in (3, 14):
        observations = half_a_run(seed, trials=False)
        prior = run_prior(PRIORS["wide"], observations, 0)
        found = sample_run(observations, 0, prior, seed=[seed, 1], effort=replace(effort, repeats=32))
        truth = thorough(seed).draws["ceiling"]
        for probability in PROBABILITIES:
            each = np.quantile(found.draws["ceiling"], probability, axis=1)
            off[seed, probability] = (each.mean() - np.quantile(truth, probability)) / truth.std()
    assert max(map(abs, off.values())) < within, off
