"""Bayes factors of curve families: arithmetic, Monte-Carlo errors, repeats where they matter, evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import chi2
from weighed_by_hand import UPTO, curve_runs, hand_particles, hand_weighed, moved, smooth

from forecast import curves
from forecast.inference import kernel, weighing
from forecast.inference.observations import Observations, observe
from forecast.inference.particle import INTERVALS, Particles
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import FAMILIES, RunPrior, run_prior
from forecast.inference.weighing import LEAST_REPEATS, MOST_REPEATS, MOVES, SMOOTH, Weighed, flattened, weigh

UNEVEN = {
    "sigmoid": [-3.0, -3.4, -2.9],
    "burr": [-3.1, -2.2, -3.0, -2.7],
    "power_law": [-6.0, -6.5, -5.7],
    "second_rise": [-1.0, -0.2, -1.7],
    "collapse": [-9.0, -8.0, -8.4],
}


def mean_evidence(name: str) -> float:
    return float(np.log(np.mean(np.exp(UNEVEN[name]))))


def relative_error(name: str) -> float:
    evidence = np.exp(UNEVEN[name])
    return float(np.std(evidence, ddof=1) / np.sqrt(len(evidence)) / np.mean(evidence))


# Arithmetic


def test_weights_of_smooth_families_sum_to_one() -> None:
    assert sum(SMOOTH.values()) == pytest.approx(1)
    assert set(SMOOTH) | set(MOVES.values()) == set(FAMILIES)


def test_log_bayes_factors_are_those_of_the_numbers_by_hand() -> None:
    weighed = hand_weighed(UNEVEN)
    smooth_ = logsumexp([np.log(SMOOTH[name]) + mean_evidence(name) for name in SMOOTH])
    assert weighed.log_smooth == pytest.approx(smooth_)
    for kind, family in MOVES.items():
        assert weighed.log_bayes_factor(kind) == pytest.approx(mean_evidence(family) - smooth_)


def test_the_error_of_a_bayes_factor_adds_up_those_of_its_parts() -> None:
    weighed = hand_weighed(UNEVEN)
    share = np.array([SMOOTH[name] * np.exp(mean_evidence(name)) for name in SMOOTH])
    share /= share.sum()
    of_smooth = np.array([relative_error(name) for name in SMOOTH])
    for kind, family in MOVES.items():
        expected = np.sqrt(np.sum((share * of_smooth) ** 2) + relative_error(family) ** 2)
        assert weighed.log_bayes_factor_se(kind) == pytest.approx(expected)


def test_a_bayes_factor_does_not_depend_on_the_size_of_a_likelihood() -> None:
    one = hand_weighed(UNEVEN)
    other = hand_weighed({name: np.array(value) - 5_000 for name, value in UNEVEN.items()})
    for kind in MOVES:
        assert other.log_bayes_factor(kind) == pytest.approx(one.log_bayes_factor(kind))
        assert other.log_bayes_factor_se(kind) == pytest.approx(one.log_bayes_factor_se(kind))


def test_repeats_count_by_the_evidence_they_found() -> None:
    particles = hand_particles("burr", np.log([1.0, 3.0]), size=50)
    draws, weights = flattened(particles)
    assert weights.sum() == pytest.approx(1)
    assert weights[:50].sum() == pytest.approx(0.25)
    assert len(set(weights[50:])) == 1
    np.testing.assert_array_equal(draws["tail"][50:], particles.draws["tail"][1])


@pytest.mark.parametrize(("first", "second", "expected"), [(0.5, 2.0, 0.25), (2.0, 0.5, 0.75)])
def test_a_move_has_begun_once_a_tenth_of_it_is_made(first: float, second: float, expected: float) -> None:
    particles = hand_particles("second_rise", np.log([1.0, 3.0]))
    tenth = UPTO * np.array([first, second])[:, None] * np.ones_like(particles.draws["floor"])
    particles.draws["second_midpoint"] = tenth * 9.0 ** (1 / particles.draws["second_exponent"])
    weighed = Weighed(hand_weighed().particles | {"second_rise": particles}, UPTO)
    assert weighed.begun("rise") == pytest.approx(expected)
    at_tenth = curves.sigmoid(tenth, 0, 1, 4.0, particles.draws["second_midpoint"])
    np.testing.assert_allclose(at_tenth, 0.1)


# Repeats


def pretend(
    monkeypatch: pytest.MonkeyPatch, evidence: Callable[[str, int], float]
) -> tuple[Counter[str], list[tuple[str, int]]]:
    """Let one repeat of a family find what `evidence` says; count the repeats."""
    counted: Counter[str] = Counter()
    asked: list[tuple[str, int]] = []

    def once(
        observations: Observations,
        j: int,
        prior: RunPrior,
        family: str,
        seed: Sequence[int],
        repeat: int = 0,
    ) -> Particles:
        counted[family] += 1
        asked.append((family, repeat))
        return hand_particles(family, evidence(family, repeat), size=4)

    monkeypatch.setattr(weighing, "sample_once", once)
    return counted, asked


@pytest.fixture
def eight() -> tuple[Observations, RunPrior]:
    observations = observe(curve_runs({"a": smooth()[:8]}))
    return observations, run_prior(PRIORS["wide"], observations, 0)


def test_every_family_that_matters_is_sampled_at_least_three_times(monkeypatch, eight) -> None:
    counted, asked = pretend(monkeypatch, lambda family, repeat: {"power_law": -20.0}.get(family, 0.0))
    weigh(*eight[:1], 0, eight[1], seed=[1], close=(1.0, 3.0))
    assert counted == dict.fromkeys(FAMILIES, LEAST_REPEATS) | {"power_law": 1}
    assert len(set(asked)) == len(asked)  # every repeat has random numbers of its own


def test_repeats_are_added_near_a_threshold_to_the_kind_that_is_near(monkeypatch, eight) -> None:
    noisy = {0: 0.3, 1: -0.3, 2: 0.1}

    def evidence(family: str, repeat: int) -> float:
        return (3.0 if family == "second_rise" else 0.0) + noisy[repeat % 3]

    counted, asked = pretend(monkeypatch, evidence)
    weighed = weigh(eight[0], 0, eight[1], seed=[1], close=(3.0,))
    assert counted["second_rise"] == MOST_REPEATS
    assert counted["collapse"] == LEAST_REPEATS
    assert {counted[name] for name in SMOOTH} == {MOST_REPEATS}
    assert len(set(asked)) == len(asked)
    assert len(weighed.particles["second_rise"].log_evidences) == MOST_REPEATS
    counted.clear()
    weigh(eight[0], 0, eight[1], seed=[1], close=())
    assert set(counted.values()) == {LEAST_REPEATS}


def test_repeats_end_once_the_threshold_is_two_errors_away(monkeypatch, eight) -> None:
    def evidence(family: str, repeat: int) -> float:
        return 3.35 + {0: 0.6, 1: -0.6}.get(repeat, 0.2) if family == "second_rise" else 0.0

    counted, _ = pretend(monkeypatch, evidence)
    weighed = weigh(eight[0], 0, eight[1], seed=[1], close=(3.0,))
    assert LEAST_REPEATS < counted["second_rise"] < MOST_REPEATS
    assert not weighed.undecided("rise", (3.0,))
    fewer = {
        name: Particles(name, p.draws, p.log_evidences[:-1], 1, 1, 1) for name, p in weighed.particles.items()
    }
    assert Weighed(fewer, UPTO).undecided("rise", (3.0,))


def test_a_family_whose_evidence_comes_near_late_still_has_an_error(monkeypatch, eight) -> None:
    """The best family's mean falls with its later repeats until another one is no longer negligible."""

    def evidence(family: str, repeat: int) -> float:
        if family == "power_law":
            return float(-6.9 + np.log(SMOOTH["sigmoid"] / SMOOTH["power_law"]))
        best = 0.0 if repeat == 0 else -8.0
        return {"sigmoid": best, "burr": -20.0}.get(family, 0.0)

    pretend(monkeypatch, evidence)
    weighed = weigh(eight[0], 0, eight[1], seed=[1], close=(3.0,))
    assert all(np.isfinite(weighed.log_bayes_factor_se(kind)) for kind in MOVES)


