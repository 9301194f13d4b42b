"""The particle posterior against its prior, quadrature and plain Monte Carlo; seeds, threads, accuracy."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import kstest, norm

from forecast import curves
from forecast.errors import InputError
from forecast.inference import kernel
from forecast.inference.observations import Observations
from forecast.inference.particle import (
    ACCURATE,
    INTERVALS,
    ParticleEffort,
    Particles,
    sample_run,
)
from forecast.inference.priors import PRIORS, Normal, noise_prior
from forecast.inference.run_prior import FAMILIES, RunPrior, run_prior

Array = NDArray[np.float64]
CURVES = {name: getattr(curves, name) for name in FAMILIES}
UPTO = 8_000.0


def observed(
    log_compute: Array,
    fraction: Array,
    *,
    trials: float = 16_000,
    floor: float | None = 0.3,
    chance: float = 0.0,
    distance: Array | None = None,
    runs: int = 1,
) -> Observations:
    """The same evaluations of one or more runs that are recipes of their own."""
    n = len(log_compute)
    first = np.tile(np.arange(n) == 0, runs)
    median, log_sd = noise_prior(trials)
    return Observations(
        runs=tuple(f"run{j}" for j in range(runs)),
        recipes=tuple(f"recipe{j}" for j in range(runs)),
        recipe_of_run=np.arange(runs),
        log_reference=np.full(runs, np.log(UPTO)),
        run=np.repeat(np.arange(runs), n),
        log_compute=np.tile(log_compute, runs),
        fraction=np.tile(fraction, runs),
        inverse_trials=np.full(n * runs, 1 / trials),
        first=first,
        distance=np.where(first, 0.1, np.tile(np.ones(n) if distance is None else distance, runs)),
        floor=np.full(runs, floor or 0.0),
        floor_se=np.full(runs, 0.004 if floor else 1.0),
        floor_known=np.full(runs, floor is not None),
        floor_group=np.arange(runs),
        chance=chance,
        noise_median=np.full(runs, median),
        noise_log_sd=np.full(runs, log_sd),
    )


def simulated(seed: int, points: int = 40, *, curve: str = "sigmoid", noise: float = 0.006) -> Observations:
    """One run with persistent noise and a binomial, evaluated evenly."""
    rng = np.random.default_rng(seed)
    x = np.log(np.linspace(0.1, 1.0, points))
    ceiling, midpoint = rng.uniform(0.5, 0.75), rng.uniform(0.1, 0.6)
    shape = [0.3, ceiling, np.exp(rng.normal(0.6, 0.25)), midpoint]
    shape += {
        "burr": [rng.uniform(0.5, 2.0)],
        "second_rise": [0.4 * (1 - ceiling), 4.0, 0.8],
        "collapse": [0.4 * ceiling, 4.0, 0.8],
    }.get(curve, [])
    mean = CURVES[curve](np.exp(x), *shape)
    wander, persistence = np.empty(points), rng.uniform(0.3, 0.9)
    wander[0] = noise * rng.standard_normal()
    for i in range(1, points):
        wander[i] = persistence * wander[i - 1] + noise * np.sqrt(1 - persistence**2) * rng.standard_normal()
    return observed(x, rng.binomial(16_000, np.clip(mean + wander, 0, 1)) / 16_000)


def prior_of(observations: Observations, preset: str = "wide") -> RunPrior:
    return run_prior(PRIORS[preset], observations, 0)


# Without evaluations: the prior


def whitened(p: Array, family: str, prior: Array, *, known: bool, chance: float) -> dict[str, Array]:
    """Draws of every parameter on the scale where its prior is standard normal (second midpoint: uniform)."""
    floor, ceiling, exponent, midpoint, noise, persistence = p[:, :6].T
    floor_logit = (
        (floor - 0.3) / 0.01
        if known
        else (logit((floor - chance) / (ceiling - chance)) - prior[0, 0]) / prior[0, 1]
    )
    natural = {
        "gain": logit((ceiling - floor) / (1 - floor)),
        "exponent": np.log(exponent),
        "midpoint": midpoint,
        "noise": np.log(noise),
        "persistence": logit(persistence),
    }
    if family == "burr":
        natural["tail"] = np.log(p[:, 6])
    elif family in ("second_rise", "collapse"):
        share = p[:, 6] / (1 - ceiling) if family == "second_rise" else -p[:, 6] / ceiling
        natural |= {"size": logit(share), "second exponent": np.log(p[:, 7])}
    found = {"floor": floor_logit}
    for row, (name, value) in enumerate(natural.items(), start=1):
        found[name] = (value - prior[row, 0]) / prior[row, 1]
    if family in ("second_rise", "collapse"):
        found["second midpoint"] = norm.ppf((p[:, 8] - prior[8, 0]) / (prior[8, 1] - prior[8, 0]))
    return found


@pytest.mark.parametrize("start", ["measured", "latent", "latent above chance"])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_evaluations_the_draws_are_the_prior(family: str, start: str) -> None:
    known, chance = start == "measured", 0.25 * (start == "latent above chance")
    prior = prior_of(observed(np.zeros(1), np.array([0.5]))).rows(family)
    none = np.empty(0)
    particles = 3000
    p, log_evidence, _, walk, leap = kernel.anneal(
        np.random.default_rng(20),
        FAMILIES.index(family),
        prior,
        np.array([float(known), 0.3, 0.01, chance, 0.55]),
        *(none, none, none, none),
        particles,
        30,
        0.5,
    )
    # Moves must leave the prior as it is; that they move at all is told by their acceptance.
    assert log_evidence == pytest.approx(0.0, abs=1e-12)
    assert walk > 0.1
    assert leap > 0.1
    z = whitened(p, family, prior, known=known, chance=chance)
    assert len(z) == len(prior)
    for name, value in z.items():
        assert kstest(value, "norm").pvalue > 1e-4, (name, value.mean(), value.std())
    correlation = np.corrcoef(list(z.values())) - np.eye(len(z))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(particles)


def test_one_drowned_evaluation_leaves_the_prior_in_the_named_draws() -> None:
    observations = observed(np.array([-0.5]), np.array([0.4]), floor=None, chance=0.25)
    prior = replace(prior_of(observations), log_noise=Normal(np.log(50.0), 1e-6))
    effort = ParticleEffort(repeats=2, particles=3000, moves=20, keep=0.5)
    found = sample_run(observations, 0, prior, family="collapse", seed=1, effort=effort)
    draws = {name: value.ravel() for name, value in found.draws.items()}
    reference = np.log(UPTO * np.exp(-0.5))  # of the run: where it was fitted to
    share = (draws["floor"] - 0.25) / (draws["ceiling"] - 0.25)
    straight = {
        "gain": (draws["gain"], prior.gain),
        "exponent": (np.log(draws["exponent"]), prior.log_exponent),
        "midpoint": (np.log(draws["midpoint"]) - reference, prior.log_midpoint),
        "persistence": (logit(draws["persistence"]), prior.persistence),
        "floor": (logit(share), prior.floor),
        "drop": (logit(draws["drop"] / draws["ceiling"]), prior.move_size),
        "second exponent": (np.log(draws["second_exponent"]), prior.log_second_exponent),
    }
    for name, (value, expected) in straight.items():
        assert kstest((value - expected.mean) / expected.sd, "norm").pvalue > 1e-4, name
    low, high = prior.log_second_midpoint
    second = np.log(draws["second_midpoint"]) - reference
    assert kstest(second, "uniform", args=(low, high - low)).pvalue > 1e-4
    # y - level is below 1 of 50 noise sds.
    np.testing.assert_allclose(found.log_evidences, norm.logpdf(0, 0, 50), atol=1e-3)


# Evidence and posterior against quadrature


def test_evidence_and_moments_agree_with_quadrature() -> None:
    """All but gain, exponent and midpoint are pinned: three dimensions can be integrated on a grid."""
    rng = np.random.default_rng(30)
    x = np.log([0.15, 0.3, 0.5, 0.75, 1.0])
    distance = np.array([0.1, 1.0, 1.4, 0.5, 2.0])
    fraction = curves.sigmoid(np.exp(x), 0.3, 0.65, 1.8, 0.4) + 0.02 * rng.standard_normal(5)
    observations = observed(x, fraction, trials=np.inf, distance=distance)
    observations = replace(observations, floor_se=np.array([1e-7]))
    prior = replace(
        prior_of(observations),
        log_midpoint=Normal(-0.9, 0.4),
        log_noise=Normal(np.log(0.02), 1e-7),
        persistence=Normal(0.4, 1e-7),
    )

    z = np.linspace(-6, 6, 97)  # steps of an eighth of a prior sd
    grids = np.meshgrid(z, z, z, indexing="ij")
    pairs = (prior.gain, prior.log_exponent, prior.log_midpoint)
    gain, log_exponent, log_midpoint = (
        pair.mean + pair.sd * grid.ravel() for pair, grid in zip(pairs, grids, strict=True)
    )
    ceiling = 0.3 + 0.7 * expit(gain)
    level = curves.sigmoid(
        np.exp(x), 0.3, ceiling[:, None], np.exp(log_exponent)[:, None], np.exp(log_midpoint)[:, None]
    )
    time_ = np.concatenate([[0.0], np.cumsum(distance[1:])])
    covariance = 0.02**2 * expit(0.4) ** np.abs(time_[:, None] - time_)
    residual = fraction - level
    squares = np.einsum("ni,ij,nj->n", residual, np.linalg.inv(covariance), residual)
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    log_weight = -0.5 * (squares + log_determinant) + sum(norm.logpdf(grid.ravel()) for grid in grids)
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    expected = top + np.log(weight.sum()) + 3 * np.log(z[1] - z[0])

    effort = ParticleEffort(repeats=16, particles=1500, moves=8, keep=0.6)
    found = sample_run(observations, 0, prior, seed=2, effort=effort)
    error = found.log_evidences.std(ddof=1) / np.sqrt(effort.repeats)
    assert error < 0.05
    assert abs(found.log_evidences.mean() - expected) < 4 * error
    assert abs(found.log_evidence - expected) < 4 * error
    for name, value in (
        ("ceiling", ceiling),
        ("exponent", np.exp(log_exponent)),
        ("midpoint", UPTO * np.exp(log_midpoint)),
    ):
        mean = np.sum(weight * value) / weight.sum()
        sd = np.sqrt(np.sum(weight * (value - mean) ** 2) / weight.sum())
        for statistic, want in (("mean", mean), ("std", sd)):
            each = getattr(found.draws[name], statistic)(axis=1)
            assert abs(each.mean() - want) < 4.5 * each.std(ddof=1) / np.sqrt(effort.repeats), (
                name,
                statistic,
            )


# Evidence and posterior against plain Monte Carlo from the prior


@dataclass(frozen=True)
class Weighted:
    """Draws from the prior, weighted by a likelihood written down independently of the engine."""

    draws: dict[str, Array]
    weight: Array
    log_evidence: float
    log_evidence_error: float

    def quantile(self, name: str, probability: float) -> tuple[float, float]:
        """The quantile and the standard error of the distribution function there."""
        value = self.draws[name]
        order = np.argsort(value)
        at = np.searchsorted(np.cumsum(self.weight[order]), probability)
        found = value[order][at]
        return found, float(np.sqrt(np.sum(self.weight**2 * ((value <= found) - probability) ** 2)))


def weighted_prior(observations: Observations, prior: RunPrior, family: str, size: int) -> Weighted:
    rng = np.random.default_rng(40)

    def normal(pair: Normal) -> Array:
        return rng.normal(pair.mean, pair.sd, size)

    gain = expit(normal(prior.gain))
    if observations.floor_known[0]:
        floor = rng.normal(observations.floor[0], observations.floor_se[0], size)
        ceiling = floor + (1 - floor) * gain
    else:
        share, chance = expit(normal(prior.floor)), observations.chance
        # The two defining equations, solved by iteration rather than algebra.
        floor = np.full(size, chance)
        for _ in range(400):
            floor = chance + share * (floor + (1 - floor) * gain - chance)
        ceiling = floor + (1 - floor) * gain
    exponent = np.exp(normal(prior.power_law_log_exponent if family == "power_law" else prior.log_exponent))
    draws = {"floor": floor, "ceiling": ceiling, "exponent": exponent}
    draws |= {"midpoint": np.exp(normal(prior.log_midpoint)), "noise": np.exp(normal(prior.log_noise))}
    draws["persistence"] = expit(normal(prior.persistence))
    added: list[str] = []
    if family == "burr":
        draws["tail"] = np.exp(normal(prior.log_tail))
        added = ["tail"]
    if family in ("second_rise", "collapse"):
        move = {"second_rise": "rise", "collapse": "drop"}[family]
        draws[move] = expit(normal(prior.move_size)) * (1 - ceiling if move == "rise" else ceiling)
        draws["second_exponent"] = np.exp(normal(prior.log_second_exponent))
        draws["second_midpoint"] = np.exp(rng.uniform(*prior.log_second_midpoint, size))
        added = [move, "second_exponent", "second_midpoint"]
    arguments = [draws[name][:, None] for name in ("floor", "ceiling", "exponent", "midpoint", *added)]
    level = np.clip(CURVES[family](np.exp(observations.log_compute), *arguments), 0, 1)
    time_ = np.concatenate([[0.0], np.cumsum(observations.distance[1:])])
    covariance = (draws["noise"] ** 2)[:, None, None] * draws["persistence"][:, None, None] ** np.abs(
        time_[:, None] - time_
    )
    n = len(time_)
    covariance[:, range(n), range(n)] += level * (1 - level) * observations.inverse_trials + 1e-12
    residual = observations.fraction - level
    solved = np.linalg.solve(covariance, residual[:, :, None])[:, :, 0]
    _, log_determinant = np.linalg.slogdet(2 * np.pi * covariance)
    log_weight = -0.5 * (np.sum(residual * solved, axis=1) + log_determinant)
    top = log_weight.max()
    weight = np.exp(log_weight - top)
    for name in ("midpoint", "second_midpoint"):
        if name in draws:
            draws[name] = draws[name] * UPTO
    return Weighted(
        draws=draws,
        weight=weight / weight.sum(),
        log_evidence=float(top + np.log(weight.mean())),
        log_evidence_error=float(weight.std() / weight.mean() / np.sqrt(size)),
    )


REPEATS = 16
CASES = [(family, latent) for family in FAMILIES for latent in (False, True)]


@cache
def reference_and_fit(family: str, latent: bool) -> tuple[Weighted, Particles]:
    observations = observed(
        np.log([0.2, 0.5, 1.0]),
        np.array([0.36, 0.50, 0.46 if family == "collapse" else 0.57]),
        trials=300,
        floor=None if latent else 0.3,
        chance=0.2,
        distance=np.array([0.1, 1.0, 1.6]),
    )
    prior = prior_of(observations)
    effort = ParticleEffort(repeats=REPEATS, particles=1000, moves=8, keep=0.6)
    fit = sample_run(observations, 0, prior, family=family, seed=[3, 3], effort=effort)
    return weighted_prior(observations, prior, family, 200_000), fit


@pytest.mark.parametrize(("family", "latent"), CASES)
def test_evidence_agrees_with_plain_monte_carlo(family: str, latent: bool) -> None:
    reference, fit = reference_and_fit(family, latent)
    own = fit.log_evidences.std(ddof=1) / np.sqrt(REPEATS)
    error = np.hypot(own, reference.log_evidence_error)
    assert error < 0.05  # nats: a constant forgotten in the prior or the noise would show
    assert abs(fit.log_evidence - reference.log_evidence) < 4 * error


@pytest.mark.parametrize(("family", "latent"), CASES)
def test_quantiles_agree_with_plain_monte_carlo(family: str, latent: bool) -> None:
    reference, fit = reference_and_fit(family, latent)
    assert set(reference.draws) == set(fit.draws) - {"gain"}
    scores = {}
    for name in reference.draws:
        for probability in (0.05, 0.5, 0.95):
            at, error = reference.quantile(name, probability)
            below = (fit.draws[name] <= at).mean(axis=1)
            error = np.hypot(error, below.std(ddof=1) / np.sqrt(REPEATS))
            scores[name, probability] = float((below.mean() - probability) / error)
    assert max(map(abs, scores.values())) < 4.5, scores
    assert np.sqrt(np.mean(np.square(list(scores.values())))) < 1.7, scores


def test_where_the_coordinates_are_placed_does_not_matter() -> None:
    observations = simulated(5, 12)
    rows = prior_of(observations).rows("sigmoid")
    arrays = (
        observations.log_compute,
        observations.fraction,
        observations.inverse_trials,
        observations.distance,
    )
    found = []
    for level in (0.35, 0.5, 0.8):
        start = np.array([1.0, 0.3, 0.004, 0.0, level])
        fits = [
            kernel.anneal(np.random.default_rng([s, 9]), 0, rows, start, *arrays, 800, 6, 0.6)
            for s in range(10)
        ]
        found.append(
            (
                np.array([one[1] for one in fits]),
                np.array([one[0][:, 1].mean() for one in fits]),
                np.array([one[0][:, 1].std() for one in fits]),
            )
        )
    for other in found[1:]:
        for here, there in zip(found[0], other, strict=True):
            error = np.hypot(here.std(ddof=1), there.std(ddof=1)) / np.sqrt(10)
            assert abs(here.mean() - there.mean()) < 4 * error


# Seeds, repeats, threads


def same(one: Particles, other: Particles) -> bool:
    return all(np.array_equal(one.draws[name], other.draws[name]) for name in one.draws) and np.array_equal(
        one.log_evidences, other.log_evidences
    )


def test_same_seed_same_draws_and_repeats_of_their_own() -> None:
    observations = simulated(1, 12)
    prior = prior_of(observations)
    effort = replace(INTERVALS, repeats=3)
    first, again, other = (sample_run(observations, 0, prior, seed=seed, effort=effort) for seed in (7, 7, 8))
    assert same(first, again)
    assert not same(first, other)
    ceiling = first.draws["ceiling"]
    assert ceiling.shape == (3, INTERVALS.particles)
    for i in range(3):
        for k in range(i):
            assert not np.isin(ceiling[i], ceiling[k]).any()
    assert len(set(first.log_evidences)) == 3
    # More repeats begin with those that fewer would make.
    more = sample_run(observations, 0, prior, seed=7, effort=replace(effort, repeats=4))
    np.testing.assert_array_equal(more.draws["ceiling"][:3], ceiling)


def test_evidence_of_one_repeat_has_no_known_spread() -> None:
    observations = simulated(1, 6)
    one = sample_run(observations, 0, prior_of(observations), seed=0)
    assert np.isnan(one.log_evidence_sd)
    assert one.log_evidence == pytest.approx(one.log_evidences[0])


def test_threads_find_what_one_finds_alone() -> None:
    data = [simulated(seed, 10) for seed in range(8)]

    def one(j: int) -> Particles:
        return sample_run(data[j], 0, prior_of(data[j]), family=FAMILIES[j % 5], seed=j)

    alone = [one(j) for j in range(len(data))]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(one, range(len(data))))
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


def test_a_fit_lets_other_threads_work() -> None:
    observations = simulated(2, 40)
    prior = prior_of(observations)
    sample_run(observations, 0, prior, seed=0)
    # One call of the kernel, a second or so.
    long = ParticleEffort(repeats=1, particles=4000, moves=16, keep=0.8)
    thread = threading.Thread(target=lambda: sample_run(observations, 0, prior, seed=0, effort=long))
    ticks = 0
    thread.start()
    while thread.is_alive():
        time.sleep(0.01)
        ticks += 1
    assert ticks > 5


# What it is asked


def test_a_prior_of_its_own_moves_a_run_as_weights_would() -> None:
    """As when siblings have taught where the gain lies: Bayes' rule on the draws of the wide fit."""
    x = np.log(np.linspace(0.2, 1.0, 8))
    wiggle = 0.004 * np.array([1, -1, 0, 1, 0, -1, 1, -1])
    early = observed(x, curves.sigmoid(np.exp(x), 0.3, 0.65, 1.8, 1.2) + wiggle)
    wide = prior_of(early)
    told = replace(wide, gain=Normal(0.3, 0.25))
    effort = ParticleEffort(repeats=12, particles=1500, moves=8, keep=0.6)
    before, after = (sample_run(early, 0, prior, seed=6, effort=effort) for prior in (wide, told))
    ratio = norm.logpdf(before.draws["gain"], 0.3, 0.25) - norm.logpdf(
        before.draws["gain"], wide.gain.mean, wide.gain.sd
    )
    weight = np.exp(ratio)
    for name in ("ceiling", "exponent"):
        expected = np.sum(weight * before.draws[name], axis=1) / weight.sum(axis=1)
        found = after.draws[name].mean(axis=1)
        error = np.hypot(expected.std(ddof=1), found.std(ddof=1)) / np.sqrt(effort.repeats)
        assert abs(found.mean() - expected.mean()) < 4 * error, name
    assert after.draws["ceiling"].std() < 0.7 * before.draws["ceiling"].std()
    # The evidence is what the wide prior's draws expect of the new prior.
    gained = np.log(weight.mean(axis=1))
    found = after.log_evidences.mean() - before.log_evidences.mean()
    error = np.sqrt(
        (gained.var(ddof=1) + after.log_evidences.var(ddof=1) + before.log_evidences.var(ddof=1))
        / effort.repeats
    )
    assert abs(found - gained.mean()) < 4 * error


