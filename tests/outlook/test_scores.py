"""Scores against an independent implementation and closed forms."""

import numpy as np
import pytest
import scoringrules as sr
from scipy import stats

from forecast.outlook.scores import crps, score


def test_crps_agrees_with_scoringrules():
    rng = np.random.default_rng(1)
    draws = rng.gamma(2.0, 1.5, (500, 20))
    observed = rng.gamma(2.0, 1.5, 20)
    expected = sr.crps_ensemble(observed, draws.T)
    np.testing.assert_allclose(crps(draws, observed), expected, rtol=1e-10)


def test_crps_of_a_normal_forecast_matches_its_closed_form():
    rng = np.random.default_rng(2)
    n = 200_000
    draws = rng.normal(0.3, 0.05, (n, 1))
    expected = sr.crps_normal(0.38, 0.3, 0.05)
    # CRPS is a mean of |x - y| (sd below .05) less half a mean of |x - x'|: 5 standard errors.
    assert crps(draws, [0.38])[0] == pytest.approx(expected, abs=5 * 0.05 / np.sqrt(n) * 2)


def test_crps_of_a_point_is_the_absolute_error():
    np.testing.assert_allclose(crps(np.array([[0.2, 0.9]]), [0.5, 0.5]), [0.3, 0.4])


def test_coverage_and_width_of_calibrated_draws():
    rng = np.random.default_rng(3)
    points = 4_000
    result = score(rng.normal(size=(2_000, points)), rng.normal(size=points))
    for level, share in result.coverage.items():
        error = np.sqrt(level / 100 * (1 - level / 100) / points)
        assert share == pytest.approx(level / 100, abs=4 * error + 0.005)
        assert result.width[level] == pytest.approx(2 * stats.norm.ppf(0.5 + level / 200), rel=0.02)
    assert result.rmse == pytest.approx(1, abs=4 / np.sqrt(2 * points))
    assert abs(result.bias) < 4 / np.sqrt(points)
