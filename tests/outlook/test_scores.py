"""Scores against an independent implementation and closed forms."""

import numpy as np
import pytest
import scoringrules as sr
from scipy import stats

from forecast.outlook.scores import crps, log_score, pit, score


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


def mixture():
    rng = np.random.default_rng(4)
    return rng.uniform(0.3, 0.6, (300, 12)), rng.uniform(0.005, 0.05, (300, 12)), rng.uniform(0.2, 0.7, 12)


def test_crps_is_that_of_the_ensemble_and_nears_the_mixture_it_is_drawn_from():
    curve, sd, observed = mixture()
    rng = np.random.default_rng(5)
    draws = np.repeat(curve, 200, axis=0) + np.repeat(sd, 200, axis=0) * rng.standard_normal((60_000, 12))
    ours = crps(draws, observed)
    few = draws[::100]
    np.testing.assert_allclose(
        crps(few, observed), sr.crps_ensemble(observed, few.T, estimator="nrg"), rtol=1e-9
    )
    exact = sr.crps_mixnorm(observed, curve.T, sd.T)
    # |x - y| and |x - x'| have an sd below .15.
    np.testing.assert_allclose(ours, exact, atol=5 * 2 * 0.15 / np.sqrt(60_000))


def test_log_score_agrees_with_scoringrules():
    curve, sd, observed = mixture()
    np.testing.assert_allclose(log_score(curve, sd, observed), -sr.logs_mixnorm(observed, curve.T, sd.T))


def test_log_score_of_one_normal_is_its_log_density_also_far_out():
    curve, sd, observed = np.full((7, 2), 0.5), 0.01, np.array([0.51, 0.99])
    np.testing.assert_allclose(log_score(curve, sd, observed), stats.norm.logpdf(observed, 0.5, 0.01))


def test_pit_is_the_mean_of_normal_probabilities():
    curve, sd, observed = mixture()
    np.testing.assert_allclose(pit(curve, sd, observed), stats.norm.cdf(observed, curve, sd).mean(axis=0))
    assert pit(np.full((3, 1), 0.5), 0.01, [0.5])[0] == pytest.approx(0.5)


def test_pit_of_a_true_forecast_is_uniform():
    rng = np.random.default_rng(6)
    curve = rng.normal(0.5, 0.05, 2_000)
    observed = rng.choice(curve, 3_000) + 0.02 * rng.standard_normal(3_000)
    assert stats.kstest(pit(curve[:, None], 0.02, observed), "uniform").pvalue > 1e-3