def test_only_the_run_that_was_asked_for_matters() -> None:
    observations = simulated(3, 10)
    two = observed(observations.log_compute, observations.fraction, runs=2)
    other = two.fraction.copy()
    other[10:] = other[10:][::-1]
    changed = replace(two, fraction=other)
    prior = prior_of(observations)
    alone = sample_run(observations, 0, prior, seed=1)
    assert same(alone, sample_run(changed, 0, prior, seed=1))
    assert not same(alone, sample_run(changed, 1, prior, seed=1))


def test_midpoints_come_in_the_unit_of_compute() -> None:
    observations = simulated(3, 10)
    moved = replace(observations, log_reference=observations.log_reference + np.log(1000))
    prior = prior_of(observations)
    here, there = (sample_run(one, 0, prior, family="second_rise", seed=1) for one in (observations, moved))
    for name in ("midpoint", "second_midpoint"):
        np.testing.assert_allclose(there.draws[name], 1000 * here.draws[name])
    np.testing.assert_array_equal(there.draws["ceiling"], here.draws["ceiling"])


def test_an_unknown_family_is_refused() -> None:
    observations = simulated(3, 10)
    with pytest.raises(InputError, match=r"unknown curve family.*'gompertz'.*sigmoid \| burr"):
        sample_run(observations, 0, prior_of(observations), family="gompertz", seed=0)


# Accuracy of the efforts in use


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "curve"), [("sigmoid", "sigmoid")] + [(a, b) for a in FAMILIES[1:] for b in ("sigmoid", a)]
)
def test_log_evidence_is_known_to_half_a_nat(family: str, curve: str) -> None:
    for seed, points in ((0, 30), (1, 40), (2, 50)):
        observations = simulated(seed, points, curve=curve)
        found = sample_run(
            observations,
            0,
            prior_of(observations),
            family=family,
            seed=seed,
            effort=replace(ACCURATE, repeats=8),
        )
        assert found.log_evidence_sd <= 0.5, (seed, found.log_evidences)