def test_first_repeats_that_were_made_before_are_not_made_again(monkeypatch, eight) -> None:
    counted, asked = pretend(monkeypatch, lambda family, repeat: float(repeat))
    first = {"second_rise": hand_particles("second_rise", 7.0, size=4)}
    weighed = weigh(eight[0], 0, eight[1], seed=[1], first=first)
    assert ("second_rise", 0) not in asked
    assert counted["second_rise"] == LEAST_REPEATS - 1
    np.testing.assert_array_equal(weighed.particles["second_rise"].log_evidences, [7.0, 1.0, 2.0])


def test_the_same_seed_weighs_the_same_and_another_one_differs(eight) -> None:
    once, again, other = (weigh(eight[0], 0, eight[1], seed=[s, 8]) for s in (1, 1, 2))
    for family in FAMILIES:
        one, two = once.particles[family], again.particles[family]
        np.testing.assert_array_equal(one.log_evidences, two.log_evidences)
        np.testing.assert_array_equal(one.draws["ceiling"], two.draws["ceiling"])
        assert not np.isin(other.particles[family].log_evidences, one.log_evidences).any()
        assert len(set(one.log_evidences)) == len(one.log_evidences)
        assert one.draws["floor"].shape == (len(one.log_evidences), INTERVALS.particles)
    assert once.fitted_upto == pytest.approx(8_000.0)


