"""The compiled core against dense linear algebra, closed forms, numerical derivatives and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import kstest, multivariate_normal, multivariate_t

from forecast import curves
from forecast.inference import kernel
from forecast.inference.priors import PRIORS
from forecast.inference.run_prior import (
    EXPONENT,
    FAMILIES,
    FLOOR,
    GAIN,
    MIDPOINT,
    NOISE,
    PERSISTENCE,
    SECOND_EXPONENT,
    SECOND_MIDPOINT,
    SIZE,
    TAIL,
)

Array = NDArray[np.float64]
WIDE = PRIORS["wide"]
CURVES = {name: getattr(curves, name) for name in FAMILIES}
ADDED = {"sigmoid": 0, "burr": 1, "power_law": 0, "second_rise": 3, "collapse": 3}


def prior_rows(family: str) -> Array:
    """Mean and sd of every parameter, or the ends of the second midpoint, written out by hand."""
    normals = [WIDE.latent_floor, WIDE.gain, WIDE.log_exponent, WIDE.log_midpoint]
    rows = [(normal.mean, normal.sd) for normal in normals] + [(np.log(0.012), 1.0), (0.0, 1.2)]
    if family == "power_law":
        rows[2] = (0.0, 0.6)
    if family == "burr":
        rows.append((0.0, 0.5))
    if family in ("second_rise", "collapse"):
        rows += [(0.0, 1.5), (1.386, 0.8), (-1.386, 1.386)]
    return np.array(rows)


def level(family: str, parameters: Array, log_compute: Array) -> Array:
    """The curve by `forecast.curves`, held within 0-1."""
    added = []
    if family == "burr":
        added = [parameters[TAIL]]
    elif family in ("second_rise", "collapse"):
        size = parameters[SIZE] if family == "second_rise" else -parameters[SIZE]
        added = [size, parameters[SECOND_EXPONENT], np.exp(parameters[SECOND_MIDPOINT])]
    shape = (parameters[EXPONENT], np.exp(parameters[MIDPOINT]))
    value = CURVES[family](np.exp(log_compute), parameters[FLOOR], parameters[GAIN], *shape, *added)
    return np.clip(value, 0.0, 1.0)


def random_parameters(family: str, rng: np.random.Generator) -> Array:
    """Any curve a user could meet, and some that nobody will."""
    floor = rng.uniform(0.0, 0.8)
    ceiling = rng.uniform(floor, 1.0)
    parameters = [floor, ceiling, np.exp(rng.normal(0.6, 0.8)), rng.normal(-0.7, 2.0)]
    parameters += [np.exp(rng.normal(np.log(0.01), 1.0)), rng.uniform(0.01, 0.99)]
    if family == "burr":
        parameters.append(np.exp(rng.normal(0.0, 1.0)))
    if family in ("second_rise", "collapse"):
        size = rng.uniform(0, 1 - ceiling) if family == "second_rise" else -rng.uniform(0, ceiling)
        parameters += [size, np.exp(rng.normal(1.4, 1.0)), rng.uniform(-1.4, 1.4)]
    return np.array([*parameters, 0.0])


def start(
    *, known: bool, floor: float = 0.3, se: float = 0.01, chance: float = 0.0, reached: float = 0.55
) -> Array:
    return np.array([float(known), floor, se, chance, reached])


# The curves


@pytest.mark.parametrize("family", FAMILIES)
def test_levels_are_the_curves_held_within_0_and_1(family: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.linspace(-6, 6, 25), [-69.0, 69.0]])
    ends = set()
    for _ in range(300):
        parameters = random_parameters(family, rng)
        found = [kernel._level(FAMILIES.index(family), parameters, value) for value in x]
        np.testing.assert_allclose(found, level(family, parameters, x), atol=1e-13)
        ends |= {min(found), max(found)} & {0.0, 1.0}
    assert (0.0 in ends) == (family == "collapse")  # the case that needs holding is among those tried


# The likelihood


@pytest.mark.parametrize("blur", [0.0, 0.02**2])
@pytest.mark.parametrize("trials", ["unknown", "some", "all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_likelihood_is_the_dense_normal(family: str, trials: str, blur: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        n = int(rng.integers(1, 30))  # past two and more folds of the product of variances
        parameters = random_parameters(family, rng)
        x = np.sort(rng.uniform(-4, 0, n))
        distance = rng.choice([1.0, 0.1, rng.uniform(0.2, 4.0)], n)
        distance[0] = 0.1  # as `observe` has it; says nothing
        inverse_trials = {
            "unknown": np.zeros(n),
            "some": np.where(rng.random(n) < 0.5, 1 / 500, 0.0),
            "all": 1 / rng.uniform(20, 20_000, n),
        }[trials]
        mean = level(family, parameters, x)
        y = np.clip(mean + 0.02 * rng.standard_normal(n), 0, 1)
        time = np.concatenate([[0.0], np.cumsum(distance[1:])])
        covariance = parameters[NOISE] ** 2 * parameters[PERSISTENCE] ** np.abs(time[:, None] - time)
        covariance += np.diag(mean * (1 - mean) * inverse_trials + 1e-12 + blur)
        found = kernel.log_likelihood(
            FAMILIES.index(family), parameters, x, y, inverse_trials, distance, blur
        )
        expected = multivariate_normal(mean, covariance, allow_singular=True).logpdf(y)
        # Rounding: of the dense solve, with condition numbers up to 1e6.
        assert found == pytest.approx(expected, rel=1e-8, abs=1e-7)


def test_variances_of_any_size_neither_overflow_nor_vanish() -> None:
    n = 400
    x, distance = np.linspace(-3, 0, n), np.ones(n)
    for noise in (1e-9, 1e3):
        parameters = np.array([0.2, 0.6, 1.8, -1.0, noise, 0.5, 0.0])
        y = level("sigmoid", parameters, x)
        found = kernel.log_likelihood(0, parameters, x, y, np.zeros(n), distance, 0.0)
        # No residual: what is left is the determinant, here of a first-order chain (noise^2, phi^gap).
        expected = -0.5 * n * np.log(2 * np.pi)
        if noise > 1:
            expected -= n * np.log(noise) + 0.5 * (n - 1) * np.log1p(-0.25)
        else:
            expected -= 0.5 * n * np.log(1e-12)
        assert found == pytest.approx(expected, rel=1e-5)


# What the whitened parameters mean


@pytest.mark.parametrize("chance", [0.0, 0.25])
@pytest.mark.parametrize("known", [True, False], ids=["measured", "latent"])
@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_keep_their_order_and_their_priors(family: str, known: bool, chance: float) -> None:
    prior = prior_rows(family)
    begin = start(known=known, chance=chance, floor=0.3)
    rng = np.random.default_rng(2)
    assert len(prior) == 6 + ADDED[family]
    for _ in range(200):
        z = 2 * rng.standard_normal(len(prior))
        p = np.empty(len(prior) + 1)
        kernel.unpack(z, FAMILIES.index(family), prior, begin, p)
        straight = prior[:, 0] + prior[:, 1] * z
        floor, ceiling = p[FLOOR], p[GAIN]
        assert 0 < floor < ceiling <= 1
        assert (ceiling - floor) / (1 - floor) == pytest.approx(expit(straight[GAIN]), rel=1e-9)
        assert p[-1] == straight[GAIN]
        if known:
            assert floor == pytest.approx(0.3 + 0.01 * z[FLOOR], abs=1e-9)
        else:
            assert floor >= chance
            share = (floor - chance) / (ceiling - chance)
            assert share == pytest.approx(expit(straight[FLOOR]), rel=1e-9)
        assert np.log(p[EXPONENT]) == pytest.approx(straight[EXPONENT])
        assert p[MIDPOINT] == straight[MIDPOINT]
        assert np.log(p[NOISE]) == pytest.approx(straight[NOISE])
        assert logit(p[PERSISTENCE]) == pytest.approx(straight[PERSISTENCE], rel=1e-6)
        if family == "burr":
            assert np.log(p[TAIL]) == pytest.approx(straight[TAIL])
        if family in ("second_rise", "collapse"):
            room = 1 - ceiling if family == "second_rise" else -ceiling
            assert p[SIZE] / room == pytest.approx(expit(straight[SIZE]), rel=1e-9)
            assert 0 <= ceiling + p[SIZE] <= 1
            assert np.log(p[SECOND_EXPONENT]) == pytest.approx(straight[SECOND_EXPONENT])


@pytest.mark.parametrize("measured", [0.0, 0.002, 0.5, 0.998, 1.0])
def test_a_measured_floor_stays_inside_0_and_1(measured: float) -> None:
    prior, p = prior_rows("sigmoid"), np.empty(7)
    previous = 0.0
    for value in np.linspace(-6, 6, 61):
        z = np.array([value, 0, 0, 0, 0, 0])
        kernel.unpack(z, 0, prior, start(known=True, floor=measured, se=0.004), p)
        assert previous < p[FLOOR] < 1
        assert abs(p[FLOOR] - measured) < 0.004 * (1 + abs(value))
        previous = p[FLOOR]


def test_a_second_midpoint_is_log_uniform() -> None:
    prior = prior_rows("second_rise")
    rng = np.random.default_rng(3)
    found = []
    for _ in range(4000):
        p = np.empty(10)
        kernel.unpack(rng.standard_normal(9), FAMILIES.index("second_rise"), prior, start(known=True), p)
        found.append(p[SECOND_MIDPOINT])
    low, high = prior[SECOND_MIDPOINT]
    assert kstest(found, "uniform", args=(low, high - low)).pvalue > 1e-3


# The coordinates that particles move in

PLACES = {
    "measured": start(known=True),
    "measured, nearly full": start(known=True, floor=0.95, se=0.004, reached=0.99),
    "latent": start(known=False),
    "latent, above chance": start(known=False, chance=0.25),
    "latent, below chance": start(known=False, chance=0.5, reached=0.4),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", ["sigmoid", "power_law", "collapse"])
def test_coordinates_are_inverted(family: str, place: str) -> None:
    prior, begin = prior_rows(family), PLACES[place]
    rng = np.random.default_rng(4)
    for scale in (1.0, 3.0):
        for _ in range(200):
            z = scale * rng.standard_normal(len(prior))
            c, back, there = np.empty_like(z), np.empty_like(z), np.empty_like(z)
            kernel.to_coordinates(z, prior, begin, c)
            kernel.from_coordinates(c, prior, begin, back)
            np.testing.assert_allclose(back, z, atol=1e-8 * scale, rtol=1e-8)
            kernel.to_coordinates(back, prior, begin, there)
            np.testing.assert_allclose(there, c, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("family", ["sigmoid", "power_law", "collapse"])
def test_volume_element_is_the_determinant(family: str, place: str) -> None:
    prior, begin = prior_rows(family), PLACES[place]
    rng = np.random.default_rng(5)
    d, step = len(prior), 1e-5
    differences = []
    for _ in range(40):
        c, z = np.empty(d), 1.5 * rng.standard_normal(d)
        kernel.to_coordinates(z, prior, begin, c)
        log_volume = kernel.from_coordinates(c, prior, begin, z)
        jacobian = np.empty((d, d))
        for i in range(d):
            ahead, behind = np.empty(d), np.empty(d)
            moved = c.copy()
            moved[i] = c[i] + step
            kernel.from_coordinates(moved, prior, begin, ahead)
            moved[i] = c[i] - step
            kernel.from_coordinates(moved, prior, begin, behind)
            jacobian[:, i] = (ahead - behind) / (2 * step)
        _, expected = np.linalg.slogdet(jacobian)
        differences.append(log_volume - expected)
    # Central differences: step^2 times third derivatives.
    np.testing.assert_allclose(differences, differences[0], atol=1e-5)


# The machinery


def test_resampling_keeps_expected_counts() -> None:
    rng = np.random.default_rng(6)
    weights = rng.gamma(0.3, size=40)
    weights[[3, 17, 39]] = 0.0
    weights /= weights.sum()
    expected = 40 * weights
    draws = 4000
    counts = np.array([np.bincount(kernel._resample(rng, weights), minlength=40) for _ in range(draws)])
    assert (counts.sum(axis=1) == 40).all()
    # Systematic: each particle goes on floor(n w) or ceil(n w) times.
    assert (counts >= np.floor(expected - 1e-9)).all()
    assert (counts <= np.ceil(expected + 1e-9)).all()
    part = expected - np.floor(expected)
    error = np.sqrt(part * (1 - part) / draws)
    assert (np.abs(counts.mean(axis=0) - expected) <= 4.5 * error + 1e-12).all()


def test_parameters_beyond_floats_are_impossible_not_nan() -> None:
    x, none = np.linspace(-3, 0, 30), np.zeros(30)
    for noise in (1e200, np.inf):
        parameters = np.array([0.2, 0.6, 1.8, -1.0, noise, 0.5, 0.0])
        found = kernel.log_likelihood(0, parameters, x, none + 0.4, none, none + 1, 0.0)
        assert found < -1e200
        assert np.isfinite(found)


@pytest.mark.parametrize("keep", [0.5, 0.7, 0.8])
@pytest.mark.parametrize("points", [1, 8, 40])
def test_steps_keep_the_asked_share_effective(keep: float, points: int) -> None:
    """From particles at the prior down to no blur, with moves left out: only what each step does to weights."""
    rng = np.random.default_rng(7)
    prior, x = prior_rows("sigmoid"), np.linspace(-2.5, 0, points)
    p = np.empty((400, 7))
    for k in range(len(p)):
        kernel.unpack(rng.standard_normal(6), 0, prior, start(known=True), p[k])
    y = level("sigmoid", p[0], x) + 0.01 * rng.standard_normal(points)
    inverse_trials, distance = np.full(points, 1 / 1000), np.ones(points)
    log_l, log_l_next = np.zeros(len(p)), np.empty(len(p))
    log_blur, pace, shares = kernel._BLURRED, 0.7, []
    for _ in range(12):
        was = log_blur
        log_blur, pace = kernel._sharpen(
            0, p, x, y, inverse_trials, distance, log_l, was, pace, keep, log_l_next
        )
        assert log_blur < was
        assert pace > 0
        blur = np.exp(2 * log_blur)
        expected = [kernel.log_likelihood(0, one, x, y, inverse_trials, distance, float(blur)) for one in p]
        np.testing.assert_allclose(log_l_next, expected)
        weight = np.exp(log_l_next - log_l - (log_l_next - log_l).max())
        shares.append(weight.sum() ** 2 / (weight**2).sum() / len(p))
        if log_blur == -np.inf:
            break
        chosen = rng.choice(len(p), len(p), p=weight / weight.sum())
        # A little jitter stands in for the moves.
        p, log_l = p[chosen], log_l_next[chosen].copy()
        p[:, EXPONENT] *= np.exp(0.02 * rng.standard_normal(len(p)))
        log_l = np.array(
            [kernel.log_likelihood(0, one, x, y, inverse_trials, distance, float(blur)) for one in p]
        )
    assert min(shares) >= keep
    # Not needlessly small either, but for the last.
    assert np.median(shares[:-1] or [keep]) < keep + kernel._SLACK + 0.1


def test_leaps_are_weighed_by_the_density_they_come_from() -> None:
    rng = np.random.default_rng(8)
    d = 6
    root = rng.standard_normal((d, d))
    covariance = root @ root.T + np.eye(d)
    centre = rng.standard_normal(d)
    oracle = multivariate_t(centre, covariance, df=kernel._DEGREES)
    lower, work = np.linalg.cholesky(covariance), np.empty(d)
    points = centre + 3 * rng.standard_normal((30, d))
    found = np.array([kernel._log_student(point, centre, lower, work) for point in points])
    np.testing.assert_allclose(found - found[0], oracle.logpdf(points) - oracle.logpdf(points[0]), rtol=1e-9)
