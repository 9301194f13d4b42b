"""Known answers on runs that were written down, and what becomes of runs that cannot be scored."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fits_by_hand import CEILING, EXPONENT, FLOOR, MIDPOINT, fit_by_hand, hand_runs

import forecast as fc
import forecast.fits
from forecast.curves import sigmoid
from forecast.errors import InputError
from forecast.inference.particle import Particles
from forecast.outlook.backtest import COLUMNS, Backtest, backtest
from forecast.outlook.backtest_summary import effective_number, summarise
from forecast.outlook.contenders import METHODS, QUANTILES
from forecast.outlook.cuts import make_cuts
from forecast.runs.table import Metric, Runs

DRAWS = 400
SEEDS = {"a0": "a", "a1": "a", "b0": "b", "b1": "b", "c0": "c"}


@pytest.fixture
def known_posterior(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The engine knows the curve to +-.01 of its ceiling; its calls are kept as (run, points, seed)."""
    calls: list[tuple[Any, ...]] = []

    def sample_run(
        observations: Any, j: int, prior: Any, *, family: str, seed: list[int], effort: Any
    ) -> Particles:
        calls.append((observations.runs[j], int((observations.run == j).sum()), tuple(seed)))
        rng = np.random.default_rng(seed)
        values = {"floor": FLOOR, "exponent": EXPONENT, "midpoint": MIDPOINT, "noise": 0.004}
        draws = {name: np.full((2, DRAWS // 2), value) for name, value in values.items()}
        draws["ceiling"] = CEILING + 0.01 * rng.standard_normal((2, DRAWS // 2))
        return Particles(family, draws, np.zeros(2), 1, 0.3, 0.3)

    monkeypatch.setattr("forecast.inference.particle.sample_run", sample_run)
    return calls


def ours(result: Backtest, method: str = "rlforecast") -> pd.DataFrame:
    return result.forecasts[result.forecasts["method"] == method]


def with_run(runs: Runs, name: str, compute: Iterable[float], value: Iterable[float]) -> Runs:
    extra = pd.DataFrame({"run": name, "recipe": name, "compute": compute, "value": value})
    return replace(runs, table=pd.concat([runs.table[list(extra.columns)], extra]))


# What is fitted, what is scored


def test_every_later_evaluation_is_scored_once_by_every_method(known_posterior: list[Any]) -> None:
    runs = hand_runs()
    result = backtest(runs, fractions=(0.25, 0.5), workers=1)
    assert list(result.forecasts.columns) == list(COLUMNS)
    for label, share in (("25 %", 0.25), ("50 %", 0.5)):
        part = result.forecasts[result.forecasts["cut"] == label]
        later = runs.table[runs.table["compute"] > share * 16_000]
        for method in METHODS:
            own = part[part["method"] == method]
            assert list(own["run"]) == list(later["run"])
            np.testing.assert_array_equal(own["compute"], later["compute"])
            np.testing.assert_array_equal(own["observed"], later["value"])
            assert set(own["fitted_upto"]) == {share * 16_000}
            assert set(own["fitted_points"]) == {16 * share}
    assert known_posterior == [
        (name, int(16 * share), (0, number, cut))
        for cut, share in enumerate((0.25, 0.5))
        for number, name in enumerate(("alpha", "beta"))
    ]
    assert result.skipped.empty


def test_runs_of_different_length_are_cut_at_their_own_share_or_at_one_compute(
    known_posterior: list[Any],
) -> None:
    x = np.linspace(500, 8_000, 16)
    runs = with_run(hand_runs(["long"]), "short", x, sigmoid(x, FLOOR, CEILING, EXPONENT, MIDPOINT))
    shares = ours(backtest(runs, fractions=[0.5])).groupby("run")["fitted_upto"].first()
    assert shares.to_dict() == {"long": 8_000, "short": 4_000}
    fixed = ours(backtest(runs, upto=[5_000])).groupby("run")["fitted_upto"].first()
    assert fixed.to_dict() == {"long": 5_000, "short": 5_000}
    result = backtest(runs, upto=[9_000])
    assert result.skipped.to_dict("records") == [
        {"cut": "9000 gpu_hours", "run": "short", "reason": "no evaluation beyond the cut"}
    ]


def test_numbers_of_our_forecast_are_those_of_the_posterior(known_posterior: list[Any]) -> None:
    table = ours(backtest(hand_runs(["alpha"]), fractions=[0.5]))
    truth = sigmoid(table["compute"], FLOOR, CEILING, EXPONENT, MIDPOINT)
    beyond = np.log(table["compute"] / 8_000)
    done = (truth - FLOOR) / (CEILING - FLOOR)
    sd = np.sqrt((0.01 * done) ** 2 + 0.004**2 + truth * (1 - truth) / 16_000 + (0.01 * beyond) ** 2)
    np.testing.assert_allclose(table["mean"], truth, atol=4.5 * sd.max() / np.sqrt(DRAWS))
    for column, z in (("q05", -1.645), ("q50", 0.0), ("q95", 1.645), ("q025", -1.96)):
        np.testing.assert_allclose(table[column], truth + z * sd, atol=0.3 * sd.max())
    np.testing.assert_allclose(table["error"], table["mean"] - table["observed"])
    np.testing.assert_allclose(table["times_fitted"], table["compute"] / 8_000)
    np.testing.assert_allclose(table["times_midpoint"], table["compute"] / MIDPOINT)
    z = (table["observed"] - truth) / sd
    np.testing.assert_allclose(
        table["log_score"], -0.5 * z**2 - np.log(sd) - 0.5 * np.log(2 * np.pi), atol=0.3
    )
    assert ((table["pit"] - 0.5) * z > -0.02).all()


def test_points_have_no_interval_and_their_crps_is_their_error(known_posterior: list[Any]) -> None:
    result = backtest(hand_runs(["alpha"]), fractions=[0.5])
    fitted_last = result.forecasts.query("method == 'last_value'")
    values = hand_runs(["alpha"]).table.set_index("compute")["value"]
    np.testing.assert_allclose(fitted_last["mean"], values.loc[8_000])
    for method in ("least_squares", "power_law", "last_value"):
        table = ours(result, method)
        assert table[[*QUANTILES, "log_score", "pit"]].isna().all(axis=None)
        np.testing.assert_allclose(table["crps"], table["error"].abs())
    table = ours(result, "least_squares_covariance")
    assert (np.diff(table[list(QUANTILES)], axis=1) >= 0).all()
    assert table["pit"].between(0, 1).all()


@pytest.mark.parametrize(
    "metric",
    [
        Metric("acc", scale=(0, 100), prompts=1000, samples_per_prompt=16),
        Metric("wrong", "error_rate", scale=(1, 0), prompts=1000, samples_per_prompt=16),
        Metric("wrong", "error_rate", scale=(100, 0), prompts=1000, samples_per_prompt=16),
    ],
    ids=lambda metric: f"{metric.kind}{metric.scale}",
)
def test_scores_come_in_metric_units(known_posterior: list[Any], metric: Metric) -> None:
    plain = backtest(hand_runs(["alpha"]), fractions=[0.5])
    scaled = backtest(hand_runs(["alpha"], metric=metric), fractions=[0.5])
    zero, one = metric.scale
    unit, flip = abs(one - zero), one < zero
    for method in METHODS:
        here, there = ours(plain, method), ours(scaled, method)
        np.testing.assert_allclose(there["mean"], metric.from_fraction(here["mean"]), rtol=1e-9)
        np.testing.assert_allclose(there["crps"], unit * here["crps"], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(there["log_score"], here["log_score"] - np.log(unit), rtol=1e-6)
        np.testing.assert_allclose(there["pit"], 1 - here["pit"] if flip else here["pit"], atol=1e-9)
        opposite = "q95" if flip else "q05"
        np.testing.assert_allclose(there["q05"], metric.from_fraction(here[opposite]), rtol=1e-9)
    for by in (None, "cut"):
        before, after = plain.summary(by), scaled.summary(by)
        np.testing.assert_allclose(after["rmse"], unit * before["rmse"], rtol=1e-6)
        for column in ("crps_ratio", "coverage_90", "within_02", "effective"):
            np.testing.assert_allclose(after[column], before[column], rtol=1e-6)


def test_runs_that_cannot_be_scored_are_named_with_the_reason(known_posterior: list[Any]) -> None:
    x = np.linspace(1_000, 16_000, 16)
    runs = with_run(hand_runs(["good"]), "flat", x, np.full(16, 0.4))
    runs = with_run(runs, "few", [2_000, 9_000, 16_000], [0.4, 0.5, 0.6])
    runs = with_run(runs, "late", [9_000, 12_000, 16_000], [0.4, 0.5, 0.6])
    classes = pd.DataFrame({"run": "classes", "compute": x, "value": 0.5, "stratum": "hard"})
    runs = replace(runs, table=pd.concat([runs.table, classes.assign(recipe="classes")]))
    result = backtest(runs, fractions=[0.5])
    assert set(result.forecasts["run"]) == {"good"}
    reasons = result.skipped.set_index("run")["reason"]
    assert set(reasons.index) == {"flat", "few", "late", "classes"}
    assert reasons["flat"].startswith("flat: ")
    assert reasons["few"].startswith("only 1 evaluation")
    assert reasons["late"] == "no evaluation before the cut"
    assert reasons["classes"] == "no evaluation of the whole prompt set"


def test_a_method_that_cannot_be_fitted_is_left_out_and_counted(known_posterior: list[Any]) -> None:
    x = np.linspace(4_000, 16_000, 4)
    runs = hand_runs(["alpha"], compute=np.linspace(1_000, 16_000, 16))
    runs = with_run(runs, "four", x, [0.2, 0.4, 0.6, 0.8])
    result = backtest(runs, fractions=[0.8])
    summary = result.summary().set_index("method")
    assert set(ours(result, "least_squares_covariance")["run"]) == {"alpha"}
    assert summary.loc["least_squares_covariance", "missing"] == 1
    assert summary.loc["rlforecast", "missing"] == 0


def test_the_same_with_any_number_of_workers_and_another_seed_is_another_result() -> None:
    runs = hand_runs(["a", "b", "c"])
    one, three, other = (
        backtest(runs, fractions=[0.5], workers=workers, seed=seed)
        for workers, seed in ((1, 0), (3, 0), (1, 1))
    )
    pd.testing.assert_frame_equal(one.forecasts, three.forecasts)
    assert one.to_dict() == three.to_dict()
    assert not np.allclose(ours(one)["mean"], ours(other)["mean"], rtol=0, atol=1e-9)
    # The engine itself: three smooth runs, known to the noise.
    assert ours(one)["error"].abs().max() < 0.05
    assert ours(one)["times_midpoint"].between(2, 8).all()


# The hierarchical engine


@pytest.fixture
def known_fit(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """`fit` that writes its posterior down; keeps run -> largest compute of what it was given."""
    given: list[dict[str, float]] = []

    def fit(runs: Runs, *, engine: str, prior: str, floor: Any, pool: str, seed: int, report: Any) -> Any:
        assert engine == "hierarchical"
        report("sampling", 1, 1)
        given.append(runs.table.groupby("run")["compute"].max().to_dict())
        return fit_by_hand(runs, upto=None, passed=seed != 13, seed=seed)

    monkeypatch.setattr(forecast.fits, "fit", fit)
    return given


def test_all_runs_are_cut_for_one_hierarchical_fit(known_fit: list[dict[str, float]]) -> None:
    runs = hand_runs(SEEDS)
    stages: list[str] = []
    result = backtest(
        runs, fractions=[0.25, 0.5], engine="hierarchical", report=lambda stage, *_: stages.append(stage)
    )
    assert known_fit == [dict.fromkeys(SEEDS, 4_000.0), dict.fromkeys(SEEDS, 8_000.0)]
    assert stages == ["fit 1 of 2: sampling", "fit 2 of 2: sampling"]
    assert len(ours(result)) == 5 * (12 + 8)
    assert ours(result)["error"].abs().max() < 0.05
    assert dict(zip(ours(result)["run"], ours(result)["recipe"], strict=True)) == SEEDS


def test_siblings_stay_whole_while_one_run_of_each_recipe_is_cut(known_fit: list[dict[str, float]]) -> None:
    result = backtest(hand_runs(SEEDS), fractions=[0.5], engine="hierarchical", siblings="whole")
    cut = [{name for name, end in ends.items() if end == 8_000} for ends in known_fit]
    assert cut == [{"a0", "b0"}, {"a1", "b1"}, {"c0"}]
    assert all(set(ends) == set(SEEDS) for ends in known_fit)
    scored = ours(result)
    assert scored.groupby("run").size().to_dict() == dict.fromkeys(SEEDS, 8)
    assert set(scored["fitted_upto"]) == {8_000}


def test_a_fit_whose_diagnostics_fail_is_not_scored(known_fit: list[dict[str, float]]) -> None:
    result = backtest(hand_runs(), fractions=[0.5], engine="hierarchical", seed=13)
    assert result.forecasts.empty
    assert set(result.skipped["run"]) == {"alpha", "beta"}
    assert result.skipped["reason"].str.startswith("the sampler's diagnostics failed: R-hat").all()
    assert result.summary().empty
    assert json.dumps(result.to_dict())


def test_no_fit_is_made_where_no_run_can_be_scored(known_fit: list[dict[str, float]]) -> None:
    runs = with_run(hand_runs(["good"]), "flat", np.linspace(1_000, 16_000, 16), np.full(16, 0.4))
    result = backtest(runs, fractions=[0.5], engine="hierarchical", siblings="whole")
    assert len(known_fit) == 1
    assert set(result.forecasts["run"]) == {"good"}
    assert result.skipped["run"].tolist() == ["flat"]


# Averages


def forecasts_by_hand() -> pd.DataFrame:
    """Two runs of two evaluations; our errors .01 and .03, -.01 and -.01, least squares twice as far off."""
    row = {"cut": "50 %", "fitted_upto": 10.0, "log_score": 1.0, "pit": 0.5, "times_midpoint": 1.5}
    rows = []
    for run, times, error in (("r", 1.5, 0.01), ("r", 4.0, 0.03), ("s", 1.2, -0.01), ("s", 5.0, -0.01)):
        point = row | {"run": run, "compute": 10 * times, "times_fitted": times, "observed": 0.5}
        ends = {name: 0.5 + error + 0.04 * (q - 0.5) for name, q in QUANTILES.items()}
        rows.append(point | ends | {"method": "rlforecast", "error": error, "crps": abs(error) / 2})
        nothing = dict.fromkeys((*QUANTILES, "log_score"), np.nan)
        if run == "r":
            rows.append(
                point | nothing | {"method": "least_squares", "error": 2 * error, "crps": 2 * abs(error)}
            )
    return pd.DataFrame(rows)


def test_summary_of_four_errors() -> None:
    table = summarise(forecasts_by_hand(), None, (0, 1)).set_index("method")
    us, grid = table.loc["rlforecast"], table.loc["least_squares"]
    assert us["bias"] == pytest.approx(0.005)
    assert us["rmse"] == pytest.approx(np.sqrt((1 + 9 + 1 + 1) / 4) / 100)
    assert us["crps"] == pytest.approx(0.0075)
    assert us["within_02"] == 0.75
    # Compared on run r alone, which both have: (.005 + .015) / (.02 + .06).
    assert us["crps_ratio"] == pytest.approx(0.25)
    assert grid["crps_ratio"] == 1
    assert (us["missing"], grid["missing"]) == (0, 2)
    # Half-widths .01, .016, .018, .019: errors of .01 lie on or inside all of them, .03 outside.
    assert [us[f"coverage_{level}"] for level in (80, 90, 95)] == [0.75] * 3
    assert us["width_90"] == pytest.approx(0.036)
    assert np.isnan(grid["coverage_90"])
    assert np.isnan(grid["width_90"])
    assert np.isnan(grid["log_score"])


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("run", {"r": 2, "s": 2}),
        ("cut", {"50 %": 4}),
        ("times_fitted", {"1-1.5": 2, "2-4": 1, ">4": 1}),
        ("times_midpoint", {"1-2": 4}),
    ],
)
def test_groups_and_bins_of_a_summary(by: str, expected: dict[str, int]) -> None:
    table = summarise(forecasts_by_hand(), by, (0, 1))
    own = table[table["method"] == "rlforecast"]
    assert dict(zip(own[by].astype(str), own["evaluations"], strict=True)) == expected
    with pytest.raises(InputError, match="cannot summarise by, found 'moon', expected cut"):
        summarise(forecasts_by_hand(), "moon", (0, 1))


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_effective_number_gives_the_variance_of_the_mean(correlation: float) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([3, 5, 8, 12] * 6)
    runs = np.repeat(np.arange(len(sizes)), sizes)
    n, means, claimed = len(runs), [], []
    for _ in range(1_500):
        errors = np.sqrt(correlation) * rng.standard_normal(len(sizes))[runs]
        errors += np.sqrt(1 - correlation) * rng.standard_normal(n)
        means.append(errors.mean())
        claimed.append(effective_number(errors, runs))
    assert np.median(claimed) == pytest.approx(1 / np.var(means), rel=0.15)


def test_effective_number_at_its_ends() -> None:
    runs = list("abcde")
    assert effective_number([0.1, 0.2, 0.3], ["r", "r", "r"]) == 1
    assert (
        effective_number([0.1, 0.3, 0.1, 0.3], ["r", "r", "s", "s"]) == 2
    )  # two runs tell nothing of a third
    assert effective_number([0.1, 0.2, 0.3, 0.4, 0.5], runs) == 5
    assert effective_number(np.repeat([0.1, 0.2, 0.3, 0.4, 0.5], 4), np.repeat(runs, 4)) == 5
    assert effective_number(np.tile([0.1, 0.3], 5), np.repeat(runs, 2)) == 10


def test_to_dict_is_json_with_what_was_asked_for(known_posterior: list[Any]) -> None:
    runs = hand_runs()
    result = backtest(runs, upto=[8_000], prior="llm-rl", seed=3)
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert told["data_sha256"] == runs.hash()
    assert told["settings"]["upto"] == [8_000]
    assert told["settings"] | {"prior": "llm-rl", "seed": 3, "engine": "particle"} == told["settings"]
    assert told["summary"][0]["method"] == "rlforecast"
    assert told["summary_by_times_fitted"][0]["times_fitted"] == "1-1.5"
    assert {"python", "rlforecast", "numba"} <= set(told["versions"])


# Wrong questions


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"fractions": [0.5], "upto": [8_000]}, "found both"),
        ({"fractions": [1.0]}, "--upto-fraction is no share of a run, found 1, expected above 0 and below 1"),
        ({"fractions": [0.0]}, "found 0, expected above 0"),
        ({"fractions": [float("nan")]}, "found nan"),
        ({"fractions": []}, "--upto-fraction is empty"),
        ({"upto": [16_000]}, "--upto leaves nothing to fit or nothing to score, found 16000"),
        ({"upto": [999]}, "found 999, expected from 1000 to less than 16000 gpu_hours"),
        ({"upto": [float("inf")]}, "found inf"),
        ({"engine": "oracle"}, "unknown engine, found 'oracle', expected particle | hierarchical"),
        ({"siblings": "half"}, "unknown siblings"),
        ({"siblings": "whole"}, "fits every run by itself.*--engine hierarchical"),
        ({"pool": "all"}, "particle engine"),
        ({"prior": "narrow"}, "unknown prior"),
        ({"pool": "everything", "engine": "hierarchical"}, "unknown --pool"),
        ({"floor": 2.0}, "floor outside the metric's scale"),
        ({"floor": "guessed"}, "unknown floor"),
        ({"seed": -1}, "seed must not be negative"),
        ({"workers": 0}, "workers must be at least 1"),
    ],
)
def test_wrong_questions_are_refused_in_one_line(asked: dict[str, Any], words: str) -> None:
    words = words.replace("|", r"\|")
    with pytest.raises(InputError, match=words) as caught:
        backtest(hand_runs(), **asked)
    assert "\n" not in str(caught.value)


def test_neither_shares_nor_a_compute_is_refused() -> None:
    with pytest.raises(InputError, match="found neither"):
        make_cuts(hand_runs(), None, None)


def test_it_is_found_at_the_top_of_the_package() -> None:
    assert fc.backtest is backtest
    assert fc.Backtest is Backtest
