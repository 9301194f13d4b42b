"""Does a decision say what the draws say, whatever the budget is counted in?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fits_by_hand import apart, fit_by_hand, hand_runs
from weighed_by_hand import hand_weighed

import forecast as fc
from forecast.curves.sigmoid import sigmoid_compute_to
from forecast.errors import InputError
from forecast.fits import Fit
from forecast.outlook.budget import CLOSE, LEAST_GAIN, SHARES, Decision, budget, compute_to
from forecast.outlook.comparison import LIKELY
from forecast.outlook.draws import CurveDraws
from forecast.outlook.options import Option, make_options
from forecast.outlook.prices import Prices
from forecast.runs.table import ComputeAxis, Metric, Runs

PERCENT = Metric("acc", scale=(0.0, 100.0), prompts=1000, samples_per_prompt=16)
ERRORS = Metric("err", kind="error_rate", scale=(1.0, 0.0), prompts=1000, samples_per_prompt=16)
QUANTILES = ["q05", "q10", "q25", "q50", "q75", "q90", "q95"]
GAINS = ["gain_q05", "gain_q50", "gain_q95"]


def with_models(runs: Runs, **models: str) -> Runs:
    return replace(runs, table=runs.table.assign(model=runs.table["run"].map(models)))


def values(fit: Fit, extras: Sequence[float]) -> tuple[list[Option], np.ndarray]:
    """Options and their draws, each after its own extra compute."""
    options = make_options(fit, Prices())
    return options, np.column_stack([one.value(x) for one, x in zip(options, extras, strict=True)])


def rows(decision: Decision, size: float) -> pd.DataFrame:
    table = decision.options
    return table[table["budget"] == size].set_index("option")


def decide(fit: Fit, **asked: Any) -> Decision:
    """Without experiments, which take the time."""
    return budget(fit, experiments=False, **asked)


# Options and choice


def test_best_and_regret_are_those_of_the_draws(hand_fit: Fit) -> None:
    decision = decide(hand_fit, spend=[4_000, 8_000, 32_000])
    for choice in decision.choices.to_dict("records"):
        size = choice["budget"]
        own = rows(decision, size)
        options, value = values(hand_fit, [size] * 5)
        assert list(own.index) == [one.label for one in options]
        best = np.bincount(value.argmax(axis=1), minlength=5) / len(value)
        regret = value.max(axis=1).mean() - value.mean(axis=0)
        np.testing.assert_allclose(own["p_best"], best)
        assert own["p_best"].sum() == pytest.approx(1)
        np.testing.assert_allclose(own["regret"], regret, rtol=1e-9)
        np.testing.assert_allclose(own["mean"], value.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(own["q95"], np.quantile(value, 0.95, axis=0), rtol=1e-9)
        gain = value - value[:, -1:]
        np.testing.assert_allclose(own["gain_mean"], gain.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(own["gain_q05"], np.quantile(gain, 0.05, axis=0), atol=1e-12)
        assert choice["option"] == options[int(regret.argmin())].label
        assert choice["regret"] == pytest.approx(regret.min())
        assert choice["p_best"] == pytest.approx(best[regret.argmin()])
        others = np.delete(best, regret.argmin())
        assert choice["p_second"] == pytest.approx(others.max())
        assert own.loc[choice["second"], "p_best"] == choice["p_second"]
        assert choice["second"] != choice["option"]


def test_what_each_option_takes(hand_fit: Fit) -> None:
    own = rows(decide(hand_fit, spend=[4_000], price=2.5), 4_000)
    np.testing.assert_allclose(own["compute"], [12_000, 12_000, 4_000, 4_000, 8_000])
    np.testing.assert_allclose(own["extra"], [4_000] * 4 + [0])
    np.testing.assert_allclose(own["cost"], [10_000] * 4 + [0])
    np.testing.assert_allclose(own["times_fitted"], [1.5, 1.5, 0.5, 0.5, 1])
    assert rows(decide(hand_fit, spend=[4_000]), 4_000)["cost"].isna().all()


def test_gain_of_the_next_unit_is_the_slope_of_the_mean(hand_fit: Fit) -> None:
    own = rows(decide(hand_fit, spend=[4_000]), 4_000)
    _, less = values(hand_fit, [3_980] * 5)
    _, more = values(hand_fit, [4_020] * 5)
    slope = (more.mean(axis=0) - less.mean(axis=0)) / 40
    # A step of one per cent ahead of a bending curve against a small one to both sides.
    np.testing.assert_allclose(own["gain_per_unit"], slope, rtol=0.03)
    assert own["gain_per_unit"].iloc[-1] == 0


@pytest.mark.parametrize(
    ("options", "spend", "verdict"),
    [
        ({"ceiling_sd": 0.001}, 4_000.0, "decided"),
        ({}, 8_000.0, "close"),
        ({}, 32_000.0, "not decided"),
    ],
)
def test_verdicts(options: dict[str, float], spend: float, verdict: str) -> None:
    choice = decide(fit_by_hand(**options), spend=[spend]).choices.iloc[0]
    assert choice["verdict"] == verdict
    assert (choice["p_best"] >= LIKELY) == (verdict == "decided")
    if verdict != "decided":
        assert (choice["regret"] < CLOSE) == (verdict == "close")


def test_close_is_meant_on_the_scale() -> None:
    fit = fit_by_hand(hand_runs(metric=PERCENT))
    decision = decide(fit, spend=[8_000, 32_000])
    assert decision.choices["verdict"].tolist() == ["close", "not decided"]


# What a budget is counted in


def test_compute_in_all_more_compute_and_money_agree() -> None:
    fit = apart(fit_by_hand())
    given = [{"at": [16_000]}, {"spend": [8_000]}, {"money": [20_000]}]
    decisions = [budget(fit, price=2.5, target=0.6, **one) for one in given]
    assert [decision.measure for decision in decisions] == ["at", "spend", "money"]
    first = decisions[0].options.drop(columns="budget")
    assert len(first) == 3
    for decision in decisions[1:]:
        pd.testing.assert_frame_equal(decision.options.drop(columns="budget"), first)
        pd.testing.assert_frame_equal(decision.targets, decisions[0].targets)
    # An experiment uses up what is to be spent; beside a compute to be reached it comes on top.
    at, spend, money = (decision.experiments.drop(columns="budget") for decision in decisions)
    pd.testing.assert_frame_equal(spend, money)
    assert (at["gain"] > spend["gain"]).all()


def test_equal_money_buys_each_model_its_own_compute() -> None:
    fit = fit_by_hand(with_models(hand_runs(), alpha="small", beta="large"))
    own = rows(decide(fit, money=[20_000], price=Prices.parse("small=2,large=5")), 20_000)
    np.testing.assert_allclose(own["extra"], [10_000, 4_000, 10_000, 4_000, 0])
    np.testing.assert_allclose(own["cost"], [20_000] * 4 + [0])
    assert own["model"].tolist() == ["small", "large", "small", "large", "large"]
    np.testing.assert_allclose(own["compute"], [18_000, 12_000, 10_000, 4_000, 8_000])
    _, value = values(fit, own["extra"].to_list())
    np.testing.assert_allclose(own["mean"], value.mean(axis=0), rtol=1e-9)


def test_the_declared_price_holds_unless_another_is_given() -> None:
    runs = with_models(hand_runs(axis=ComputeAxis("gpu_hours", price_per_unit=3.0)), alpha="m", beta="n")
    fit = fit_by_hand(runs)

    def costs(price: Any) -> list[float]:
        return decide(fit, spend=[1_000], price=price).options["cost"].tolist()

    assert costs(None) == pytest.approx([3_000] * 4 + [0])
    assert costs(2) == pytest.approx([2_000] * 4 + [0])
    assert costs(Prices.parse("n=7")) == pytest.approx([3_000, 7_000, 3_000, 7_000, 0])
    assert costs(Prices(1.0)) == pytest.approx([1_000] * 4 + [0])


def test_compute_that_costs_nothing_is_as_good_as_without_a_price() -> None:
    free = fit_by_hand(hand_runs(axis=ComputeAxis("gpu_hours", price_per_unit=0.0)))
    assert decide(free, spend=[1_000]).options["cost"].isna().all()
    with pytest.raises(InputError, match="needs a price"):
        decide(free, money=[1_000])


def test_runs_beyond_a_compute_cannot_go_on_to_it() -> None:
    runs = hand_runs()
    table = runs.table
    fit = fit_by_hand(replace(runs, table=table[(table["run"] == "beta") | (table["compute"] <= 4_000)]))
    decision = decide(fit, at=[5_000, 9_000])
    assert list(rows(decision, 5_000).index) == [
        "continue alpha",
        "start alpha",
        "start beta",
        "stop with beta",
    ]
    np.testing.assert_allclose(rows(decision, 5_000)["extra"], [1_000, 5_000, 5_000, 0])
    assert "continue beta" in rows(decision, 9_000).index
    np.testing.assert_allclose(rows(decision, 9_000)["extra"], [5_000, 1_000, 9_000, 9_000, 0])
    with pytest.raises(InputError, match=r"every run has used that much already, found 3000\. Name a larger"):
        decide(apart(fit), at=[3_000])


@pytest.mark.parametrize(
    "upto",
    [
        4_000.0,
        8_000.0,
        11_000.0,
    ],
)
def test_a_run_that_is_there_already_does_not_go_on(upto: float) -> None:
    # Compute went through a logarithm on its way to what was spent, and lost a rounding error or won one.
    own = rows(decide(fit_by_hand(upto=upto), at=[upto]), upto)
    assert list(own.index) == ["start alpha", "start beta", "stop with beta"]


def test_budgets_are_answered_once_each_in_order(hand_fit: Fit) -> None:
    decision = decide(hand_fit, spend=[8_000, 4_000, 8_000])
    assert decision.choices["budget"].tolist() == [8_000, 4_000]
    assert decision.options["budget"].tolist() == [8_000.0] * 5 + [4_000.0] * 5


def test_a_budget_is_answered_as_if_alone(hand_fit: Fit) -> None:
    both, alone = (budget(hand_fit, spend=spend).experiments for spend in ([8_000, 32_000], [32_000]))
    pd.testing.assert_frame_equal(both[both["budget"] == 32_000].reset_index(drop=True), alone)


# Worth


def test_worth_weighs_value_against_cost() -> None:
    fit = fit_by_hand(with_models(hand_runs(), alpha="small", beta="large"))
    price, worth = Prices.parse("small=2,large=5"), 30_000.0
    own = rows(decide(fit, spend=[8_000], price=price, worth=worth), 8_000)
    _, value = values(fit, [8_000] * 5)
    paid = value - 0.01 * 8_000 * np.array([2, 5, 2, 5, 0]) / worth
    np.testing.assert_allclose(own["p_best"], np.bincount(paid.argmax(axis=1), minlength=5) / len(paid))
    np.testing.assert_allclose(own["regret"], paid.max(axis=1).mean() - paid.mean(axis=0), rtol=1e-9)
    # Values and gains are those of the curve all the same.
    np.testing.assert_allclose(own["mean"], value.mean(axis=0), rtol=1e-9)


def test_what_is_worth_little_is_not_worth_a_run(hand_fit: Fit) -> None:
    def chosen(**asked: Any) -> str:
        return decide(hand_fit, spend=[8_000], **asked).choices["option"][0]

    # Another 8,000 GPU-hours are worth about .02 to beta: 20,000 in money at 2.5, 10,000 for .01.
    assert chosen() == "continue beta"
    assert chosen(price=2.5, worth=1e9) == "continue beta"
    assert chosen(price=2.5, worth=20_000) == "continue beta"
    assert chosen(price=2.5, worth=5_000) == "stop with beta"
    # Without a price it is counted in compute.
    assert chosen(worth=8_000) == "continue beta"
    assert chosen(worth=2_000) == "stop with beta"


# Targets


def test_to_reach_a_target_is_to_be_at_least_as_good(hand_fit: Fit) -> None:
    targets = [0.0, 0.55, 0.58, 0.6, 0.62, 1.0]
    found = np.array([decide(hand_fit, spend=[8_000], target=one).options["p_target"] for one in targets])
    assert (np.diff(found, axis=0) <= 0).all()
    assert (found[0] == 1).all()
    assert (found[-1] == 0).all()
    _, value = values(hand_fit, [8_000] * 5)
    np.testing.assert_allclose(found[3], (value >= 0.6).mean(axis=0))
    assert decide(hand_fit, spend=[8_000]).options["p_target"].isna().all()


def test_a_target_that_is_met_exactly_is_reached(hand_fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forecast.outlook.budget.MOST_BEYOND", np.inf)
    # Far out many draws have drifted to where a pass rate ends.
    found = decide(hand_fit, spend=[1e30], target=1.0).options["p_target"]
    _, value = values(hand_fit, [1e30] * 5)
    assert (value[:, :4] == 1).mean() > 0.1
    np.testing.assert_allclose(found, (value == 1).mean(axis=0))


def test_compute_to_a_level_against_the_closed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forecast.outlook.fitted_curves.drift_sd", lambda trials: 0.0)
    fit = fit_by_hand()
    level = 0.595
    decision = decide(fit, spend=[8_000], target=level, price=2.0)
    assert decision.horizon == pytest.approx(80_000)
    for row, option in zip(decision.targets.to_dict("records"), make_options(fit, Prices()), strict=False):
        curve = option.curve
        exact = sigmoid_compute_to(level, curve.floor, curve.ceiling, curve.exponent, curve.midpoint)
        exact = np.maximum(exact, option.spent)
        there = exact <= 80_000
        assert row["option"] == option.label
        assert 0.01 < there.mean() < 0.99
        # A grid of 300 points: steps of some hundredths in log compute, between which the curve hardly bends.
        for q in (5, 50, 95):
            assert row[f"q{q:02d}"] == pytest.approx(np.quantile(exact[there], q / 100), rel=2e-3)
        assert row["p_never"] == pytest.approx(1 - there.mean())
        assert row["extra_q50"] == pytest.approx(row["q50"] - option.spent)
        assert row["cost_q50"] == pytest.approx(2 * row["extra_q50"])
        now = (option.value(0.0) >= level).mean() if option.action == "continue" else 0
        assert row["p_now"] == pytest.approx(now)


def option_at(spent: float, level_off: float = 0.6) -> Option:
    size = 4
    draws = {"floor": 0.2, "ceiling": level_off, "exponent": 1.5, "midpoint": 1_000.0, "noise": 0.01}
    curve = CurveDraws(
        **{name: np.full(size, value) for name, value in draws.items()},
        drift=np.zeros(size),
        fitted_upto=spent or 8_000.0,
    )
    return Option("continue" if spent else "start", "one", "", curve, spent, float("nan"), 16_000)


@pytest.mark.parametrize("spent", [0.0, 7_000.0])
@pytest.mark.parametrize("level", [0.21, 0.5, 0.58, 0.5999])
def test_compute_to_levels_near_and_far(spent: float, level: float) -> None:
    option = option_at(spent)
    exact = sigmoid_compute_to(level, 0.2, 0.6, 1.5, 1_000.0)
    np.testing.assert_allclose(compute_to(option, level, 1e7), np.maximum(exact, spent), rtol=3e-3)
    assert np.isinf(compute_to(option, 0.61, 1e7)).all()


def test_what_is_reached_already_takes_nothing() -> None:
    # Whatever the number: a logarithm there and back must not put it a rounding error ahead.
    for spent in np.linspace(5_000, 20_000, 301):
        assert (compute_to(option_at(float(spent)), 0.3, 1e6) <= spent).all(), spent


def test_a_target_nobody_reaches(hand_fit: Fit) -> None:
    decision = decide(hand_fit, spend=[8_000], target=0.95, price=2.5)
    assert (decision.targets["p_never"] == 1).all()
    assert decision.targets[["q05", "q50", "q95", "extra_q50", "cost_q50"]].isna().all(axis=None)
    assert len(decide(hand_fit, spend=[8_000]).targets) == 0


def test_never_means_not_by_the_furthest_that_is_asked_or_tested(hand_fit: Fit) -> None:
    assert decide(hand_fit, spend=[8_000]).horizon == pytest.approx(80_000)
    assert decide(hand_fit, spend=[500_000]).horizon == pytest.approx(508_000)


# Scales


def test_percent_is_the_same_on_another_scale(hand_fit: Fit) -> None:
    plain = decide(hand_fit, spend=[8_000], target=0.6)
    percent = decide(fit_by_hand(hand_runs(metric=PERCENT)), spend=[8_000], target=60)
    scaled = ["mean", *QUANTILES, "gain_mean", *GAINS, "regret", "gain_per_unit"]
    np.testing.assert_allclose(percent.options[scaled], 100 * plain.options[scaled], atol=1e-9)
    same = ["p_target", "p_best", "compute"]
    np.testing.assert_allclose(percent.options[same], plain.options[same])
    numbers = ["p_now", "p_never", "q05", "q50", "q95"]
    np.testing.assert_allclose(percent.targets[numbers], plain.targets[numbers])


def test_of_an_error_rate_less_is_better(hand_fit: Fit) -> None:
    plain = decide(hand_fit, spend=[8_000], target=0.6).options
    decision = decide(fit_by_hand(hand_runs(metric=ERRORS)), spend=[8_000], target=0.4)
    turned = decision.options
    np.testing.assert_allclose(turned[QUANTILES], 1 - plain[QUANTILES[::-1]], rtol=1e-9)
    assert (np.diff(turned[QUANTILES], axis=1) >= 0).all()
    np.testing.assert_allclose(turned[["gain_mean", *GAINS]], -plain[["gain_mean", *GAINS[::-1]]], atol=1e-9)
    assert turned.loc[turned["option"] == "continue beta", "gain_mean"].item() < -0.01
    np.testing.assert_allclose(turned["gain_per_unit"], -plain["gain_per_unit"], atol=1e-15)
    # Up to rounding at the target itself.
    np.testing.assert_allclose(turned["p_target"], plain["p_target"], atol=1 / 600)
    np.testing.assert_allclose(turned[["p_best", "regret"]], plain[["p_best", "regret"]], atol=1e-9)
    assert (decision.choices["regret"] >= 0).all()


def test_worth_and_experiments_are_those_of_the_scale(hand_fit: Fit) -> None:
    plain = budget(hand_fit, spend=[32_000], price=1.0, worth=20_000)
    for metric, factor in ((PERCENT, 100), (ERRORS, 1)):
        other = budget(fit_by_hand(hand_runs(metric=metric)), spend=[32_000], price=1.0, worth=20_000)
        assert other.choices["option"].tolist() == plain.choices["option"].tolist()
        np.testing.assert_allclose(other.options["p_best"], plain.options["p_best"])
        numbers = ["gain", "gain_se"]
        np.testing.assert_allclose(other.experiments[numbers], factor * plain.experiments[numbers], atol=1e-9)
        assert other.experiments["verdict"].tolist() == plain.experiments["verdict"].tolist()


# Experiments


def test_experiments_are_laid_out_in_full(hand_fit: Fit) -> None:
    decision = budget(hand_fit, spend=[32_000], price=2.5)
    table = decision.experiments
    leaders = decision.options[decision.options["action"] != "stop"].nlargest(3, "p_best")["option"].tolist()
    alone, pairs = (table[table["options"].str.contains("+", regex=False) == both] for both in (False, True))
    assert alone["options"].unique().tolist() == leaders
    assert sorted(alone["share"].unique()) == sorted(SHARES)
    # Two halves leave nothing to choose with.
    assert sorted(pairs["share"].unique()) == [0.125, 0.25]
    assert len(table) == 3 * 3 + 3 * 2
    np.testing.assert_allclose(alone["extra"], alone["share"] * 32_000)
    np.testing.assert_allclose(pairs["extra"], 2 * pairs["share"] * 32_000)
    np.testing.assert_allclose(table["cost"], 2.5 * table["extra"])
    assert table["p_change"].between(0, 1).all()
    assert (table["gain_se"] > 0).all()
    better = table["gain"] > np.maximum(2 * table["gain_se"], LEAST_GAIN)
    assert (table["verdict"] == np.where(better, "worth it", "not worth it")).all()
    assert (table["effective"] >= 30).all()


def test_the_experiment_to_make_is_the_cheapest_that_matters(hand_fit: Fit) -> None:
    decision = budget(hand_fit, spend=[8_000, 32_000])
    assert decision.experiment(8_000) is None
    best = decision.experiment(32_000)
    assert best is not None
    table = decision.experiments
    good = table[(table["verdict"] == "worth it") & (table["p_change"] >= 0.2) & (table["budget"] == 32_000)]
    assert len(good) > 1
    assert best["extra"] == good["extra"].min()
    # What is cheap in compute may be dear in money.
    cost = np.where(good["extra"] == good["extra"].min(), 9.0, 1.0) * good["extra"]
    dear = replace(decision, experiments=table.assign(cost=cost.reindex(table.index)))
    named = dear.experiment(32_000)
    assert named is not None
    assert named["cost"] == cost.min()
    assert named["extra"] > best["extra"]
    assert decide(hand_fit, spend=[32_000]).experiment(32_000) is None
    assert list(decide(hand_fit, spend=[32_000]).experiments.columns) == list(table.columns)


@pytest.mark.parametrize("measure", ["at", "spend"])
@pytest.mark.parametrize("worth", [None, 40_000.0])
def test_a_blind_experiment_only_uses_things_up(measure: str, worth: float | None) -> None:
    # Evaluations that show nothing: the choice stays a matter of means, with what the experiment left over.
    fit = fit_by_hand(noise=1e3, ceiling_sd=0.002)
    if measure == "at":  # where a run begun anew would end level with one that goes on
        fit = apart(fit)
    size = 16_000.0
    table = budget(fit, **{measure: [size]}, price=2.5, worth=worth).experiments
    row = table[(table["options"] == "continue beta") & (table["share"] == 0.25)].iloc[0]
    options = make_options(fit, Prices())
    tried = np.array([one.label == "continue beta" for one in options])
    going = np.array([one.action != "stop" for one in options])
    extra = np.where(going, size - (np.array([one.spent for one in options]) if measure == "at" else 0), 0.0)
    used = 0.25 * extra[tried].item()
    left = np.where(going & ~tried & (measure == "spend"), 0.75 * extra, extra)
    # Beta goes on with what it was tried for; all others come on top of that.
    paid = left + np.where(tried, 0.0, used)
    weight = 0.0 if worth is None else 0.01 * 2.5 / worth
    _, now = values(fit, extra)
    _, later = values(fit, left)
    expected = (later.mean(axis=0) - weight * paid).max() - (now.mean(axis=0) - weight * extra).max()
    # Draws agree equally with all outcomes, so both halves choose alike and the mean is over all draws.
    assert row["gain"] == pytest.approx(expected, abs=1e-6)
    assert row["verdict"] == "not worth it"


def test_a_blind_experiment_of_two(hand_fit: Fit) -> None:
    fit = fit_by_hand(noise=1e3, ceiling_sd=0.002)
    table = budget(fit, spend=[16_000]).experiments
    leaders = table["options"][:7:3].tolist()
    pair = table[table["options"] == f"{leaders[0]} + {leaders[1]}"]
    labels = [one.label for one in make_options(fit, Prices())]
    for share, gain in zip(pair["share"], pair["gain"], strict=True):
        # Each of the two has lost the share of the other; all others both shares.
        left = [
            0.0
            if label.startswith("stop")
            else 16_000 * (1 - share if label in leaders[:2] else 1 - 2 * share)
            for label in labels
        ]
        _, now = values(fit, [16_000] * 4 + [0])
        _, later = values(fit, left)
        assert gain == pytest.approx(later.mean(axis=0).max() - now.mean(axis=0).max(), abs=1e-6)


def test_draws_that_never_agree_cannot_say_what_looking_is_worth() -> None:
    table = budget(fit_by_hand(noise=1e-6, ceiling_sd=0.05, seed=2), spend=[32_000]).experiments
    thin = table["effective"] < 30
    assert thin.any()
    assert ((table["verdict"] == "not computed") == thin).all()


# Transitions


def test_averaged_decisions_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fit_by_hand()
    weighed = {name: hand_weighed() for name in fit.runs.names}
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: weighed)
    plain = decide(fit, spend=[1e6])
    moving = decide(fit, spend=[1e6], transitions="averaged", hazard=fc.Hazard(0.3, 0.1))
    assert (plain.transitions, plain.hazard) == ("excluded", "")
    assert (moving.transitions, moving.hazard) == ("averaged", "rise=0.3,collapse=0.1")
    assert decide(fit, spend=[1e6], transitions="averaged").hazard == "rise=0.05,collapse=0.05"
    width = [one.options["q95"] - one.options["q05"] for one in (plain, moving)]
    assert (width[1][:4] > width[0][:4]).all()


# As data


@pytest.mark.parametrize("target", [None, 0.95, 0.6])
def test_everything_is_valid_json_and_agrees_with_the_tables(hand_fit: Fit, target: float | None) -> None:
    decision = budget(hand_fit, spend=[8_000], target=target)
    found = json.loads(json.dumps(decision.to_dict(), allow_nan=False))
    assert (found["measure"], found["unit"], found["target"], found["worth"]) == (
        "spend",
        "gpu_hours",
        target,
        None,
    )
    assert found["metric"] == {
        "name": "acc",
        "kind": "pass_rate",
        "split": "validation",
        "scale": [0.0, 1.0],
    }
    for name in ("options", "choices", "targets", "experiments"):
        table = getattr(decision, name)
        assert len(found[name]) == len(table)
        for record, row in zip(found[name], table.to_dict("records"), strict=True):
            assert list(record) == list(row)
            for key, value in row.items():
                if isinstance(value, str):
                    assert record[key] == value
                elif np.isnan(value):
                    assert record[key] is None
                else:
                    assert record[key] == pytest.approx(value, rel=1e-6, abs=1e-12), key


@pytest.mark.parametrize(
    ("unit", "scale"),
    [
        ("tokens", 1e8),
        ("flops", 1e17),
        ("steps", 1e-2),
    ],
)
def test_small_numbers_are_not_rounded_away_in_json(unit: str, scale: float) -> None:
    runs = hand_runs(axis=ComputeAxis(unit))
    table = runs.table.assign(compute=runs.table["compute"] * scale)
    base = fit_by_hand(upto=8_000.0)
    draws = base.draws.copy()
    for name, shift in (("midpoint", None), ("recipe_log_midpoint", np.log(scale))):
        draws[name] = draws[name] * scale if shift is None else draws[name] + shift
    fit = replace(
        base,
        runs=replace(runs, table=table),
        settings=replace(base.settings, upto=8_000.0 * scale),
        pooled=(),
        posterior=xr.DataTree.from_dict({"/posterior": draws}),
    )
    decision = decide(fit, spend=[8_000 * scale])
    plain = decide(base, spend=[8_000])
    np.testing.assert_allclose(
        decision.options["gain_per_unit"] * scale, plain.options["gain_per_unit"], rtol=1e-6
    )
    found = [record["gain_per_unit"] for record in decision.to_dict()["options"]]
    np.testing.assert_allclose(found, decision.options["gain_per_unit"], rtol=1e-6)


# What is refused


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "give one of at, spend and money, found none"),
        ({"at": [9_000], "spend": [1_000]}, "give one of at, spend and money, found at and spend"),
        ({"spend": []}, r"a budget \(spend\) must be positive, found none"),
        ({"spend": [0]}, r"a budget \(spend\) must be positive, found 0"),
        ({"at": [9_000, -1]}, r"a budget \(at\) must be positive, found 9000, -1"),
        ({"money": [np.nan]}, r"a budget \(money\) must be positive, found nan"),
        ({"spend": [np.inf]}, "must be positive, found inf"),
        ({"money": [1_000]}, "a budget in money needs a price per unit of compute"),
        ({"spend": [1], "price": 0}, "a price must be positive, found 0"),
        ({"spend": [1], "price": np.nan}, "a price must be positive, found nan"),
        (
            {"spend": [1], "price": Prices.parse("m=1")},
            "a price for a model that no run declares, found m, expected one price for all",
        ),
        ({"spend": [1], "worth": 0}, "must be a positive amount, found 0"),
        ({"spend": [1], "worth": np.nan}, "must be a positive amount, found nan"),
        ({"spend": [1], "worth": np.inf}, "must be a positive amount, found inf"),
        ({"spend": [1], "target": 60}, "target outside the metric's scale, found 60, expected 0 to 1"),
        ({"spend": [1], "target": np.nan}, "target must be a number, found nan"),
        ({"spend": [1], "target": -0.1}, "target outside the metric's scale, found -0.1"),
        ({"spend": [1], "names": ["gamma"]}, "no such run or recipe, found gamma"),
        (
            {"spend": [1], "transitions": "perhaps"},
            r"unknown transitions, found 'perhaps', expected excluded",
        ),
        ({"spend": [1], "hazard": fc.Hazard()}, "a hazard has no effect where transitions are excluded"),
        (
            {"spend": [1], "hazard": 0.1, "transitions": "averaged"},
            r"hazard must be a forecast\.Hazard, found 0\.1",
        ),
    ],
)
def test_bad_input_is_named(hand_fit: Fit, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        budget(hand_fit, **asked)
    assert "\n" not in str(error.value)


def test_a_target_is_checked_on_the_metrics_scale() -> None:
    errors = fit_by_hand(hand_runs(metric=ERRORS))
    assert decide(errors, spend=[1_000], target=1.0).options["p_target"].eq(1).all()
    with pytest.raises(InputError, match=r"target outside the metric's scale, found 1\.5"):
        decide(errors, spend=[1_000], target=1.5)
    with pytest.raises(InputError, match="found 101, expected 0 to 100"):
        decide(fit_by_hand(hand_runs(metric=PERCENT)), spend=[1_000], target=101)


def test_refused_runs_have_no_option() -> None:
    fit = fit_by_hand(hand_runs(("alpha", "beta", "gamma")), refused={"gamma": "collapsed"})
    assert "gamma" not in set(decide(fit, spend=[1_000]).options["name"])
    with pytest.raises(InputError, match="no forecast for run 'gamma', found collapsed"):
        decide(fit, spend=[1_000], names=["gamma"])


def test_failed_diagnostics_withhold_the_decision() -> None:
    fit = fit_by_hand(passed=False)
    with pytest.raises(fc.Withheld, match="R-hat"):
        decide(fit, spend=[1_000])
    with pytest.raises(InputError):
        decide(fit, spend=[-1])
    assert len(decide(fit, spend=[1_000], force=True).options) == 5


def test_runs_fitted_apart_are_continued_or_left() -> None:
    decision = budget(apart(fit_by_hand()), spend=[8_000], target=0.6)
    assert decision.options["action"].tolist() == ["continue", "continue", "stop"]
    assert decision.options["p_best"].sum() == pytest.approx(1)
    assert len(decision.targets) == 2
    assert len(decision.experiments) == 2 * 3 + 2


def test_the_same_question_has_the_same_answer(hand_fit: Fit) -> None:
    one, other = (budget(hand_fit, spend=[32_000], target=0.6).to_dict() for _ in range(2))
    assert one == other


def test_a_budget_far_beyond_the_data_is_refused(hand_fit: Fit) -> None:
    with pytest.raises(InputError, match="more than 1,000 times the fitted compute"):
        budget(hand_fit, spend=[8_000, 1e8])
    budget(hand_fit, at=[7.9e6], experiments=False)


def test_of_equals_to_stop_is_chosen_and_each_has_its_share(hand_fit: Fit) -> None:
    # So little compute that it changes no value: the best run continued is the best run kept.
    decision = budget(hand_fit, spend=[1e-9], experiments=False)
    (choice,) = decision.choices.to_dict("records")
    assert choice["option"] == "stop with beta"
    p = decision.options.set_index("option")["p_best"]
    assert p["stop with beta"] == pytest.approx(p["continue beta"])
    assert p.sum() == pytest.approx(1)


def test_looks_that_spend_next_to_nothing_are_not_offered(hand_fit: Fit) -> None:
    # A hundredth of 8,000 fitted: shares of 1/2 of 200 and more reach it, 1/4 and 1/8 do not.
    table = budget(hand_fit, spend=[200, 8_000]).experiments
    assert set(table.loc[table["budget"] == 200, "share"]) == {0.5}
    assert set(table.loc[table["budget"] == 8_000, "share"]) == {0.125, 0.25, 0.5}


def test_what_is_dearer_than_anything_is_worth_leaves_no_warning(hand_fit: Fit) -> None:
    with np.errstate(all="raise"):
        decision = budget(hand_fit, spend=[8_000], price=1e12, worth=1e-300)
    assert decision.choices["option"].tolist() == ["stop with beta"]
    assert np.isfinite(decision.options["regret"]).all()


def test_the_ceiling_of_a_new_run_is_not_that_of_the_mean_curve() -> None:
    runs = hand_runs({"a0": "a", "a1": "a", "a2": "a"})
    fit = fit_by_hand(runs, ceiling_sd=0.002)
    fit.draws["gain_within_sd"][:] = 0.5
    options = decide(fit, spend=[8_000]).options.set_index("option")
    said = fit.parameters(level="new_run").query("parameter == 'ceiling'")["verdict"].iloc[0]
    assert options.loc["start a", "ceiling"] == said.partition(":")[0]
    assert options.loc["start a", "ceiling"] != options.loc["continue a0", "ceiling"]


def test_how_far_a_budget_goes_is_said_of_what_is_bought(hand_fit: Fit) -> None:
    # The runs have used 8,000: only new ones can still reach 3,000 and 5,000.
    assert decide(hand_fit, at=[5_000, 3_000]).furthest() == [3_000, 5_000]
    assert decide(hand_fit, spend=[1_000]).furthest() == [9_000]
