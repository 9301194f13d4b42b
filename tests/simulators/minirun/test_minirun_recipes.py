"""Does every named recipe train on every task, and is it what its paper says?"""
# ruff: noqa: E402

from __future__ import annotations

from math import isfinite

import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import same, small, weights

from simulators.minirun.recipes import RECIPES
from simulators.minirun.tasks.registry import TASKS, task
from simulators.minirun.training import Run


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("of", RECIPES)
def test_every_recipe_trains_on_every_task(of, name):
    settings = small(name, of, steps=3, points=2, pool=64)
    run = Run(settings, weights(settings))
    while not run.done:
        run.advance()
    per_point = 1 + len(task(name).classes)
    assert [row["step"] for row in run.rows] == [0] * per_point + [1] * per_point + [3] * per_point
    for row in run.rows:
        assert 0 <= row["pass_rate"] <= 1
        assert all(isfinite(value) for value in row.values() if isinstance(value, (int, float)))
    assert not same(weights(settings), run.policy.state_dict())
    trained = run.rows[-per_point]
    assert {"loss", "grad_norm", "lag", "train_reward", "ratio_mean", "entropy"} <= trained.keys()
    assert ("kl" in trained) == (settings.recipe.kl > 0)


@pytest.mark.parametrize(
    ("of", "lags"),
    [
        ("base", [0, 1, 2, 3, 4, 5, 6, 7, 8, 8]),
        ("reinforce", [0] * 10),
        ("grpo", [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]),
        ("magistral", [0, 1] + [2] * 8),
        ("minimax", list(range(10))),
        ("expert_iteration", [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]),
        ("online_dpo", [0] * 10),
    ],
)
def test_recipes_have_the_lag_that_they_are_described_with(of, lags):
    settings = small(of=of, steps=10, points=50)
    run = Run(settings, weights(settings))
    while not run.done:
        run.advance()
    whole = [row for row in run.rows if "stratum" not in row and "lag" in row]
    assert [row["step"] for row in whole] == list(range(1, 11))
    assert [row["lag"] for row in whole] == lags