# Evidence


def covariance_likelihood(
    level: NDArray, noise: NDArray, persistence: NDArray, observations: Observations
) -> NDArray:
    """Log density of the evaluations as one multivariate normal per draw."""
    time = np.concatenate([[0.0], np.cumsum(observations.distance[1:])])
    n = len(time)
    covariance = (noise**2)[:, None, None] * persistence[:, None, None] ** np.abs(time[:, None] - time)
    covariance[:, range(n), range(n)] += level * (1 - level) * observations.inverse_trials + 1e-12
    residual = observations.fraction - level
    solved = np.linalg.solve(covariance, residual[:, :, None])[:, :, 0]
    return -0.5 * (np.sum(residual * solved, axis=1) + np.linalg.slogdet(2 * np.pi * covariance)[1])


def from_the_prior(
    observations: Observations, prior: RunPrior, family: str, size: int, seed: int
) -> tuple[float, float]:
    """Log evidence by plain Monte Carlo from the prior, and its relative error."""
    rows, number = prior.rows(family), FAMILIES.index(family)
    start = np.array([1.0, observations.floor[0], observations.floor_se[0], observations.chance, 0.5])
    rng = np.random.default_rng(seed)
    parts = []
    out = np.empty(len(rows) + 1)
    for _ in range(10):
        p = np.empty((size // 10, len(rows) + 1))
        for k, z in enumerate(rng.standard_normal((len(p), len(rows)))):
            kernel.unpack(z, number, rows, start, out)
            p[k] = out
        columns = [p[:, 0], p[:, 1], p[:, 2], np.exp(p[:, 3]), *(p[:, i] for i in range(6, len(rows)))]
        if family in MOVES.values():
            columns[-1] = np.exp(columns[-1])
        if family == "collapse":
            columns[4] = -columns[4]
        level = getattr(curves, family)(np.exp(observations.log_compute), *(c[:, None] for c in columns))
        parts.append(covariance_likelihood(np.clip(level, 0, 1), p[:, 4], p[:, 5], observations))
    log_l = np.concatenate(parts)
    weight = np.exp(log_l - log_l.max())
    return float(log_l.max() + np.log(weight.mean())), float(weight.std() / weight.mean() / np.sqrt(size))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_agrees_with_plain_monte_carlo_from_the_prior(family: str) -> None:
    compute = np.array([400.0, 900.0, 1_600.0, 2_600.0, 4_000.0, 6_000.0, 8_000.0])
    late = {"second_rise": 0.2, "collapse": -0.2}.get(family, 0.0)
    curve = curves.sigmoid(compute, 0.3, 0.6, 1.8, 1_500.0) + late * (compute > 5_000)
    runs = curve_runs({"a": curve}, compute=compute, sd=0.02, seed=4)
    runs.table["trials"] = 150  # blunt evaluations, which enough of the prior explains
    observations = observe(runs)
    assert observations.inverse_trials[0] == 1 / 150
    assert len(observations.run) == 7
    prior = run_prior(PRIORS["wide"], observations, 0)
    expected, error = from_the_prior(observations, prior, family, 200_000, seed=5)
    assert error < 0.06
    particles = weigh(observations, 0, prior, seed=[6], close=()).particles[family]
    more = weigh(observations, 0, prior, seed=[7], close=()).particles[family]
    evidences = np.concatenate([particles.log_evidences, more.log_evidences])
    if len(evidences) == 2:  # a smooth family far behind
        evidences = np.array(
            [weighing.sample_once(observations, 0, prior, family, [s]).log_evidence for s in range(6)]
        )
    ratio = np.exp(evidences - expected)
    of_repeats = ratio.std(ddof=1) / np.sqrt(len(ratio))
    # The sd of six numbers is itself uncertain: 4.5 sds of a normal are 9 of a t with 5 degrees.
    assert abs(ratio.mean() - 1) < 4.5 * error + 9 * of_repeats
    assert of_repeats < 0.3


@pytest.mark.slow
def test_the_error_of_a_bayes_factor_is_its_scatter_over_seeds() -> None:
    calls = 16
    observations = observe(curve_runs({"a": moved(0.08, 8_500.0)[:10]}))
    prior = run_prior(PRIORS["wide"], observations, 0)
    found = [weigh(observations, 0, prior, seed=[s, 3]) for s in range(calls)]
    for kind in MOVES:
        values = [one.log_bayes_factor(kind) for one in found]
        said = np.sqrt(np.mean([one.log_bayes_factor_se(kind) ** 2 for one in found]))
        ratio = np.var(values, ddof=1) / said**2
        low, high = chi2.ppf([5e-4, 1 - 5e-4], calls - 1) / (calls - 1)
        # What is said rests on three repeats per call: its square errs by a fourth or so.
        assert low / 1.6 < ratio < 1.6 * high, (kind, ratio)
