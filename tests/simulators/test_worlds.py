"""Do worlds have the truth, the noise and the evaluations that they claim?"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from forecast.curves import sigmoid
from forecast.errors import InputError
from simulators.worlds import sigmoid_world

LABELS = ["run", "recipe", "model", "seed", "family"]
SIGMOID = ["floor", "ceiling", "exponent", "midpoint"]
OTHERS = ["tail", "rise", "drop", "second_exponent", "second_midpoint"]
NOISE = ["creep", "noise_sd", "noise_correlation"]


def residuals(world, run: str) -> np.ndarray:
    rows = world.runs.table[world.runs.table["run"] == run]
    return rows["value"].to_numpy() - world.curve(run, rows["compute"])


def test_default_world_is_the_documented_experiment() -> None:
    world = sigmoid_world(rng=np.random.default_rng(1))
    assert list(world.truth.columns) == LABELS + SIGMOID + OTHERS + NOISE
    assert world.truth["family"].eq("sigmoid").all()
    assert world.truth[SIGMOID + NOISE].notna().all().all()
    assert world.truth[OTHERS].isna().all().all()
    assert world.runs.names == list(world.truth["run"])
    assert world.runs.recipes == dict(zip(world.truth["run"], world.truth["recipe"], strict=True))
    assert world.truth.groupby("recipe").size().tolist() == [3, 3, 3, 3]
    table = world.runs.table
    # Every 213.3 GPU-hours; the first seven (up to 1493) are not logged.
    assert table.groupby("run").size().eq(68).all()
    assert table["compute"].min() == pytest.approx(8 * 16_000 / 75)
    assert table["compute"].max() == 16_000
    assert table["trials"].eq(16_000).all()
    assert (world.runs.metric.kind, world.runs.metric.trials) == ("pass_rate", 16_000)
    assert world.runs.compute.unit == "gpu_hours"
    assert set(world.runs.floors) == set(world.runs.names)


def test_truth_lies_in_its_ranges_with_seeds_around_their_recipe() -> None:
    world = sigmoid_world(
        recipes=200, seeds=2, points=3, rng=np.random.default_rng(2), seed_sd={"ceiling": 0.0}
    )
    truth = world.truth
    assert truth["ceiling"].between(0.50, 0.75).all()
    assert (truth["floor"] / truth["ceiling"]).between(0.15, 0.60).all()
    assert truth["noise_correlation"].between(0.3, 0.9).all()
    assert np.log(truth["noise_sd"]).mean() == pytest.approx(np.log(0.006), abs=4 * 0.3 / np.sqrt(400))
    assert truth.groupby("recipe")[["floor", "ceiling"]].nunique().eq(1).all().all()
    # sd of the difference of two seeds is sqrt(2) times the seed sd; its relative error is 5 % for 200 pairs.
    for name, sd in (("exponent", 0.08), ("midpoint", 0.10)):
        pairs = np.log(truth[name].to_numpy()).reshape(-1, 2)
        assert np.diff(pairs).std() / np.sqrt(2) == pytest.approx(sd, rel=0.2)
    middles = np.log(truth["midpoint"] / 16_000).to_numpy().reshape(-1, 2).mean(axis=1)
    assert middles.mean() == pytest.approx(np.log(0.05 * 0.5) / 2, abs=4 * np.log(10) / np.sqrt(12 * 200))


@pytest.mark.parametrize("correlation", [0.3, 0.8, 0.95])
def test_noise_has_the_sd_and_correlation_of_the_truth(correlation: float) -> None:
    # So many prompts that the binomial part is nil.
    world = sigmoid_world(
        recipes=1,
        seeds=1,
        points=20_000,
        start=0.0,
        rng=np.random.default_rng(3),
        noise_sd=(0.008, 0.008),
        noise_correlation=(correlation, correlation),
        prompts=10_000_000,
    )
    noise = residuals(world, "recipe1_s0")
    # Standard errors over n points: relative one of the sd, and that of the correlation.
    squared = correlation**2
    assert noise.std() == pytest.approx(0.008, rel=4 * np.sqrt((1 + squared) / (1 - squared) / 40_000))
    lag = np.corrcoef(noise[1:], noise[:-1])[0, 1]
    assert lag == pytest.approx(correlation, abs=4 * np.sqrt((1 - squared) / 20_000))
    assert noise[0] != 0  # stationary from the first evaluation on
    assert world.truth[["noise_sd", "noise_correlation"]].to_numpy().tolist() == [[0.008, correlation]]


def test_first_evaluation_already_has_the_full_noise() -> None:
    world = sigmoid_world(
        recipes=1,
        seeds=2_000,
        points=2,
        start=0.0,
        rng=np.random.default_rng(4),
        noise_sd=(0.01, 0.01),
        noise_correlation=(0.9, 0.9),
        prompts=10_000_000,
    )
    first = world.runs.table.groupby("run")["value"].first().to_numpy()
    truth = world.truth
    curve = sigmoid(8_000.0, truth["floor"], truth["ceiling"], truth["exponent"], truth["midpoint"])
    assert np.std(first - curve) == pytest.approx(0.01, rel=4 / np.sqrt(2 * 2_000))


def test_evaluations_have_seventy_percent_of_the_binomial_variance() -> None:
    world = sigmoid_world(
        recipes=1,
        seeds=1,
        points=20_000,
        rng=np.random.default_rng(5),
        start=0.0,
        noise_sd=(0.0, 0.0),
        prompts=100,
        samples_per_prompt=4,
    )
    curve = world.curve("recipe1_s0", world.runs.table["compute"])
    z = residuals(world, "recipe1_s0") / np.sqrt(curve * (1 - curve) / 400)
    assert (z**2).mean() == pytest.approx(0.7, rel=4 * np.sqrt(2 / 20_000))
    assert z.mean() == pytest.approx(0, abs=4 * np.sqrt(0.7 / 20_000))
    assert np.corrcoef(z[1:], z[:-1])[0, 1] == pytest.approx(0, abs=4 / np.sqrt(20_000))


def test_measured_floor_is_an_evaluation_of_the_true_one_and_can_be_left_out() -> None:
    world = sigmoid_world(recipes=100, seeds=1, points=5, rng=np.random.default_rng(6))
    truth = world.truth.set_index("run")["floor"]
    measured = pd.Series({run: floor.value for run, floor in world.runs.floors.items()})
    z = (measured - truth) / np.sqrt(0.7 * truth * (1 - truth) / 16_000)
    assert 0.7 < z.std() < 1.3  # se .07
    assert {floor.trials for floor in world.runs.floors.values()} == {16_000}
    without = sigmoid_world(recipes=100, seeds=1, points=5, rng=np.random.default_rng(6), floors=False)
    assert without.runs.floors == {}
    pd.testing.assert_frame_equal(without.runs.table, world.runs.table)


def test_one_base_model_gives_every_recipe_the_same_floor_below_every_ceiling() -> None:
    world = sigmoid_world(
        recipes=6, ceiling=(0.3, 0.9), floor_share=(0.9, 0.99), same_base=True, rng=np.random.default_rng(7)
    )
    assert world.truth["floor"].nunique() == 1
    assert (world.truth["ceiling"] > world.truth["floor"]).all()


def test_same_generator_state_gives_the_same_world_and_another_seed_another() -> None:
    one, two, other = (sigmoid_world(rng=np.random.default_rng(seed)) for seed in (8, 8, 9))
    assert one.runs.hash() == two.runs.hash()
    pd.testing.assert_frame_equal(one.truth, two.truth)
    assert one.runs.hash() != other.runs.hash()


def test_values_stay_within_zero_and_one_under_absurd_noise() -> None:
    world = sigmoid_world(
        ceiling=(0.9, 0.999), floor_share=(0.0, 0.1), noise_sd=(0.5, 0.9), rng=np.random.default_rng(10)
    )
    assert world.runs.table["value"].between(0, 1).all()
    assert world.runs.table["value"].isin([0, 1]).any()


def test_log_spacing_covers_the_run_from_the_start_of_logging() -> None:
    world = sigmoid_world(recipes=1, seeds=1, points=9, spacing="log", rng=np.random.default_rng(11))
    compute = world.runs.table["compute"].to_numpy()
    assert len(compute) == 9
    assert (compute[0], compute[-1]) == (1500, 16_000)
    assert np.diff(np.log(compute)) == pytest.approx(np.log(16_000 / 1500) / 8)


def test_curve_is_the_noiseless_truth_and_refuses_an_unknown_run() -> None:
    world = sigmoid_world(rng=np.random.default_rng(12))
    row = world.truth.iloc[5]
    half = (row["floor"] + row["ceiling"]) / 2
    assert world.curve(row["run"], row["midpoint"]) == pytest.approx(half)
    with pytest.raises(InputError, match="no such run"):
        world.curve("recipe9_s9", 1000.0)


@pytest.mark.parametrize(
    "wrong", [{"spacing": "random"}, {"start": 20_000.0}, {"points": 0}, {"recipes": 0}, {"seeds": 0}]
)
def test_impossible_worlds_are_refused(wrong: dict) -> None:
    with pytest.raises(InputError):
        sigmoid_world(rng=np.random.default_rng(0), **wrong)
