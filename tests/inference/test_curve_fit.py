"""The textbook fit against SciPy's, on curves it must find exactly, and on data that nothing fits."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import curve_fit as scipy_fit
from scipy.optimize import least_squares as scipy_least_squares

from forecast.curves import power_law, sigmoid
from forecast.errors import InputError
from forecast.inference.curve_fit import COORDINATES, CurveFit, fit_curve

CURVES = {"sigmoid": sigmoid, "power_law": power_law}
X = np.linspace(1_000.0, 16_000.0, 30)
TRUTH = (0.3, 0.62, 1.6, 3_000.0)


def noisy(family: str, sd: float = 0.004, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return CURVES[family](X, *TRUTH) + sd * rng.standard_normal(len(X))


def fitted(family: str, x: np.ndarray, y: np.ndarray, floor: float | None) -> CurveFit:
    result = fit_curve(family, x, y, floor)
    assert result is not None
    return result


@pytest.mark.parametrize("family", CURVES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("unit", [1.0, 1e21, 1e-6])
def test_parameters_of_a_noiseless_curve_are_found(family: str, known: bool, unit: float) -> None:
    result = fitted(family, unit * X, CURVES[family](X, *TRUTH), TRUTH[0] if known else None)
    found = (result.floor, result.ceiling, result.exponent, result.midpoint / unit)
    np.testing.assert_allclose(found, TRUTH, rtol=1e-5)
    later = np.array([32_000.0, 64_000.0])
    np.testing.assert_allclose(result.predict(unit * later), CURVES[family](later, *TRUTH), atol=1e-6)


@pytest.mark.parametrize("family", CURVES)
@pytest.mark.parametrize("known", [True, False])
def test_estimate_and_covariance_are_those_of_scipy(family: str, known: bool) -> None:
    y = noisy(family, 0.001 if family == "power_law" else 0.004)
    result = fitted(family, X, y, TRUTH[0] if known else None)

    def curve(x: np.ndarray, *z: float) -> np.ndarray:
        floor, ceiling, log_exponent, log_midpoint = (TRUTH[0], *z) if known else z
        return CURVES[family](x, floor, ceiling, np.exp(log_exponent), np.exp(log_midpoint))

    start = [*TRUTH[:2], np.log(TRUTH[2]), np.log(TRUTH[3])][known:]
    expected, covariance = scipy_fit(curve, X, y, start, xtol=1e-12, ftol=1e-12)
    ours = [result.floor, result.ceiling, np.log(result.exponent), np.log(result.midpoint)][known:]
    np.testing.assert_allclose(ours, expected, rtol=2e-3)
    # SciPy differentiates numerically.
    np.testing.assert_allclose(result.covariance[known:, known:], covariance, rtol=0.03)
    if known:
        assert not result.covariance[0].any()
    assert result.residual_sd == pytest.approx(np.sqrt(result.sse / (len(X) - len(COORDINATES) + known)))


@pytest.mark.parametrize("family", CURVES)
def test_no_other_start_does_better(family: str) -> None:
    rng = np.random.default_rng(1)
    for k in range(12):
        x = X[: rng.integers(8, 30)]
        y = np.clip(
            sigmoid(x, 0.3, rng.uniform(0.5, 0.9), rng.uniform(0.8, 3), 16_000 * rng.uniform(0.05, 0.6)), 0, 1
        )
        y = y + 0.006 * rng.standard_normal(len(x))
        result = fitted(family, x, y, 0.3)
        low, high = result.bounds[:, 1:]

        def residual(z: np.ndarray, x: np.ndarray = x, y: np.ndarray = y) -> np.ndarray:
            return CURVES[family](x, 0.3, z[0], np.exp(z[1]), np.exp(z[2])) - y

        best = min(
            2
            * scipy_least_squares(
                residual, rng.uniform(low, high), bounds=(low, high), x_scale=(0.1, 1, 1)
            ).cost
            for _ in range(5)
        )
        assert result.sse <= best * 1.01, k


def test_draws_spread_as_the_covariance_says() -> None:
    result = fitted("sigmoid", X, noisy("sigmoid"), TRUTH[0])
    at = np.array([16_000.0, 64_000.0])
    draws = result.draws(at, 20_000, np.random.default_rng(0))
    assert draws.shape == (20_000, 2)
    step = 1e-5
    gradient = []
    for k in range(1, 4):
        moved = [result.floor, result.ceiling, np.log(result.exponent), np.log(result.midpoint)]
        moved[k] += step
        ahead = sigmoid(at, moved[0], moved[1], np.exp(moved[2]), np.exp(moved[3]))
        gradient.append((ahead - result.predict(at)) / step)
    slopes = np.array(gradient)
    expected = np.sqrt(np.einsum("kp,kl,lp->p", slopes, result.covariance[1:, 1:], slopes))
    np.testing.assert_allclose(draws.std(axis=0), expected, rtol=0.06)
    np.testing.assert_allclose(draws.mean(axis=0), result.predict(at), atol=3 * expected.max() / 10)
    again = result.draws(at, 20_000, np.random.default_rng(0))
    np.testing.assert_array_equal(draws, again)


ODD: dict[str, tuple[list[float], list[float], float | None]] = {
    "empty": ([], [], None),
    "one point": ([1.0], [0.2], 0.1),
    "as many points as parameters": ([1, 2, 3], [0.1, 0.2, 0.3], 0.0),
    "flat": (list(X), [0.3] * 30, 0.2),
    "nan": ([1, 2, 3, 4, 5, 6], [0.1, np.nan, 0.3, 0.4, 0.5, 0.5], None),
    "infinite compute": ([1, 2, 3, 4, 5, np.inf], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], None),
    "no compute": ([0, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], None),
    "percent": ([1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 50], None),
    "lengths differ": ([1, 2, 3, 4, 5], [0.1, 0.2, 0.3, 0.4], None),
    "floor at the top": ([1, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], 1.0),
    "astronomic range": ([1e-200, 1, 2, 3, 4, 1e200], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5], None),
}


@pytest.mark.parametrize("family", CURVES)
@pytest.mark.parametrize("name", ODD)
def test_what_cannot_be_fitted_is_none_without_a_warning(family: str, name: str) -> None:
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        assert fit_curve(family, *ODD[name]) is None


@pytest.mark.parametrize("family", CURVES)
@pytest.mark.parametrize("floor", [None, 0.2])
@pytest.mark.parametrize("shape", ["fall", "step", "noise", "ones", "spike", "below the floor", "bunched"])
def test_odd_shapes_end_in_finite_forecasts_without_a_warning(
    family: str, floor: float | None, shape: str
) -> None:
    x, n = X, len(X)
    rng = np.random.default_rng(2)
    y = {
        "fall": np.linspace(0.9, 0.1, n),
        "step": np.where(np.arange(n) < 15, 0.0, 1.0),
        "noise": rng.uniform(0, 1, n),
        "ones": np.r_[np.full(n - 1, 1.0), 0.999],
        "spike": np.r_[np.full(n - 1, 0.0), 1.0],
        "below the floor": np.linspace(0.0, 0.1, n),
        "bunched": np.linspace(0.2, 0.3, n),
    }[shape]
    if shape == "bunched":
        x = 1e6 * (1 + 1e-9 * np.arange(n))
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        result = fitted(family, x, y, floor)
        draws = result.draws([x[-1], 2 * x[-1], 1e9 * x[-1]], 500, np.random.default_rng(0))
    assert np.isfinite(draws).all()
    assert draws.min() >= 0
    assert draws.max() <= 1
    assert result.residual_sd > 0


def test_order_of_the_points_does_not_matter() -> None:
    y = noisy("sigmoid")
    shuffled = np.random.default_rng(3).permutation(len(X))
    forward, mixed = (fitted("sigmoid", X[k], y[k], None) for k in (np.arange(len(X)), shuffled))
    assert mixed.ceiling == pytest.approx(forward.ceiling, rel=1e-6)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InputError, match="unknown family, found 'line', expected sigmoid"):
        fit_curve("line", X, X)
