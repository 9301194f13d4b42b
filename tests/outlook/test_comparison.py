"""Do comparisons say of two curves what was put into them, and no more than that?"""

from __future__ import annotations

import numpy as np
import pytest
from fits_by_hand import fit_by_hand, hand_runs
from scipy.stats import norm

import forecast as fc
from forecast.curves import sigmoid
from forecast.outlook import comparison
from forecast.outlook.comparison import compare, verdict
from forecast.outlook.draws import CurveDraws


def curve(ceiling: float, exponent: float, midpoint: float, size: int = 50) -> CurveDraws:
    values = {"floor": 0.2, "ceiling": ceiling, "exponent": exponent, "midpoint": midpoint, "noise": 0.01}
    draws = {name: np.full(size, value) for name, value in values.items()}
    return CurveDraws(**draws, drift=np.zeros(size), fitted_upto=1e4)


def pair(monkeypatch, one: CurveDraws, other: CurveDraws):
    curves = {"one": one, "other": other}
    monkeypatch.setattr(comparison, "curve_names", lambda fit, level: list(curves))
    monkeypatch.setattr(comparison, "curve_draws", lambda fit, level, name: curves[name])
    return compare(fit_by_hand()).iloc[0]


def test_speed_is_the_compute_saved_on_the_way_to_a_level_both_reach(monkeypatch):
    one, other = curve(0.7, 1.5, 1000.0), curve(0.8, 1.5, 500.0)
    row = pair(monkeypatch, one, other)
    # Half of the gain to the lower ceiling: the first is at its midpoint there.
    grid = np.geomspace(1, 1e5, 400_001)
    needed = grid[np.argmax(sigmoid(grid, 0.2, 0.8, 1.5, 500.0) >= 0.45)]
    assert row["speed_q50"] == pytest.approx(1000 / needed, rel=1e-3)
    assert row["p_faster"] == 1
    assert row["difference_q50"] == pytest.approx(0.1)
    assert row["verdict"] == "raises the ceiling"


def test_crossing_is_where_the_curves_are_equal(monkeypatch):
    one, other = curve(0.6, 2.0, 500.0), curve(0.8, 2.0, 2000.0)
    row = pair(monkeypatch, one, other)
    x = np.geomspace(10, 1e5, 200_001)
    ahead = sigmoid(x, 0.2, 0.8, 2.0, 2000.0) > sigmoid(x, 0.2, 0.6, 2.0, 500.0)
    assert row["p_crossing"] == 1
    assert row["crossing"] == pytest.approx(x[np.argmax(ahead)], rel=0.05)


def test_curves_that_never_meet_do_not_cross(monkeypatch):
    row = pair(monkeypatch, curve(0.6, 1.5, 1000.0), curve(0.7, 1.5, 900.0))
    assert row["p_crossing"] == 0
    assert np.isnan(row["crossing"])


def test_same_ceiling_and_half_the_midpoint_is_only_faster(monkeypatch):
    row = pair(monkeypatch, curve(0.7, 1.5, 1000.0), curve(0.705, 1.5, 500.0))
    assert row["verdict"] == "only faster"
    assert row["speed_q50"] == pytest.approx(2, rel=0.05)
    assert pair(monkeypatch, curve(0.7, 1.5, 500.0), curve(0.705, 1.5, 1000.0))["verdict"] == "only slower"


def test_probabilities_are_those_of_normal_posteriors():
    sd = 0.01
    fit = fit_by_hand(ceiling_sd=sd)
    row = compare(fit).iloc[0]
    spread = np.sqrt(2) * sd
    expected = norm.cdf(0.01 / spread)
    # 600 draws: standard error .02; four of them.
    assert row["p_higher"] == pytest.approx(expected, abs=0.08)
    within = norm.cdf((0.02 - 0.01) / spread) - norm.cdf((-0.02 - 0.01) / spread)
    assert row["p_within"] == pytest.approx(within, abs=0.08)
    assert row["verdict"] == "not decided"


def test_every_pair_once_and_differences_on_the_scale_of_the_metric():
    percent = fc.Metric("acc", scale=(0.0, 100.0), prompts=1000, samples_per_prompt=16)
    names = ("a", "b", "c")
    plain = compare(fit_by_hand(hand_runs(names)))
    scaled = compare(fit_by_hand(hand_runs(names, metric=percent)))
    assert list(zip(plain["first"], plain["second"], strict=True)) == [("a", "b"), ("a", "c"), ("b", "c")]
    np.testing.assert_allclose(scaled["difference_q50"], 100 * plain["difference_q50"])
    assert (scaled["p_within"] == plain["p_within"]).all()


@pytest.mark.parametrize(
    ("higher", "within", "faster", "said"),
    [
        (0.99, 0.05, 0.2, "raises the ceiling"),
        (0.01, 0.05, 0.99, "lowers the ceiling"),
        (0.6, 0.95, 0.99, "only faster"),
        (0.6, 0.95, 0.01, "only slower"),
        (0.6, 0.95, 0.5, "not decided"),
        (0.99, 0.5, 0.99, "not decided"),
        (0.9, 0.05, 0.99, "not decided"),
    ],
)
def test_verdicts(higher, within, faster, said):
    assert verdict(higher, within, faster) == said


def test_one_recipe_is_nothing_to_compare():
    with pytest.raises(fc.InputError, match="nothing to compare"):
        compare(fit_by_hand(hand_runs({"a": "same", "b": "same"})))


def test_failed_diagnostics_withhold_the_comparison():
    with pytest.raises(fc.Withheld):
        compare(fit_by_hand(passed=False))
    assert len(compare(fit_by_hand(passed=False), force=True)) == 1
