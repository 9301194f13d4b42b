"""Signals of training: which columns are taken, how they are put to evaluations, and that they never stop a reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import forecast as fc
from forecast.errors import InputError
from forecast.runs.signals import recognise
from forecast.runs.table import SIGNAL_COLUMNS, ComputeAxis, Metric, Runs


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def values(runs: Runs, signal: str, run: str | None = None) -> dict[float, float]:
    mine = runs.signals[(runs.signals["signal"] == signal) & (runs.signals["run"] == (run or runs.names[0]))]
    return dict(zip(mine["compute"], mine["value"].round(6), strict=True))


def notes(runs: Runs) -> str:
    return " | ".join(note for receipt in runs.receipts for note in receipt.notes)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (
            [
                "completions/clipped_ratio",
                "clip_ratio/region_mean",
                "frac_reward_zero_std",
                "entropy",
                "reward",
            ],
            ["completions/clipped_ratio", "frac_reward_zero_std", "entropy", "reward"],
        ),
        (
            [
                *("actor/pg_clipfrac", "prompt_length/clip_ratio", "response_length/clip_ratio"),
                *("actor/entropy_loss", "actor/entropy", "critic/rewards/mean", "critic/score/mean"),
            ],
            ["response_length/clip_ratio", None, "actor/entropy", "critic/score/mean"],
        ),
        (
            ["actor/entropy_loss", "critic/rewards/mean"],
            [None, None, "actor/entropy_loss", "critic/rewards/mean"],
        ),
        (
            ["clip_fraction", "truncated", "zero_variance", "batch_reward", "proxy_pass_rate", "entropy"],
            ["truncated", "zero_variance", "entropy", "proxy_pass_rate"],
        ),
        (["frac_zero_var", "entropy", "train_reward"], [None, "frac_zero_var", "entropy", "train_reward"]),
    ],
)
def test_columns_of_trainers_are_recognised(names: list[str], expected: list[str | None]) -> None:
    found = recognise(tuple(names))
    signals = ("truncation", "zero_variance", "entropy", "proxy")
    assert [found[s][0] if s in found else None for s in signals] == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["kl_coef", "actor/ppo_kl", "kl"], "kl"),
        (["train/kl", "train/kl_coef"], "train/kl"),
        (["objective/kl_coef", "objective/kl", "policy/approxkl_avg"], "objective/kl"),
        (["actor/ppo_kl", "actor/kl_coef", "actor/kl_loss"], "actor/kl_loss"),
        (["actor/kl_loss", "critic/kl", "critic/kl_coeff"], "critic/kl"),
        (["actor/reward_kl_penalty_coeff", "actor/reward_kl_penalty"], "actor/reward_kl_penalty"),
        (["optim/kl_sample_train_v1", "kl_policy_base"], "kl_policy_base"),
        (["KL", "clipped", "lag"], "KL"),
    ],
)
def test_the_kl_to_the_reference_is_told_from_others(names: list[str], expected: str) -> None:
    assert recognise(tuple(names))["kl"][0] == expected


@pytest.mark.parametrize(
    "name",
    [
        *(
            "clip_fraction",
            "clip_ratio",
            "actor/pg_clipfrac",
            "actor/clip_ratio_high",
            "prompt_length/clip_ratio",
        ),
        *("eval_completions/clipped_ratio", "response_length/max", "overlong_penalty", "num_truncated"),
        *("entropy_coeff", "entropy_beta", "entropy_loss", "eval_entropy", "actor/entropy/min"),
        *(
            "reward_std",
            "rewards/format/mean",
            "reward/max",
            "val/score",
            "score",
            "eval_reward",
            "reward_gap",
        ),
        *("grad_zero_std", "frac_nonzero_std", "loss", "__value__"),
        *(
            "actor/ppo_kl",
            "ppo_kl",
            "approx_kl",
            "policy/approxkl_avg",
            "optim/kl_sample_train_v1",
            "eval_kl",
        ),
        *("kl_coef", "actor/kl_coef", "critic/kl_coeff", "kl_penalty", "kl_beta", "kl_ctl", "kl_ctrl", "KL0"),
        *("actor/reward_kl_penalty_coeff", "kl_loss_coef", "kl_loss", "kl/max", "rollout/kl", "mismatch_kl"),
    ],
)
def test_other_columns_are_not(name: str) -> None:
    assert recognise((name,)) == {}


TRL = [
    {"step": 1, "completions/clipped_ratio": 0.1, "frac_reward_zero_std": 0.2, "entropy": 1.0, "reward": 0.2},
    {"step": 2, "completions/clipped_ratio": 0.3, "frac_reward_zero_std": 0.4, "entropy": 0.8, "reward": 0.4},
    {"step": 2, "eval_acc": 0.30, "eval_entropy": 9.0},
    {"step": 4, "eval_acc": 0.35},
    {"step": 5, "completions/clipped_ratio": 0.5, "frac_reward_zero_std": 0.6, "entropy": 0.6, "reward": 1.4},
    {"step": 6, "eval_acc": 0.40},
    {"step": 7, "completions/clipped_ratio": 0.9, "frac_reward_zero_std": 0.6, "entropy": 0.6, "reward": 0.4},
]


def test_means_since_the_evaluation_before(tmp_path: Path) -> None:
    runs = fc.read_runs(write(tmp_path / "trl.jsonl", TRL), metric="eval_acc")
    assert values(runs, "truncation") == {2: 0.2, 6: 0.5}
    assert values(runs, "zero_variance") == {2: 0.3, 6: 0.6}
    assert values(runs, "entropy") == {2: 0.9, 6: 0.6}
    # A reward that leaves 0-1 is no rate.
    assert values(runs, "proxy") == {}
    assert "truncation = 'completions/clipped_ratio', zero_variance = 'frac_reward_zero_std'" in notes(runs)


def test_records_with_both_and_the_evaluation_before_training(tmp_path: Path) -> None:
    verl = [
        {"step": 0, "val/acc": 0.1, "actor/entropy": 5.0},
        {"step": 1, "response_length/clip_ratio": 0.0, "critic/score/mean": 0.2, "actor/pg_clipfrac": 0.9},
        {
            "step": 2,
            "response_length/clip_ratio": 0.2,
            "critic/score/mean": 0.4,
            "val/acc": 0.2,
            "actor/entropy": 1,
        },
        {"step": 3, "response_length/clip_ratio": 0.4, "critic/score/mean": 0.6},
        {"step": 4, "response_length/clip_ratio": 0.6, "critic/score/mean": 0.6, "val/acc": 0.3},
    ]
    runs = fc.read_runs(write(tmp_path / "verl.jsonl", verl), metric="val/acc")
    assert values(runs, "truncation") == {2: 0.1, 4: 0.5}
    assert values(runs, "proxy") == {2: 0.3, 4: 0.6}
    assert values(runs, "entropy") == {2: 1.0}


def test_a_skills_world_by_class_of_prompts(tmp_path: Path) -> None:
    from simulators.files import write_logs
    from simulators.skills.experiment import draw_experiment
    from simulators.skills.settings import Prompts, Recipe, Settings

    settings = Settings(prompts=Prompts(train=32), recipe=Recipe(steps=40))
    world = draw_experiment(settings, {"a": settings.recipe}, 2, np.random.default_rng(0), points=8)
    write_logs(world, tmp_path)
    runs = fc.read_runs(tmp_path / "runs.toml")
    assert set(runs.signals["signal"]) == {"truncation", "zero_variance", "entropy", "proxy"}
    assert "proxy = 'proxy_pass_rate'" in notes(runs)
    for run in runs.names:
        logged = pd.DataFrame(world.logs()[run])
        logged = logged[logged["stratum"].isna() & (logged["step"] > 0)]
        assert list(values(runs, "zero_variance", run)) == logged["gpu_hours"].tolist()
        np.testing.assert_allclose(
            list(values(runs, "zero_variance", run).values()), logged["zero_variance"], atol=1e-6
        )


RESTARTED = [
    {"step": 1, "acc": 0.1, "entropy": 1.0},
    {"step": 2, "entropy": 50.0},
    {"step": 3, "acc": 0.3, "entropy": 60.0},
    {"step": 2, "entropy": 2.0},
    {"step": 3, "acc": 0.25, "entropy": 4.0},
    {"step": 4, "acc": 0.35, "entropy": 5.0},
]


def test_what_a_restart_replaced_does_not_count(tmp_path: Path) -> None:
    runs = fc.read_runs(write(tmp_path / "r.jsonl", RESTARTED), metric="acc")
    assert values(runs, "entropy") == {1: 1.0, 3: 3.0, 4: 5.0}


def test_attempts_as_runs_of_their_own_keep_their_signals(tmp_path: Path) -> None:
    runs = fc.read_runs(write(tmp_path / "r.jsonl", RESTARTED), metric="acc", attempts="separate")
    assert values(runs, "entropy", "r#1") == {1: 1.0, 3: 55.0}
    assert values(runs, "entropy", "r#2") == {3: 3.0, 4: 5.0}


def test_rows_without_a_step_are_taken_in_order(tmp_path: Path) -> None:
    records = [{"entropy": 1.0}, {"acc": 0.1}, {"entropy": 2.0}, {"entropy": 4.0}, {"acc": 0.2}]
    runs = fc.read_runs(
        write(tmp_path / "r.jsonl", [{**r, "tokens": 10.0 * k} for k, r in enumerate(records, 1)]),
        metric="acc",
        compute="tokens",
    )
    assert values(runs, "entropy") == {20: 1.0, 50: 3.0}


@pytest.mark.parametrize("odd", ["off", None, float("nan"), float("inf"), [1, 2], {"mean": 1}, 10**400])
def test_no_cell_of_a_signal_stops_a_reading(tmp_path: Path, odd: Any) -> None:
    records = [{"step": k, "acc": 0.1 * k, "entropy": odd if k == 2 else 1.0} for k in (1, 2, 3)]
    runs = fc.read_runs(write(tmp_path / "r.jsonl", records), metric="acc")
    assert runs.overall()["value"].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert set(values(runs, "entropy")) <= {1, 3}


@pytest.mark.parametrize(
    ("column", "bad"), [("truncated", 7.0), ("entropy", -0.5), ("train_reward", -1.0), ("kl", 0.04)]
)
def test_values_that_cannot_be_the_signal_are_not_taken(tmp_path: Path, column: str, bad: float) -> None:
    records = [{"step": k, "acc": 0.1 * k, column: bad} for k in (1, 2, 3)]
    runs = fc.read_runs(write(tmp_path / "r.jsonl", records), metric="acc")
    assert runs.signals.empty
    assert "signals" not in notes(runs)


@pytest.mark.parametrize(("lowest", "taken"), [(-0.04, True), (-0.3, False)])
def test_an_estimate_of_a_kl_may_dip_below_0_but_not_far(tmp_path: Path, lowest: float, taken: bool) -> None:
    records = [{"step": k, "acc": 0.1 * k, "kl": kl} for k, kl in ((1, lowest), (2, 0.5), (3, 20.0))]
    runs = fc.read_runs(write(tmp_path / "r.jsonl", records), metric="acc")
    assert values(runs, "kl") == ({1: lowest, 2: 0.5, 3: 20.0} if taken else {})


def test_the_metric_is_no_signal(tmp_path: Path) -> None:
    records = [{"step": k, "reward": 0.1 * k} for k in (1, 2, 3)]
    runs = fc.read_runs(write(tmp_path / "r.jsonl", records), metric="reward", kind="reward", split="train")
    assert runs.signals.empty


def by_hand(**signals: Any) -> Runs:
    table = pd.DataFrame({"run": ["a", "a", "b"], "compute": [1.0, 2.0, 0.1 + 0.2], "value": [0.1, 0.2, 0.3]})
    rows = {"run": ["b", "a", "a"], "compute": [0.1 + 0.2, 2.0, 1.0], "signal": "entropy", "value": [3, 2, 1]}
    return Runs(table, Metric("acc"), ComputeAxis("steps"), signals=pd.DataFrame(rows | signals))


def test_signals_are_cut_with_the_table() -> None:
    runs = by_hand()
    assert tuple(runs.signals.columns) == SIGNAL_COLUMNS
    assert runs.signals["value"].tolist() == [1, 2, 3]
    assert runs.window(upto=1.0).signals["value"].tolist() == [1, 3]
    assert runs.window(start=2.0).signals["value"].tolist() == [2]
    assert runs.select(["b"]).signals["value"].tolist() == [3]


def test_signals_elsewhere_are_left_out_and_do_not_change_the_hash() -> None:
    assert by_hand(compute=[7.0, 2.0, 1.0]).signals["value"].tolist() == [1, 2]
    assert by_hand(run=["c", "a", "a"]).signals["value"].tolist() == [1, 2]
    assert by_hand().hash() == by_hand(value=[6, 5, 4]).hash()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"signal": "loss"}, "unknown signal"), ({"value": [1, np.nan, 2]}, "signal is not a finite number")],
)
def test_signals_that_are_none_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        by_hand(**changes)


def test_signals_are_saved_and_files_without_them_load(tmp_path: Path) -> None:
    runs = by_hand(value=[0.1 + 0.2, 1e-300, 2 / 3])
    runs.save(tmp_path / "runs.parquet")
    pd.testing.assert_frame_equal(Runs.load(tmp_path / "runs.parquet").signals, runs.signals)
    arrow = pq.read_table(tmp_path / "runs.parquet")
    meta = json.loads(arrow.schema.metadata[b"rlforecast"])
    del meta["signals"]
    pq.write_table(
        arrow.replace_schema_metadata(arrow.schema.metadata | {b"rlforecast": json.dumps(meta).encode()}),
        tmp_path / "old.parquet",
    )
    old = Runs.load(tmp_path / "old.parquet")
    assert old.signals.empty
    assert old.hash() == runs.hash()
