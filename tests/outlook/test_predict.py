"""The predictive table: its contract, its units and what it must flag."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import CEILING, EXPONENT, FLOOR, MIDPOINT, fit_by_hand, hand_runs

from forecast.curves import sigmoid
from forecast.errors import InputError, Withheld
from forecast.fits import Fit
from forecast.inference.diagnostics import Check
from forecast.inference.priors import DRIFT_MEAN, drift_sd
from forecast.outlook.draws import CurveDraws
from forecast.outlook.fitted_curves import curve_draws
from forecast.outlook.predict import grid_to
from forecast.runs.table import Metric

QUANTILES = ["q05", "q10", "q25", "q50", "q75", "q90", "q95"]
COLUMNS = [
    *("level", "name", "compute", "unit", "quantity", "mean", "sd", *QUANTILES),
    *(
        "region",
        "times_fitted",
        "times_midpoint",
        "transitions",
        "hazard",
        "least_squares",
        "independent",
        "warning",
    ),
]
AT = [500.0, 4_000.0, 8_000.0, 16_000.0, 64_000.0]
SEEDS = {"a0": "a", "a1": "a", "b0": "b", "b1": "b"}


@pytest.mark.parametrize("level", ["run", "recipe", "new_run"])
@pytest.mark.parametrize("quantity", ["curve", "evaluation"])
def test_one_row_per_name_and_compute_with_the_promised_columns(level: str, quantity: str) -> None:
    fit = fit_by_hand(hand_runs(SEEDS))
    table = fit.predict(AT, level=level, quantity=quantity)
    assert list(table.columns) == COLUMNS
    names = list(SEEDS) if level == "run" else ["a", "b"]
    assert list(zip(table["name"], table["compute"], strict=True)) == [(n, c) for n in names for c in AT]
    assert set(table["level"]) == {level}
    assert set(table["quantity"]) == {quantity}
    assert set(table["unit"]) == {"gpu_hours"}
    assert set(table["transitions"]) == {"excluded"}
    assert (np.diff(table[QUANTILES].to_numpy(), axis=1) >= 0).all()
    assert table[["mean", "sd", *QUANTILES]].apply(np.isfinite).all(axis=None)


def test_numbers_are_those_of_the_curve_that_was_written_down(hand_fit: Fit) -> None:
    table = hand_fit.predict(AT, names=["alpha"])
    truth = sigmoid(np.array(AT), FLOOR, CEILING, EXPONENT, MIDPOINT)
    creep = DRIFT_MEAN * drift_sd(16_000) * np.log(np.maximum(table["times_fitted"].to_numpy(), 1.0))
    truth = truth + creep
    # 600 draws; inside the data their sd is below .01.
    error = 4.5 * table["sd"] / np.sqrt(600) + 1e-3
    assert (np.abs(table["mean"] - truth) < error).all()
    assert (table["q05"] < truth).all()
    assert (truth < table["q95"]).all()
    np.testing.assert_allclose(table["times_midpoint"], np.array(AT) / MIDPOINT, rtol=0.02)
    np.testing.assert_allclose(table["times_fitted"], np.array(AT) / 8_000)


@pytest.mark.parametrize("end", [8_000.0, 7_777.7, 123.4, 3_333.3, 1e-3, 6.6e21])
def test_the_fitted_end_itself_is_interpolation(end: float) -> None:
    fit = fit_by_hand(hand_runs(compute=list(end * np.array([0.25, 0.5, 1.0, 2.0]))), upto=end)
    table = fit.predict([0.5 * end, end, 1.001 * end, 2 * end], names=["alpha"])
    expected = ["interpolation", "interpolation", "extrapolation", "extrapolation"]
    assert table["region"].tolist() == expected
    np.testing.assert_allclose(table["times_fitted"], [0.5, 1, 1.001, 2])


def test_an_evaluation_is_less_certain_than_its_curve() -> None:
    fit = fit_by_hand(noise=0.02)
    curve, evaluation = (fit.predict(AT, quantity=quantity) for quantity in ("curve", "evaluation"))
    assert (evaluation["sd"] > curve["sd"]).all()
    assert (evaluation["q95"] - evaluation["q05"] > curve["q95"] - curve["q05"]).all()


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("at", [[64_000.0], [4_000.0], [64_000.0, 128_000.0]])
def test_evaluation_variance_is_that_of_the_curve_plus_its_own(name: str, at: list[float]) -> None:
    """Also beyond the data, where curve and evaluation use separate random numbers."""
    fit = fit_by_hand(noise=0.02)
    curve, evaluation = (fit.predict(at, names=[name], quantity=q) for q in ("curve", "evaluation"))
    own = 0.02**2 + curve["mean"] * (1 - curve["mean"]) / 16_000
    # The sd of 600 draws has a relative error of 1 / sqrt(1200) = .03.
    np.testing.assert_allclose(evaluation["sd"], np.sqrt(curve["sd"] ** 2 + own), rtol=0.13)


def test_a_new_run_is_less_certain_than_its_recipe() -> None:
    fit = fit_by_hand(hand_runs(SEEDS), ceiling_sd=0.002)
    recipe, new_run = (fit.predict(AT[1:], level=level) for level in ("recipe", "new_run"))
    assert (new_run["sd"] > recipe["sd"]).all()
    np.testing.assert_allclose(new_run["mean"], recipe["mean"], atol=0.01)


def test_each_run_is_evaluated_at_its_own_size() -> None:
    runs = hand_runs()
    sizes = np.where(runs.table["run"] == "alpha", 100, 1_000_000)
    fit = fit_by_hand(replace(runs, table=runs.table.assign(trials=sizes)), noise=1e-4, ceiling_sd=1e-3)
    table = fit.predict([8_000.0], quantity="evaluation").set_index("name")
    binomial = np.sqrt(0.6 * 0.4 / 100)
    assert table.loc["alpha", "sd"] == pytest.approx(binomial, rel=0.15)
    assert table.loc["beta", "sd"] < binomial / 5


def test_drift_begins_where_the_data_end() -> None:
    rng = np.random.default_rng(0)
    size = 4_000
    same = {"floor": 0.2, "ceiling": 0.6, "exponent": 2.0, "midpoint": 100.0, "noise": 0.01}
    draws = CurveDraws(
        **{name: np.full(size, value) for name, value in same.items()},
        drift=0.02 * rng.standard_normal(size),
        fitted_upto=1000.0,
    )
    inside = draws.curve([1.0, 100.0, 999.0, 1000.0])
    np.testing.assert_allclose(inside, np.broadcast_to(inside[0], inside.shape), rtol=0, atol=1e-15)
    e_folds = np.array([1.0, 2.0, 3.0])
    sd = draws.curve(1000.0 * np.exp(e_folds)).std(axis=0)
    np.testing.assert_allclose(sd, 0.02 * e_folds, rtol=4.5 / np.sqrt(2 * size))
    far = draws.curve([1e300])
    assert far.min() == 0.0
    assert far.max() == 1.0


@pytest.mark.parametrize("prompts", [1000, 10])
def test_drift_depends_on_the_size_of_evaluations(prompts: int) -> None:
    fit = fit_by_hand(hand_runs(metric=Metric("acc", prompts=prompts, samples_per_prompt=16)))
    curve = curve_draws(fit, "run", "alpha")
    assert curve is not None
    assert curve.drift.std() == pytest.approx(drift_sd(prompts * 16), rel=4.5 / np.sqrt(1200))


@pytest.mark.parametrize(
    "metric",
    [
        Metric("acc", scale=(0, 100), prompts=1000, samples_per_prompt=16),
        Metric("reward", "reward", scale=(-1, 1), prompts=1000, samples_per_prompt=16),
        Metric("wrong", "error_rate", scale=(1, 0), prompts=1000, samples_per_prompt=16),
        Metric("wrong", "error_rate", scale=(100, 0), prompts=1000, samples_per_prompt=16),
    ],
    ids=lambda metric: f"{metric.kind}{metric.scale}",
)
@pytest.mark.parametrize("quantity", ["curve", "evaluation"])
def test_the_same_fit_on_another_scale(metric: Metric, quantity: str) -> None:
    """Values come back in logged units, quantiles grow, and an error rate is a pass rate upside down."""
    plain = fit_by_hand(independent_shift=0.05).predict(AT, quantity=quantity)
    scaled = fit_by_hand(hand_runs(metric=metric), independent_shift=0.05).predict(AT, quantity=quantity)
    zero, one = metric.scale
    quantiles = QUANTILES if one > zero else QUANTILES[::-1]
    for there, here in [
        *zip(QUANTILES, quantiles, strict=True),
        *((column, column) for column in ("mean", "independent", "least_squares")),
    ]:
        np.testing.assert_allclose(scaled[there], metric.from_fraction(plain[here]), rtol=1e-6)
    np.testing.assert_allclose(scaled["sd"], plain["sd"] * abs(one - zero))
    assert (np.diff(scaled[QUANTILES].to_numpy(), axis=1) >= 0).all()
    gap = scaled["mean"].iloc[-1] - scaled["independent"].iloc[-1]
    if quantity == "curve":
        assert f"pooling with sibling recipes moves this by {gap:+.3g}" in scaled["warning"].iloc[-1]


def test_a_gap_between_pooled_and_independent_is_shown_and_flagged() -> None:
    apart = fit_by_hand(independent_shift=0.03).predict(AT)
    gap = apart["independent"] - apart["mean"]
    assert gap.iloc[-1] == pytest.approx(0.03, abs=0.005)
    flagged = apart["warning"].str.contains("pooling with sibling recipes")
    assert (flagged == (gap.abs() > 0.01)).all()
    assert flagged.any()
    assert not flagged.all()
    together = fit_by_hand().predict(AT)
    assert not together["warning"].str.contains("pooling with").any()


def test_without_pooling_there_is_no_second_forecast() -> None:
    table = fit_by_hand(pooled=()).predict(AT)
    assert table["independent"].isna().all()
    assert (table["warning"] == "").all()


def test_an_unsound_independent_fit_is_not_shown_and_says_so() -> None:
    fit = replace(fit_by_hand(), independent_checks=[Check("R-hat", False, 1.5, 1.01, "R-hat 1.5")])
    table = fit.predict(AT)
    assert table["independent"].isna().all()
    assert table["warning"].str.contains("without pooling did not converge").all()


@pytest.mark.parametrize("passed", [False, None])
def test_failed_diagnostics_withhold_the_forecast_unless_forced(passed: bool | None) -> None:
    fit = fit_by_hand(passed=passed)
    for ask in (lambda: fit.predict(AT), fit.parameters):
        with pytest.raises(Withheld) as caught:
            ask()
        assert caught.value.exit_code == 1
        assert "\n" not in str(caught.value)
    for level in ("run", "recipe", "new_run"):
        assert fit.predict(AT, level=level, force=True)["warning"].str.contains("NOT RELIABLE").all()
        assert fit.parameters(level=level, force=True)["warning"].str.contains("NOT RELIABLE").all()


def test_a_run_that_was_fitted_against_advice_says_why_in_every_row() -> None:
    fit = fit_by_hand(refused={"alpha": "flat: no measurable rise"}, forced=True)
    table = fit.predict(AT)
    flat = table["warning"].str.contains("NOT RELIABLE, alpha flat")
    assert (flat == (table["name"] == "alpha")).all()
    assert fit.predict(AT, level="recipe", names=["alpha"])["warning"].str.contains("alpha flat").all()


def test_a_refused_run_has_no_forecast() -> None:
    fit = fit_by_hand(refused={"alpha": "flat"})
    assert set(fit.predict(AT)["name"]) == {"beta"}
    with pytest.raises(InputError, match=r"no forecast for run 'alpha', found flat"):
        fit.predict(AT, names=["alpha"])


def test_noise_that_evaluations_do_not_explain_is_flagged() -> None:
    # Binomial sd of 16,000 trials at .5 is .004.
    assert fit_by_hand(noise=0.02).predict(AT)["warning"].str.contains("described by a sigmoid").all()
    assert not fit_by_hand(noise=0.008).predict(AT)["warning"].str.contains("described by a sigmoid").any()


def test_a_recipe_unlike_its_siblings_is_flagged() -> None:
    fit = fit_by_hand(hand_runs(["a", "b", "c"]), pooled=("ceiling",))
    assert not fit.predict(AT)["warning"].str.contains("unlike").any()
    odd = fit.posterior.to_dict()
    independent = fit.posterior["independent/posterior"].to_dataset().copy(deep=True)
    independent["recipe_gain"].loc[{"recipe": "c"}] = 3.0 + 0.05 * np.random.default_rng(0).standard_normal(
        (independent.sizes["chain"], independent.sizes["draw"])
    )
    odd["/independent/posterior"] = independent
    table = replace(fit, posterior=type(fit.posterior).from_dict(odd)).predict(AT)
    assert (table["warning"].str.contains("recipe c is unlike") == (table["name"] == "c")).all()


def test_one_recipe_pooled_by_hand_has_no_siblings_to_surprise() -> None:
    fit = fit_by_hand(hand_runs({"a0": "a", "a1": "a"}), pooled=("ceiling",))
    with np.errstate(all="raise"):
        assert (fit.predict(AT)["warning"] == "").all()


def test_the_same_question_has_the_same_answer(hand_fit: Fit) -> None:
    asked = {"level": "new_run", "quantity": "evaluation"}
    pd.testing.assert_frame_equal(hand_fit.predict(AT, **asked), hand_fit.predict(AT, **asked))
    one = hand_fit.predict(AT, names=["beta"], **asked).reset_index(drop=True)
    both = hand_fit.predict(AT, **asked)
    pd.testing.assert_frame_equal(both[both["name"] == "beta"].reset_index(drop=True), one)


@pytest.mark.parametrize(
    ("at", "asked", "words"),
    [
        ([0.0], {}, "must be positive"),
        ([-5.0], {}, "must be positive"),
        ([float("nan")], {}, "must be positive"),
        ([float("inf")], {}, "must be positive"),
        ([], {}, "must be positive"),
        (AT, {"level": "seed"}, r"unknown level.*run . recipe . new_run"),
        (AT, {"quantity": "score"}, r"unknown quantity.*curve . evaluation"),
        (AT, {"names": ["gamma"]}, r"no such run.*gamma.*alpha . beta"),
        (AT, {"names": ["gamma"], "level": "new_run"}, "no such new_run"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(
    hand_fit: Fit, at: list[float], asked: dict, words: str
) -> None:
    with pytest.raises(InputError, match=words) as caught:
        hand_fit.predict(at, **asked)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("compute", [1e-30, 1e30])
def test_any_positive_compute_has_an_answer(hand_fit: Fit, compute: float) -> None:
    table = hand_fit.predict([compute], quantity="evaluation")
    values = table[["mean", "sd", *QUANTILES]].to_numpy()
    assert np.isfinite(values).all()
    assert ((values >= 0) & (values <= 1)).all()


def test_floors_at_the_very_top_leave_least_squares_out() -> None:
    runs = hand_runs()
    top = runs.table.assign(value=0.998 + 0.001 * np.linspace(0, 1, len(runs.table)))
    floors = {name: replace(floor, value=0.997) for name, floor in runs.floors.items()}
    table = fit_by_hand(replace(runs, table=top, floors=floors)).predict(AT)
    assert table["least_squares"].isna().all()


def test_grid_ends_where_it_was_asked_to(hand_fit: Fit) -> None:
    grid = grid_to(hand_fit, 123_456.7)
    assert grid[-1] == 123_456.7
    assert grid[0] == 1_000.0
    assert (np.diff(grid) > 0).all()
    for to in (None, 1_000.0, 0.0, float("inf"), float("nan")):
        with pytest.raises(InputError, match="beyond the first fitted evaluation"):
            grid_to(hand_fit, to)
