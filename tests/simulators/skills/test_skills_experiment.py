"""Experiments on skills worlds: do logs, run table and exact curves say the same?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.runs.read import read_runs
from forecast.runs.table import COLUMNS
from simulators.files import write_logs
from simulators.skills.drawing import draw_smooth
from simulators.skills.experiment import SkillsWorld, draw_experiment, draw_recipes
from simulators.skills.population import STRATA
from simulators.skills.settings import Context, Prompts, Recipe, Settings, Verifier
from simulators.skills.standing import approaches_ceiling

READ = [column for column in COLUMNS if not column.startswith("source")]
SMALL = Settings(
    prompts=Prompts(train=32, held_out=90, gate_share=0.3),
    context=Context(limit=1500),
    verifier=Verifier(true_positive=0.9, false_positive=0.1, exploits=1, exploit_logit=-4),
    recipe=Recipe(steps=60, prompts=16, learning_rate=3.0),
)


def draw(seed: int = 0, recipes: tuple[str, ...] = ("a", "b"), **measured) -> SkillsWorld:
    variants = {"a": SMALL.recipe, "b": replace(SMALL.recipe, advantage="rloo")}
    asked = {name: variants[name] for name in recipes}
    return draw_experiment(SMALL, asked, 2, np.random.default_rng(seed), **({"points": 12} | measured))


@pytest.mark.parametrize("unit", ["gpu_hours", "flops", "tokens", "rollouts", "steps"])
def test_logs_read_as_the_run_table(tmp_path: Path, unit: str) -> None:
    world = draw(unit=unit)
    write_logs(world, tmp_path)
    runs = read_runs(tmp_path / "runs.toml")
    pd.testing.assert_frame_equal(
        runs.table[READ].reset_index(drop=True), world.runs.table[READ].reset_index(drop=True)
    )
    assert dict(runs.floors) == dict(world.runs.floors)
    assert runs.compute.unit == unit
    assert set(runs.table["stratum"].dropna()) <= set(STRATA)


def test_evaluations_scatter_around_the_exact_curve() -> None:
    world = draw(samples=64)
    rows = world.runs.table
    whole = rows[rows["stratum"].isna()]
    exact = world.curves[world.curves["step"] > 0]
    assert whole["step"].tolist() == exact["step"].tolist()
    error = whole["value"].to_numpy() - exact["pass_rate"].to_numpy()
    # At most the variance of independent trials, as the prompts are the same each time.
    sd = np.sqrt(exact["pass_rate"] * (1 - exact["pass_rate"]) / (90 * 64)).to_numpy()
    assert np.abs(error / sd).max() < 4
    assert abs((error / sd).mean()) < 4 / np.sqrt(len(error))
    for stratum in rows["stratum"].dropna().unique():
        mine = rows[rows["stratum"] == stratum]
        truth = exact[f"pass_rate_{stratum}"].to_numpy()
        spread = np.sqrt(np.maximum(truth * (1 - truth), 1e-4) / mine["trials"].to_numpy(dtype=float))
        assert np.abs((mine["value"].to_numpy() - truth) / spread).max() < 5
    # Classes make up the whole: same prompts, same rollouts.
    parts = rows[rows["stratum"].notna()]
    solved = (parts["value"] * parts["trials"].astype(float)).groupby([parts["run"], parts["step"]]).sum()
    assert np.allclose(solved.to_numpy() / (90 * 64), whole["value"].to_numpy())


def test_logged_pass_at_4_estimates_the_exact_one() -> None:
    world = draw(samples=64)
    logged = pd.DataFrame([record for records in world.logs().values() for record in records])
    error = logged["pass_at_4"].dropna().to_numpy() - world.curves["pass_at_4"].to_numpy()
    assert len(error) == len(world.curves)
    # No wider than four times the pass rate's error: d pass@4 / dp is at most 4.
    sd = 4 * np.sqrt(0.25 / (90 * 64))
    assert np.abs(error).max() < 4 * sd
    assert abs(error.mean()) < 4 * sd / np.sqrt(len(error))
    assert "pass_at_4" not in draw(samples=2).logs()["a_s0"][0]


def test_exact_curves_agree_with_each_other() -> None:
    curves = draw().curves
    assert (curves["worst_of_4"] <= curves["pass_rate"]).all()
    assert (curves["pass_rate"] <= curves["pass_at_4"]).all()
    # The verifier's choice helps as long as the policy does not deceive it.
    honest = curves["exploited"] < 0.1
    assert honest.any()
    assert (curves["best_of_4"] > curves["pass_rate"])[honest].all()
    accepted = 0.9 * curves["pass_rate"] + 0.1 * (
        1 - curves["pass_rate"] - curves["truncated"] - curves["exploited"]
    )
    assert np.allclose(curves["proxy_pass_rate"], accepted + curves["exploited"])
    for _, rows in curves.groupby("run"):
        assert rows["step"].iloc[0] == 0
        for used in ("rollouts", "tokens", "flops", "gpu_hours"):
            assert rows[used].iloc[0] == 0
            assert (rows[used].diff().dropna() > 0).all()
        assert rows["rollouts"].tolist() == (rows["step"] * 16 * 8).tolist()


def test_seeds_share_prompts_and_recipes_their_start() -> None:
    world = draw()
    assert world.truth["floor"].nunique() == 1
    assert world.truth["last"].nunique() == 4
    assert world.truth["ceiling"].nunique() == 1
    assert world.truth["run"].tolist() == world.runs.names == ["a_s0", "a_s1", "b_s0", "b_s1"]


def test_the_seed_decides_all_and_a_recipe_left_out_changes_no_other() -> None:
    world, again, alone = draw(), draw(), draw(recipes=("a",))
    pd.testing.assert_frame_equal(world.curves, again.curves)
    assert world.logs() == again.logs()
    pd.testing.assert_frame_equal(
        alone.curves, world.curves[world.curves["run"].isin(["a_s0", "a_s1"])].reset_index(drop=True)
    )
    assert draw(seed=1).truth["last"].tolist() != world.truth["last"].tolist()


def test_the_curve_of_a_run_goes_through_its_evaluations() -> None:
    world = draw(unit="rollouts")
    rows = world.curves[(world.curves["run"] == "b_s1") & (world.curves["step"] > 0)]
    assert np.allclose(world.curve("b_s1", rows["rollouts"]), rows["pass_rate"])
    between = rows["rollouts"].iloc[:2].mean()
    assert world.curve("b_s1", [between])[0] == pytest.approx(rows["pass_rate"].iloc[:2].mean())
    assert world.curve("b_s1", [0.0])[0] == pytest.approx(world.truth["floor"].iloc[0])
    with pytest.raises(InputError, match="no such run"):
        world.curve("c", [1.0])
    for beyond in (-1.0, 1e9, np.nan):
        with pytest.raises(InputError, match="did not go there"):
            world.curve("b_s1", [beyond])


def test_progress_comes_step_by_step() -> None:
    seen: list[tuple[str, int]] = []
    draw(progress=lambda name, step: seen.append((name, step)))
    assert seen == [(name, step) for name in "ab" for step in range(1, 61)]


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        ({"points": 0}, "points"),
        ({"samples": 0}, "samples"),
        ({"unit": "hours"}, "compute unit"),
        ({"spacing": "odd"}, "spacing"),
    ],
)
def test_nonsense_is_refused(measured: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        draw(**measured)


def test_drawn_recipes_vary_around_the_first() -> None:
    base = Recipe(steps=100, rollouts=2)
    recipes = draw_recipes(base, 12, np.random.default_rng(3))
    assert next(iter(recipes)) == "recipe01"
    assert recipes["recipe01"] == base
    others = list(recipes.values())[1:]
    assert len({recipe.learning_rate for recipe in others}) == 11
    assert {recipe.rollouts for recipe in others} == {2, 4}
    assert all(0.25 <= recipe.learning_rate <= 1 for recipe in others)


def test_smooth_worlds_at_random_are_valid_and_different() -> None:
    drawn = [draw_smooth(np.random.default_rng([1, k])) for k in range(40)]
    assert len(set(drawn)) == 40
    assert draw_smooth(np.random.default_rng([1, 0])) == drawn[0]
    for settings in drawn:
        assert (settings.prompts.gate_share, settings.prompts.gap_share, settings.verifier.exploits) == (
            0,
            0,
            0,
        )
    assert {approaches_ceiling(settings) for settings in drawn} == {True, False}
