"""Mini-runs: sets of curves, scored by set, engine and cut."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command

from forecast.errors import InputError
from studies.backtest_rows import SKIPPED
from studies.executor import Task
from studies.mini_runs import SETS, figure, markdown, read, refusals, summarise, tasks, work

CURVES = Path(__file__).parents[3] / "shared" / "minirun" / "curves"
STEPS = np.unique(np.concatenate([[0], np.geomspace(1, 400, 22).astype(int)]))


def write(folder: Path, recipe: str, seed: int, mean: np.ndarray) -> None:
    rng = np.random.default_rng(seed)
    table = {
        "run": f"{recipe}_s{seed}",
        "seed": seed,
        "recipe": recipe,
        "step": STEPS,
        "gen_flops": 2e8 * STEPS,
        "train_flops": 3e8 * STEPS,
        "eval_pass_rate": (rng.binomial(1024, mean) / 1024).round(4),
        "eval_cls0": 0.5,
    }
    pd.DataFrame(table).to_csv(folder / f"{recipe}_s{seed}.csv", index=False)


@pytest.fixture(scope="module")
def curves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("curves")
    share = 1 / (1 + (25 / np.maximum(STEPS, 1e-9)) ** 1.2)
    for seed in range(2):
        write(folder, "addmul_base", seed, 0.26 + 0.44 * share)
    peak = np.exp(-(np.log(np.maximum(STEPS, 1) / 8) ** 2) / 2)
    write(folder, "addmul_lr1e-3", 0, 0.2 + 0.3 * peak)
    write(folder, "carry_base", 0, np.where(STEPS > 250, 0.9, 0.2 + 0.2 * share))
    return folder


@pytest.fixture(scope="module")
def rows(curves: Path) -> pd.DataFrame:
    asked = [task for task in tasks(curves, seed=0) if task["engine"] == "particle"]
    return pd.concat([work(task) for task in asked], ignore_index=True)


def test_sets_share_no_run_and_step_0_is_the_floor(curves: Path) -> None:
    sets = read(curves)
    assert {key: len(runs.names) for key, runs in sets.items()} == {"stable": 2, "unstable": 1, "carry": 1}
    assert sets["stable"].floors["addmul_base_s0"].trials == 1024
    first = sets["stable"].overall().iloc[0]
    assert first["compute"] == pytest.approx(5e8)  # generation and training
    assert first["trials"] == 1024


def test_only_stable_recipes_are_also_fitted_together(curves: Path) -> None:
    keys = [task.key for task in tasks(curves, seed=0)]
    assert keys == ["stable/hierarchical", "stable/particle", "unstable/particle", "carry/particle"]


def test_sets_are_scored_apart(rows: pd.DataFrame) -> None:
    summary = summarise(rows).set_index(["set", "fitted"])
    assert len(summary) == 6
    for cut in ("25 %", "50 %"):
        stable = summary.loc[("stable", cut)]
        assert (stable["runs"], stable[SKIPPED]) == (2, 0)
        assert stable["coverage_95"] >= 0.8
        # A rise and fall is refused, not forecast.
        assert summary.loc[("unstable", cut), SKIPPED] == 1
    # Half of the jump is later than the cut, and nothing announces it.
    assert summary.loc[("carry", "50 %"), "coverage_95"] < 0.5
    assert figure(summary.reset_index()).axes


def test_the_text_says_what_was_skipped_and_what_was_asked(rows: pd.DataFrame) -> None:
    text = markdown(summarise(rows))
    assert (
        "| unstable: learning rate 1e-3, rises, then falls | 25 % | each run by itself | 1 (1) | - |" in text
    )
    assert text.count("holds (") + text.count("does not hold (") == 4
    assert "unstable, each run by itself, fitted 25 %: addmul_lr1e-3_s0: collapsed" in refusals(rows)
    assert refusals(rows[rows["method"] != SKIPPED]) == ""


def test_a_set_without_curves_is_named(curves: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "curves").mkdir()
    with pytest.raises(InputError, match=r"no curve, expected files \*\.csv"):
        read(tmp_path / "curves")
    (tmp_path / "curves" / "a.csv").write_text((curves / "addmul_base_s0.csv").read_text())
    answer = command("study", "mini-runs", tmp_path / "curves", "-o", tmp_path / "out")
    assert answer.code == 2
    assert "curves are missing, found none of the set unstable, carry" in answer.last
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_stable_recipes_are_forecast_as_asked() -> None:
    if not CURVES.is_dir():
        pytest.skip("the curves of the mini-runs are not on this machine")
    rows = work(Task("stable", {"curves": str(CURVES), "set": "stable", "engine": "particle", "seed": 0}))
    summary = summarise(rows)
    assert set(SETS) >= set(summary["set"])
    assert summary["runs"].tolist() == [24, 24]
    assert (summary["crps_ratio"] <= 0.70).all()
    assert (summary["coverage_95"] >= 0.88).all()
