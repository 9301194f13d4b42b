"""Which split of a budget is best: bookkeeping, choice, honesty about it, and the fitted frontier."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from simulators.skills.allocation import HARD, METRICS, best_split, budget_settings, plausible_rates, spend
from simulators.skills.frontier import CHOICE, fit_frontier, frontier
from simulators.skills.population import draw_population
from simulators.skills.settings import Settings
from simulators.skills.training import train

SPLITS = ((4, 2), (8, 4))


def small(learning_rate: float = 0.03) -> Settings:
    settings = budget_settings((0.2, 0.5), learning_rate=learning_rate, batch=SPLITS[1])
    return replace(settings, prompts=replace(settings.prompts, train=16, held_out=12))


def table(
    quality: dict[tuple[int, int, int], float], noise: float, worlds: int, seed: int = 0
) -> pd.DataFrame:
    """Values of splits (budget, prompts, rollouts), with an effect of the world that all share."""
    rng = np.random.default_rng(seed)
    world = rng.normal(0.0, 0.1, worlds)
    rows = []
    for (budget, prompts, rollouts), level in quality.items():
        for k, value in enumerate(level + world + noise * rng.standard_normal(worlds)):
            rows.append((k, prompts, rollouts, budget // (prompts * rollouts), budget, "mean", value))
    columns = ["world", "prompts", "rollouts", "steps", "budget", "metric", "value"]
    return pd.DataFrame(rows, columns=columns).assign(learning_rate=0.03)


def test_no_split_spends_more_than_its_budget_nor_leaves_a_step_unpaid():
    rows = spend(small(), SPLITS, [100, 20, 1000], worlds=2)
    batch = rows["prompts"] * rows["rollouts"]
    assert (rows["steps"] >= 1).all()
    assert (rows["steps"] * batch <= rows["budget"]).all()
    assert (rows["steps"] * batch > rows["budget"] - batch).all()
    # 8 x 4 rollouts are more than 20.
    assert len(rows) == (3 + 2) * 2 * len(METRICS)
    wide = rows.pivot(index=["world", "prompts", "rollouts", "budget"], columns="metric", values="value")
    assert ((wide["worst@4"] < wide["mean"]) & (wide["mean"] < wide["pass@4"])).all()


def test_the_batch_of_reference_is_trained_at_the_learning_rate_given():
    settings, seed = small(), 5
    rows = spend(settings, SPLITS, [320], worlds=3, seed=seed)
    own = rows[(rows["prompts"] == 8) & (rows["metric"] == "mean")]
    population = draw_population(settings, 3, np.random.default_rng([seed, 0]))
    recipe = replace(settings.recipe, steps=10)
    history = train(
        population, replace(settings, recipe=recipe), np.random.default_rng([seed, *SPLITS[1]]), at=[10]
    )
    np.testing.assert_allclose(own["value"], history.held_out.solved[-1].mean(axis=-1))


def test_all_splits_train_on_the_same_worlds():
    rows = spend(small(learning_rate=1e-12), SPLITS, [64], worlds=3, seed=[1, 2])
    wide = rows[rows["metric"] == "mean"].pivot(index="world", columns="prompts", values="value")
    np.testing.assert_allclose(wide[4], wide[8], rtol=1e-6)
    assert wide[4].std() > 1e-3
    other = spend(small(learning_rate=1e-12), SPLITS[:1], [64], worlds=3, seed=[1, 3])
    assert not np.allclose(other.loc[other["metric"] == "mean", "value"], wide[4])


def test_budgets_that_buy_no_step_are_refused():
    with pytest.raises(InputError, match="no split can make a step, found budgets up to 7 rollouts"):
        spend(small(), SPLITS, [5, 7], worlds=1)


def test_the_planted_best_split_is_found_with_its_gain():
    levels = {(4, 16): 0.3, (8, 2): 0.4, (8, 8): 0.5, (8, 16): 0.6, (8, 32): 0.5, (32, 8): 0.55}
    rows = table({(4096, *split): level for split, level in levels.items()}, noise=0.01, worlds=12)
    best = frontier(rows, "mean").iloc[0]
    assert (best["prompts"], best["rollouts"], best["steps"]) == (8, 16, 32)
    assert best["verdict"] == "decided"
    assert best["candidates"] == "16"
    assert best["log2_rollouts_low"] == best["log2_rollouts_high"] == 4
    assert best["gain_low"] < 0.05 < best["gain_high"]
    assert best["loss_half"] == pytest.approx(0.1, abs=0.02)
    assert best["loss_double"] == pytest.approx(0.1, abs=0.02)


def test_a_best_split_at_the_edge_is_called_so():
    levels = {(8, 2): 0.6, (8, 8): 0.5, (32, 2): 0.5, (32, 8): 0.4}
    rows = table({(4096, *split): level for split, level in levels.items()}, noise=0.01, worlds=12)
    assert frontier(rows, "mean").iloc[0]["verdict"] == "at the edge of what was tried: P, G"
    quicker = rows.assign(learning_rate=0.1, value=rows["value"] + 0.2)
    both = frontier(pd.concat([rows, quicker]), "mean").iloc[0]
    assert both["verdict"] == "at the edge of what was tried: P, G, learning rate"
    assert both["learning_rate"] == 0.1


def test_stopping_early_takes_back_what_is_lost_by_going_on():
    falling = {(2**k, 8, 8): level for k, level in zip((10, 11, 12), (0.5, 0.7, 0.4), strict=True)}
    rising = {(2**k, 8, 64): level for k, level in zip((10, 11, 12), (0.3, 0.5, 0.7), strict=True)}
    last = frontier(table(falling | rising, noise=0.001, worlds=6), "mean").iloc[-1]
    assert last["rollouts"] == 64
    assert last["gain"] == pytest.approx(0.3, abs=0.01)
    assert last["gain_stopped"] == pytest.approx(0.0, abs=0.01)


def test_the_best_of_equals_gains_nothing_where_it_was_not_chosen():
    honest, in_sample = [], []
    for seed in range(100):
        equal = {(1024, 8, 2**k): 0.0 for k in range(1, 8)}
        rows = table(equal, noise=0.1, worlds=6, seed=seed)
        rows["value"] -= rows.groupby("world")["value"].transform("mean")
        found = frontier(rows, "mean", resamples=100).iloc[0]
        honest.append(found["value"])
        in_sample.append(found["value_in_sample"])
    error = np.std(honest) / np.sqrt(len(honest))
    assert np.mean(honest) < np.mean(in_sample) - 5 * error
    assert abs(np.mean(honest)) < 4 * error + 0.01
    # Expected largest of seven means of six values, less their common mean.
    assert np.mean(in_sample) == pytest.approx(1.352 * 0.1 / np.sqrt(6), abs=0.01)


def planted(budgets: np.ndarray, rise: float, slope: float, midpoint: float, base: float) -> pd.DataFrame:
    best = rise / (1 + np.exp(-slope * (np.log10(budgets) - midpoint))) + base
    rollouts = np.unique(np.round(2 ** np.arange(1, 10.01, 0.25)).astype(int))
    quality = {
        (int(budget), 1, int(g)): -((np.log2(g) - at) ** 2)
        for budget, at in zip(budgets, best, strict=True)
        for g in rollouts
    }
    return table(quality, noise=0.01, worlds=6)


def test_a_planted_frontier_is_recovered():
    fit = fit_frontier(
        planted(np.logspace(3, 8, 21), rise=5.0, slope=3.0, midpoint=5.0, base=2.0), "mean", resamples=50
    )
    found = fit.parameters.set_index("parameter")
    truth = {"rise": 5.0, "slope": 3.0, "midpoint": 5.0, "base": 2.0, "plateau": 7.0}
    tolerance = {"rise": 0.2, "slope": 0.4, "midpoint": 0.05, "base": 0.15, "plateau": 0.15}
    for name, value in truth.items():
        assert found.loc[name, "value"] == pytest.approx(value, abs=tolerance[name])
    assert found["identified"].all()
    assert fit.rises == fit.saturates == 1.0
    assert fit.log2_rollouts(np.array([1e5]))[0] == pytest.approx(4.5, abs=0.15)


def test_what_the_budgets_do_not_show_is_not_identified():
    rising = fit_frontier(
        planted(np.logspace(3, 5, 9), rise=5.0, slope=3.0, midpoint=5.0, base=2.0), "mean", resamples=50
    )
    found = rising.parameters.set_index("parameter")
    assert rising.rises == 1.0
    assert rising.saturates < 0.1
    assert not found.loc[["rise", "midpoint", "plateau"], "identified"].any()
    assert "plateau" in found.loc["plateau", "reason"]

    step = fit_frontier(
        planted(np.logspace(3, 8, 21), rise=5.0, slope=100.0, midpoint=5.1, base=2.0), "mean", resamples=50
    )
    found = step.parameters.set_index("parameter")
    assert found.loc["slope", "reason"] == "the rise lies between two budgets"
    assert found.loc["plateau", "identified"]

    flat = fit_frontier(
        planted(np.logspace(3, 5, 9), rise=0.0, slope=3.0, midpoint=4.0, base=4.0), "mean", resamples=50
    )
    assert flat.rises == 0.0
    assert not flat.parameters.set_index("parameter").loc[["rise", "slope", "midpoint"], "identified"].any()


def test_a_frontier_needs_worlds_and_budgets():
    rows = table({(1024, 8, 2): 0.1, (1024, 8, 8): 0.2}, noise=0.01, worlds=2)
    with pytest.raises(InputError, match="too few budgets to fit, found 1"):
        fit_frontier(rows, "mean")
    with pytest.raises(InputError, match="too few worlds"):
        frontier(rows[rows["world"] == 0], "mean")


def test_zeros_of_few_rollouts_are_not_impossible():
    drawn = np.array(plausible_rates([0.0] * 50, 4, np.random.default_rng(0)))
    assert drawn.min() > 0
    # Mean of Beta(.5, 4.5).
    assert drawn.mean() == pytest.approx(0.1, abs=0.015)
    sure = np.array(plausible_rates([0.25, 0.5], [4, 40_000], np.random.default_rng(0))).reshape(-1, 2)
    assert sure[:, 0].std() > 0.1
    assert sure[:, 1].std() < 0.01


def test_a_histogram_of_zeros_has_a_best_split():
    found = best_split([0.0] * 20, [256, 512], samples=4, worlds=2, splits=SPLITS, seed=3)
    assert tuple(found.columns) == CHOICE
    assert found["budget"].tolist() == [256, 512]
    assert (found["steps"] * found["prompts"] * found["rollouts"] == found["budget"]).all()
    assert found["value"].between(0, 1).all()
    again = best_split([0.0] * 20, [256, 512], samples=4, worlds=2, splits=SPLITS, seed=3)
    pd.testing.assert_frame_equal(found, again)


def test_equals_are_not_decided_between():
    found = best_split([0.5], [64], settings=small(learning_rate=1e-15), splits=SPLITS, worlds=3).iloc[0]
    assert found["verdict"] == "not decided"
    assert found["probability"] == pytest.approx(0.5, abs=0.01)
    assert found["candidates"] == "2, 4"


@pytest.mark.parametrize(
    ("rates", "options", "message"),
    [
        ([], {}, "pass_rates is empty"),
        ([0.2, float("nan")], {}, "pass_rates is out of range, found nan"),
        ([20.0], {}, "pass_rates is out of range, found 20, expected 0 to 1, as fractions"),
        ([0.2], {"samples": 0}, "samples is out of range, found 0, expected 1 or more rollouts per prompt"),
        ([0.2, 0.1], {"samples": [4, 4, 4]}, "samples do not fit pass_rates, found 3, expected one, or 2"),
        ([0.2, 0.0], {}, "found 1 of 2 prompts. Say how many rollouts"),
        ([0.2], {"metric": "best"}, "unknown metric"),
        ([0.2], {"worlds": 1}, "worlds is out of range, found 1, expected 2 or more"),
        ([0.2], {"budgets": [100.5]}, "budgets are no whole numbers"),
        ([0.2], {"budgets": [float("nan")]}, "budgets are no whole numbers"),
        ([0.2], {"budgets": 256}, "budgets are no whole numbers"),
        ([0.2], {"budgets": [0]}, "budgets are out of range"),
        ([0.2], {"budgets": [3]}, "no split can make a step"),
        ([0.2], {"splits": [(0, 2)]}, "at least one of its prompts"),
        ([0.2], {"splits": [(4, 2.5)]}, "splits are no pairs of whole numbers"),
        ([0.2], {"splits": []}, "at least one of its splits"),
        ([0.2], {"multiples": [float("inf")]}, "multiples of the learning rate is out of range"),
        ([0.2], {"seed": -1}, "seed is out of range"),
        (["a"], {}, "pass_rates are no numbers"),
    ],
)
def test_what_cannot_be_split_is_refused(rates, options, message):
    with pytest.raises(InputError, match=message):
        best_split(rates, **({"budgets": [256], "splits": SPLITS} | options))


def test_any_kind_of_sequence_will_do():
    options = {"settings": small(), "worlds": 2, "multiples": (1.0,)}
    expected = best_split([0.2, 0.5], [256, 64], splits=SPLITS, **options)
    for budgets, splits, seed in (
        (np.array([256, 64]), np.array(SPLITS), np.int64(0)),
        (iter([64, 256, 256]), [*SPLITS, SPLITS[0]], 0),
    ):
        pd.testing.assert_frame_equal(
            best_split(np.array([0.2, 0.5]), budgets, splits=splits, seed=seed, **options), expected
        )


def test_the_learning_rate_is_chosen_too():
    slow, own, quick = 0.01, 1.0, 3.0
    found = best_split(
        [0.2, 0.5], [256], splits=SPLITS, settings=small(), worlds=3, multiples=(slow, own, quick)
    )
    alone = [
        best_split([0.2, 0.5], [256], splits=SPLITS, settings=small(), worlds=3, multiples=(rate,)).iloc[0]
        for rate in (slow, own, quick)
    ]
    best = max(alone, key=lambda line: line["value"])
    line = found.iloc[0]
    assert line["learning_rate"] == best["learning_rate"]
    assert line["value"] == pytest.approx(best["value"], abs=0.02)


@pytest.mark.slow
def test_small_groups_win_while_training_is_short():
    """2^14 rollouts on hard prompts: at equal learning per rollout, more steps are more progress."""
    found = best_split(HARD, [2**14], splits=((8, 2), (8, 16), (8, 64)), worlds=4, multiples=(1.0,)).iloc[0]
    assert found["rollouts"] == 2
    assert found["verdict"] == "at the edge of what was tried: G"
