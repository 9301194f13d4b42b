"""Do comparisons say of two curves what was put into them, and no more than that?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fits_by_hand import fit_by_hand, hand_runs
from scipy.optimize import curve_fit
from scipy.stats import norm

import forecast as fc
from forecast.curves import sigmoid
from forecast.outlook import comparison
from forecast.outlook.comparison import compare, efficiency_ratio, verdict
from forecast.outlook.draws import CurveDraws


def curve(ceiling: float, exponent: float, midpoint: float, size: int = 50) -> CurveDraws:
    values = {"floor": 0.2, "ceiling": ceiling, "exponent": exponent, "midpoint": midpoint, "noise": 0.01}
    draws = {name: np.full(size, value) for name, value in values.items()}
    return CurveDraws(**draws, drift=np.zeros(size), fitted_upto=1e4)


def pair(monkeypatch, one: CurveDraws, other: CurveDraws):
    curves = {"one": one, "other": other}
    monkeypatch.setattr(comparison, "curve_names", lambda fit, level: list(curves))
    monkeypatch.setattr(comparison, "curve_draws", lambda fit, level, name: curves[name])
    monkeypatch.setattr(comparison, "run_warnings", lambda fit, level, name: [])
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


@pytest.mark.parametrize("exponent", [1.0, 3.0, 6.0, 12.0])
@pytest.mark.parametrize("gap", [5e-4, 0.01, 0.1])
def test_one_curve_a_little_higher_never_crosses(monkeypatch, exponent, gap):
    # Far to the left both are the floor to the last digit.
    assert (
        pair(monkeypatch, curve(0.6, exponent, 3000.0), curve(0.6 + gap, exponent, 3000.0))["p_crossing"] == 0
    )


def test_a_lead_that_is_lost_is_a_crossing_and_a_tie_at_both_ends_is_none(monkeypatch):
    low, high = curve(0.6, 2.0, 500.0), curve(0.6, 2.0, 2000.0)
    # Higher from the start, overtaken on the way, equal at the end.
    raised = replace(high, floor=np.full(50, 0.25))
    assert pair(monkeypatch, low, raised)["p_crossing"] == 1
    assert pair(monkeypatch, low, high)["p_crossing"] == 0


def test_curves_cross_without_the_creep_beyond_the_data():
    fit = fit_by_hand(ceiling_sd=0.001, pooled=())
    row = compare(fit).iloc[0]
    # Midpoints differ by a few percent: the higher ceiling is ahead from soon after the midpoint on.
    assert row["crossing"] < 8_000
    curves = [comparison.curve_draws(fit, "recipe", name) for name in ("alpha", "beta")]
    grid = np.array([8_000.0, 80_000.0])
    still = [replace(one, drift=np.zeros_like(one.drift)).curve(grid) for one in curves]
    assert (still[1] > still[0]).mean() > 0.9
    creeping = [one.curve(grid) for one in curves]
    assert (creeping[1][:, 1] > creeping[0][:, 1]).mean() < 0.8


@pytest.mark.parametrize(("share", "known"), [(0.4, False), (0.6, True)])
def test_few_draws_that_can_be_compared_say_nothing_of_the_rest(monkeypatch, share, known):
    one, other = curve(0.7, 1.5, 1000.0), curve(0.72, 1.5, 500.0)
    apart = np.arange(50) >= share * 50
    other = replace(other, floor=np.where(apart, 0.75, 0.2), ceiling=np.where(apart, 0.95, 0.72))
    row = pair(monkeypatch, one, other)
    for name in ("speed_q50", "p_faster", "efficiency_q50", "p_efficient"):
        assert np.isfinite(row[name]) == known
    assert np.isfinite(row["midpoint_q50"])
    assert np.isfinite(row["p_higher"])


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


# Exponents at a common ceiling


def refitted(one: CurveDraws, ceiling: float) -> float:
    """Exponent of the nearest sigmoid with that ceiling by least squares of values, where the gain is made."""
    floor = one.floor[0]
    x = np.geomspace(one.fitted_upto / 1000, one.fitted_upto, 400)
    y = sigmoid(x, floor, one.ceiling[0], one.exponent[0], one.midpoint[0])
    share = (y - floor) / (ceiling - floor)
    rises = (share > 0.1) & (share < 0.9)

    def wanted(x, log_exponent, log_midpoint):
        return sigmoid(x, floor, ceiling, np.exp(log_exponent), np.exp(log_midpoint))

    begin = np.log([one.exponent[0], one.midpoint[0]])
    found, _ = curve_fit(wanted, x[rises], y[rises], p0=begin)
    return float(np.exp(found[0]))


def refitted_ratio(one: CurveDraws, other: CurveDraws) -> float:
    ceiling = (one.ceiling[0] + other.ceiling[0]) / 2
    return refitted(other, ceiling) / refitted(one, ceiling)


@pytest.mark.parametrize(("one", "other"), [(1.5, 2.1), (2.0, 0.8), (1.2, 1.2), (4.0, 6.0)])
def test_at_equal_ceilings_efficiency_is_the_ratio_of_exponents(one, other):
    # A sigmoid is a line in the logit of its share: no grid, however coarse, bends it.
    found = efficiency_ratio(curve(0.7, one, 1000.0), curve(0.7, other, 400.0))
    np.testing.assert_allclose(found, other / one, rtol=1e-9)


@pytest.mark.parametrize("midpoint", [2e4, 5e4])
def test_efficiency_of_a_curve_that_has_yet_to_rise(midpoint):
    found = efficiency_ratio(curve(0.7, 1.5, 1000.0), curve(0.7, 3.0, midpoint))
    np.testing.assert_allclose(found, 2, rtol=1e-9)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((0.70, 1.5, 1000.0), (0.74, 1.5, 900.0)),
        ((0.74, 1.5, 900.0), (0.70, 1.5, 1000.0)),
        ((0.60, 1.9, 3000.0), (0.62, 1.7, 2500.0)),
        ((0.60, 2.0, 500.0), (0.63, 1.8, 700.0)),
        ((0.65, 1.0, 3000.0), (0.60, 1.8, 800.0)),
    ],
)
def test_efficiency_agrees_with_another_refit_at_the_mean_ceiling(one, other):
    pair = curve(*one), curve(*other)
    # Logits weigh the ends of the rise more than values do: that much both may differ where they do not fit.
    assert efficiency_ratio(*pair)[0] == pytest.approx(refitted_ratio(*pair), rel=0.025)
    # The refit matters by more than that.
    assert abs(refitted_ratio(*pair) - other[1] / one[1]) > 0.05 * refitted_ratio(*pair)


def test_efficiency_is_one_over_that_of_the_other_way_round():
    one, other = curve(0.7, 1.5, 1000.0), curve(0.74, 1.1, 2000.0)
    np.testing.assert_allclose(efficiency_ratio(one, other) * efficiency_ratio(other, one), 1)


@pytest.mark.parametrize("exponent", [10.0, 15.0, 40.0])
def test_efficiency_of_steep_curves(exponent):
    one, other = curve(0.7, exponent, 1000.0), curve(0.7, 2 * exponent / 3, 1000.0)
    np.testing.assert_allclose(efficiency_ratio(one, other), 2 / 3, rtol=1e-9)


def test_ceilings_far_apart_have_no_common_one(monkeypatch):
    one, far = curve(0.6, 2.0, 500.0), curve(0.75, 1.2, 2000.0)
    assert np.isnan(efficiency_ratio(one, far)).all()
    row = pair(monkeypatch, one, far)
    assert np.isnan(
        [row["efficiency_q05"], row["efficiency_q50"], row["efficiency_q95"], row["p_efficient"]]
    ).all()
    assert row["midpoint_q50"] == pytest.approx(0.25)
    # Of draws some of which have none, those that have one count.
    one = curve(0.7, 1.5, 1000.0)
    mixed = replace(curve(0.7, 3.0, 1000.0), ceiling=np.where(np.arange(50) < 10, 0.95, 0.7))
    row = pair(monkeypatch, one, mixed)
    assert (row["p_efficient"], row["efficiency_q50"]) == (1, pytest.approx(2))


def test_efficiency_and_midpoints_are_quantiles_over_draws(monkeypatch):
    rng = np.random.default_rng(11)
    size = 400
    one = curve(0.7, 1.5, 1000.0, size)
    other = replace(
        one,
        exponent=1.6 * np.exp(0.2 * rng.standard_normal(size)),
        midpoint=800 * np.exp(0.3 * rng.standard_normal(size)),
    )
    row = pair(monkeypatch, one, other)
    for q in (5, 50, 95):
        assert row[f"efficiency_q{q:02d}"] == pytest.approx(np.quantile(other.exponent / 1.5, q / 100))
        assert row[f"midpoint_q{q:02d}"] == pytest.approx(np.quantile(1000 / other.midpoint, q / 100))
    assert row["p_efficient"] == pytest.approx(np.mean(other.exponent > 1.5))


def test_models_are_named_where_they_are_declared():
    runs = hand_runs({"a0": "a", "a1": "a", "b0": "b", "b1": "b"})
    assert compare(fit_by_hand(runs))[["first_model", "second_model"]].to_numpy().tolist() == [["", ""]]
    models = {"a0": "small", "a1": "small", "b0": "small", "b1": "large"}
    fit = fit_by_hand(replace(runs, table=runs.table.assign(model=runs.table["run"].map(models))))
    # Runs of one recipe that do not agree have none in common.
    assert compare(fit)[["first_model", "second_model"]].to_numpy().tolist() == [["small", ""]]
    by_run = compare(fit, level="run").set_index(["first", "second"])
    assert by_run.loc[("a0", "b1"), "second_model"] == "large"
    assert by_run.loc[("b0", "b1"), "first_model"] == "small"


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


def test_pairs_with_a_run_that_was_refused_carry_the_reason():
    fit = fit_by_hand(hand_runs(("a", "b", "c")), refused={"c": "collapsed"}, forced=True)
    table = compare(fit).set_index(["first", "second"])
    assert table.loc[("a", "b"), "warning"] == ""
    assert "c collapsed" in table.loc[("b", "c"), "warning"]


def test_runs_left_out_are_those_of_the_recipe_whatever_runs_are_called():
    runs = hand_runs({"A": "B", "x": "A", "y": "A", "z": "B"})
    fit = fit_by_hand(runs, refused={"z": "flat: nothing moves"})
    (row,) = compare(fit).to_dict("records")
    assert row["left_out"] == "1 of 2 runs of B is not in these numbers (flat)"
    of_runs = compare(fit, level="run").set_index(["first", "second"])["left_out"]
    assert of_runs["x", "y"] == ""
    assert "of B" in of_runs["A", "x"]
