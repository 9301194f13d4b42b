"""From a run table to arrays: order, distances, floors, trials."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.inference.observations import DECLARED_FLOOR_SE, FLOOR_SE_MINIMUM, observe
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

PASS_RATE = Metric("acc", prompts=1000, samples_per_prompt=16)


def runs_of(
    compute: Mapping[str, list[float]],
    *,
    value: float = 0.5,
    metric: Metric = PASS_RATE,
    floors: Mapping[str, Floor] | None = None,
    recipes: Mapping[str, str] | None = None,
    **columns: object,
) -> Runs:
    table = pd.concat(
        pd.DataFrame({"run": run, "recipe": (recipes or {}).get(run, run), "compute": c, "value": value})
        for run, c in compute.items()
    )
    return Runs(table.assign(**columns), metric, ComputeAxis("gpu_hours"), floors or {})


def test_evaluations_are_grouped_by_run_and_grow() -> None:
    runs = runs_of(
        {"b": [300.0, 100.0, 200.0], "a": [50.0, 400.0]},
        recipes={"a": "first", "b": "second"},
    )
    found = observe(runs)
    for j, name in enumerate(found.runs):
        at = np.flatnonzero(found.run == j)
        assert (np.diff(at) == 1).all()
        assert found.first[at].tolist() == [True] + [False] * (len(at) - 1)
        recipe = found.recipe_of_run[j]
        assert found.recipes[recipe] == {"a": "first", "b": "second"}[name]
        compute = np.exp(found.log_compute[at] + found.log_reference[recipe])
        np.testing.assert_allclose(compute, {"a": [50, 400], "b": [100, 200, 300]}[name])
        assert found.fitted_upto[j] == pytest.approx({"a": 400, "b": 300}[name])


def test_midpoints_are_relative_to_the_longest_run_of_the_recipe() -> None:
    runs = runs_of(
        {"a": [10.0, 500.0], "b": [10.0, 2000.0], "c": [7.0]}, recipes={"a": "x", "b": "x", "c": "y"}
    )
    found = observe(runs)
    np.testing.assert_allclose(np.exp(found.log_reference), [2000.0, 7.0])


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e20])
def test_arrays_do_not_depend_on_the_unit_of_compute(unit: float) -> None:
    compute = [100.0, 200.0, 350.0, 400.0]
    here, there = (observe(runs_of({"a": [c * scale for c in compute]})) for scale in (1.0, unit))
    np.testing.assert_allclose(here.log_compute, there.log_compute, atol=1e-12)
    np.testing.assert_allclose(here.distance, there.distance, rtol=1e-9)
    np.testing.assert_allclose(there.fitted_upto / unit, here.fitted_upto)


@pytest.mark.parametrize("spacing", [np.linspace(1000, 9000, 9), np.geomspace(10, 100_000, 9)])
def test_a_missing_evaluation_doubles_the_distance(spacing: np.ndarray) -> None:
    np.testing.assert_allclose(observe(runs_of({"a": list(spacing)})).distance[1:], 1.0)
    gap = observe(runs_of({"a": list(np.delete(spacing, 4))})).distance[1:]
    np.testing.assert_allclose(gap, [1, 1, 1, 2, 1, 1, 1])


def test_close_evaluations_keep_some_distance_and_a_single_one_needs_none() -> None:
    found = observe(runs_of({"a": [100.0, 200.0, 200.001, 300.0, 400.0], "b": [5.0]}))
    assert np.isfinite(found.distance).all()
    assert found.distance.min() >= 0.1


def test_distances_are_each_runs_own() -> None:
    found = observe(runs_of({"a": [1.0, 2.0, 3.0, 4.0], "b": [1000.0, 3000.0, 5000.0]}))
    np.testing.assert_allclose(found.distance[~found.first], 1.0)


def test_measured_floor_has_its_binomial_error_but_never_less_than_seeds_differ() -> None:
    floors = {"a": Floor(0.3, 100), "b": Floor(0.3), "c": Floor(0.0, 10)}
    found = observe(runs_of({"a": [1.0], "b": [1.0], "c": [1.0], "d": [1.0]}, floors=floors))
    assert found.floor_known.tolist() == [True, True, True, False]
    np.testing.assert_allclose(found.floor[:3], [0.3, 0.3, 0.0])
    assert found.floor_se[0] == pytest.approx(np.sqrt(0.3 * 0.7 / 100))
    assert found.floor_se[1] == FLOOR_SE_MINIMUM  # 16,000 trials would say .0036
    assert (found.floor_se > 0).all()
    unknown = observe(runs_of({"a": [1.0]}, metric=Metric("acc"), floors={"a": Floor(0.3)}))
    assert unknown.floor_se[0] > 0.02


def test_floor_can_be_ignored_or_stated() -> None:
    floors = {"a": Floor(30.0, 16_000)}
    percent = Metric("acc", scale=(0, 100))
    runs = runs_of({"a": [1.0], "b": [1.0]}, value=50.0, metric=percent, floors=floors)
    assert not observe(runs, "latent").floor_known.any()
    stated = observe(runs, 25)
    assert stated.floor_known.all()
    np.testing.assert_allclose(stated.floor, 0.25)
    np.testing.assert_allclose(stated.floor_se, DECLARED_FLOOR_SE)
    np.testing.assert_allclose(observe(runs).floor[:1], 0.30)


@pytest.mark.parametrize(
    ("metric", "value", "fraction"),
    [
        (Metric("acc", scale=(0, 100)), 37.0, 0.37),
        (Metric("reward", kind="reward", scale=(-1, 1)), -0.5, 0.25),
        (Metric("wrong", kind="error_rate", scale=(1, 0)), 0.2, 0.8),
        (Metric("acc"), 0.0, 0.0),
        (Metric("acc"), 1.0, 1.0),
        (Metric("acc"), 1.0 + 5e-10, 1.0),
        (Metric("acc"), -5e-10, 0.0),
    ],
)
def test_values_and_floors_become_fractions(metric: Metric, value: float, fraction: float) -> None:
    found = observe(runs_of({"a": [1.0]}, value=value, metric=metric, floors={"a": Floor(value)}))
    assert found.fraction[0] == pytest.approx(fraction, abs=1e-12)
    assert found.floor[0] == pytest.approx(fraction, abs=1e-12)
    assert 0 <= found.fraction[0] <= 1


@pytest.mark.parametrize("floor", [-0.1, 1.1, float("nan"), 30])
def test_a_floor_outside_the_scale_is_refused(floor: float) -> None:
    with pytest.raises(InputError, match=r"floor outside the metric's scale.*expected 0 to 1"):
        observe(runs_of({"a": [1.0]}, metric=Metric("wrong", scale=(1, 0))), floor)


def test_an_unknown_word_for_the_floor_is_refused() -> None:
    with pytest.raises(InputError, match=r"measured \| latent \| a number"):
        observe(runs_of({"a": [1.0]}), "guess")


def test_trials_come_from_the_row_then_from_the_metric() -> None:
    per_row = pd.array([100, None, 1, 50_000], dtype="Int64")
    table = runs_of({"a": [1.0, 2.0, 3.0, 4.0]}, trials=per_row)
    np.testing.assert_allclose(observe(table).inverse_trials, [1 / 100, 1 / 16_000, 1.0, 1 / 50_000])
    unknown = observe(runs_of({"a": [1.0, 2.0]}, metric=Metric("acc")))
    np.testing.assert_array_equal(unknown.inverse_trials, 0.0)


def test_large_evaluations_expect_less_noise_beyond_the_binomial() -> None:
    large = observe(runs_of({"a": [1.0, 2.0]}))
    small = observe(runs_of({"a": [1.0, 2.0]}, trials=500))
    unknown = observe(runs_of({"a": [1.0, 2.0]}, metric=Metric("acc")))
    assert large.noise_median[0] < small.noise_median[0] == unknown.noise_median[0]
    assert large.noise_log_sd[0] < small.noise_log_sd[0]


def test_strata_are_left_out_and_nothing_else_is_an_error() -> None:
    table = pd.DataFrame(
        {"run": "a", "compute": [1.0, 2.0, 1.0], "value": 0.5, "stratum": [None, None, "hard"]}
    )
    runs = Runs(table, PASS_RATE, ComputeAxis("steps"))
    assert len(observe(runs).fraction) == 2
    only_strata = Runs(table[2:], PASS_RATE, ComputeAxis("steps"))
    with pytest.raises(InputError, match="no evaluation of the whole prompt set"):
        observe(only_strata)
