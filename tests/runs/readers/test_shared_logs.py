"""Public logs of many kinds, kept beside the repository: what each is known to hold, and its trap."""

from pathlib import Path

import numpy as np
import pytest

from forecast.runs.readers import LAUNCH, TIME, melt_wide, read_log

LOGS = Path(__file__).resolve().parents[4] / "shared" / "logs"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason=f"the public logs are not at {LOGS}")


def read(folder):
    logs = read_log(LOGS / folder)
    for log in logs:
        assert log.receipt.rows_kept == len(log.records) > 0
    assert len({log.name for log in logs}) == len(logs)
    notes = " ".join(logs[0].receipt.notes)
    assert "ORIGIN.txt" in notes  # prose is skipped, and said to be
    return {log.name: log for log in logs}, notes


def test_every_folder_is_covered_here():
    source = Path(__file__).read_text()
    assert [d.name for d in LOGS.iterdir() if d.is_dir() and f'"{d.name}"' not in source] == []


def test_one_run_in_three_formats():
    logs, notes = read("curriculum-phases-csv-jsonl-console")
    assert {name: (log.format, len(log.records)) for name, log in logs.items()} == {
        "console_output.filtered.log": ("console", 37),
        "metrics.csv": ("csv", 30),
        "metrics.jsonl": ("jsonl", 31),
    }
    assert "config.json" in notes
    text, table, lines = (log.records for log in logs.values())
    assert lines["iteration"].tolist() == list(range(31))
    assert table["eval_combined"].notna().sum() == 6
    # The console rounds to whole promille and shows percent.
    train = text[text["reward mean"].notna()]
    assert np.allclose(train["reward mean"], table["mean_reward"], atol=5.1e-4)
    assert np.allclose(train["gt_match (percent)"], 100 * table["gt_match_rate"], atol=0.051)
    final = "final-answer accuracy (percent)"
    evals = text[text[final].notna()]
    assert evals["step"].tolist() == [0, 5, 10, 15, 20, 25, 30]
    assert np.allclose(evals[final], 100 * lines["final_answer_accuracy"].dropna(), atol=0.051)
    assert np.allclose(text[TIME].diff()[1:].clip(upper=0), 0)


def test_late_jumps():
    logs, _ = read("grokking-late-jump-and-collapse")
    assert len(logs) == 6
    assert {len(log.records) for log in logs.values()} == {1001}
    assert {"elapsed_seconds" in log.records for log in logs.values()} == {True, False}


def test_crashes_and_resumes():
    logs, _ = read("grpo-crash-timeout-resume-chain")
    steps = {name.rpartition(".")[2]: log.records["step"] for name, log in logs.items()}
    assert steps["preresume"].tolist() == [*range(1, 21), *range(1, 44)]
    assert steps["crash1"].tolist() == list(range(1, 29))
    assert steps["crash2"].tolist() == list(range(17, 64))
    assert steps["timeout_step208"].tolist() == list(range(49, 210))
    starts = [log.records[TIME].iloc[0] for log in logs.values()]
    assert sorted(starts) == [starts[2], starts[0], starts[1], starts[3]]


def test_launches_interleaved_in_one_file():
    logs, _ = read("mixed-runs-one-jsonl")
    log = logs["grpo"]
    assert len(log.records) == 210
    assert log.records["step"].tolist()[:8] == [1, 1, 2, 2, 1, 3, 1, 1]
    assert log.records["rewards"].map(len).isin([2, 4]).all()
    assert log.records["skipped"].notna().any()
    assert logs["grpo_v3_run"].records["step"].tolist()[:3] == [1, 2, 3]


def test_step_inside_a_name():
    logs, _ = read("oi-ds15b-aime-solve-rate")
    (log,) = logs.values()
    assert len(log.records) == 1380
    assert log.records["name"].str.extract(r"_step_(\d+)$")[0].nunique() == 23
    assert log.records["solve_rate"].between(0, 1).all()


def test_stitched_history():
    logs, _ = read("oi-olmo32b-stitched")
    log = logs["rl0_32b_stitched"]
    assert len(log.records) == 1097
    assert log.records["eval/objective/verifiable_correct_rate"].notna().sum() == 18
    assert log.records["stitched_step"].is_monotonic_increasing
    assert log.records[TIME].equals(log.records["source/timestamp"])
    assert len(logs["rl0_32b_verifiable_combined"].records) == 10


def test_history_of_prompts():
    logs, notes = read("one-shot-rlvr-acc-history")
    (log,) = logs.values()
    assert log.records["prompt"].nunique() == 1209
    visits = log.records.groupby("prompt")["visit"].max()
    assert (visits.min(), visits.max()) == (44, 57)
    assert (log.records["value"] * 8 % 1 == 0).all()
    assert "44 to 57 times" in notes


def test_wide_table_of_sizes():
    logs, notes = read("qwen3-gsm8k-5-sizes")
    assert set(logs) == {"export", "val_losses"}  # the evaluation reports hold no records
    assert "may be one run each" in notes
    assert "eval_0.6b.json" in notes
    sizes = ["0.6b", "14b", "8b", "4b", "1.7b"]
    long = melt_wide(logs["export"], sizes, x="Step")
    assert long.receipt.rows_kept == len(long.records)
    assert long.records.groupby("run").size()["14b"] > 3 * long.records.groupby("run").size()["0.6b"]


def test_events_of_a_run_that_never_started():
    logs, _ = read("tfevents-countdown-stuck-at-zero")
    (log,) = logs.values()
    assert log.records["step"].tolist() == list(range(1, 40))
    assert (log.records["train/rewards/equation_reward_func"] == 0).all()
    assert log.records[TIME].iloc[-1] - log.records[TIME].iloc[0] == pytest.approx(32153, abs=1)


def test_many_launches_in_one_event_folder():
    logs, notes = read("tfevents-wordle-grpo-one-logdir")
    files = list((LOGS / "tfevents-wordle-grpo-one-logdir" / "logs").glob("*tfevents*"))
    assert len(logs) == len(files) - 1  # one has no scalars
    assert "events.out.tfevents.1767712757" in notes
    for log in logs.values():
        assert log.records["step"].iloc[0] == 1
        assert LAUNCH not in log.records
    assert logs["tfevents-wordle-grpo-one-logdir/1767724543"].records["step"].iloc[-1] == 636


def test_restarts_appended_to_one_file():
    logs, _ = read("tinker-reward-hacking")
    log = logs["rl-leetcode__Qwen__Qwen3-4B-Instruct-2507__Easy"]
    assert log.records["step"].tolist() == [*range(10), 0, *range(5)]
    assert log.records[TIME].is_monotonic_increasing
    assert len(logs["rl-leetcode__llama-3.2-3b__Easy-gonly"].records) == 1


def test_many_conditions_in_one_table():
    logs, _ = read("tinyzero-cognitive-countdown")
    assert logs["llama"].records["condition"].nunique() == 13
    qwen = logs["qwen"].records
    assert qwen.duplicated([c for c in qwen.columns if not c.startswith("__")]).sum() == 24


def test_dictionaries_without_a_step():
    logs, notes = read("trl-console-rho-sweep")
    assert len(logs) == 8
    for name, log in logs.items():
        assert name.startswith("rho")  # from the header, not from the file's name
        assert log.records["record"].tolist() == list(range(1, 41))
        assert log.receipt.dropped["final summary (train_runtime), not a training record"] == 1
        assert log.records["reward"].between(0, 1).all()
    assert "evals_final.csv" in notes


def test_bare_log_histories():
    logs, _ = read("trl-log-history-qwen35-sweep")
    assert {(log.format, len(log.records), log.step) for log in logs.values()} == {("trl", 40, "step")}
    assert all(log.records["step"].tolist() == list(range(5, 201, 5)) for log in logs.values())


def test_nested_checkpoints():
    logs, _ = read("trl-trainer-state-nested-checkpoints")
    (log,) = logs.values()
    train = log.records[log.records["reward"].notna()]
    assert train["step"].tolist() == list(range(1, 161))
    assert log.records["eval_reward"].notna().sum() == 8
    assert log.receipt.dropped == {"repeats an earlier checkpoint's log_history": 210}


def test_short_states_and_an_evaluation_table():
    logs, _ = read("trl-trainer-state-short-plus-eval-table")
    states = [log for log in logs.values() if log.format == "trl"]
    assert [len(log.records) for log in states] == [10, 10, 10]
    assert all("the run was saved at step 50 of 100" in log.receipt.notes for log in states)
    assert logs["results__master"].records["maj_at_8"].isna().any()


def test_configuration_lines():
    logs, _ = read("verifier-reward-multi-seed")
    assert len(logs) == 12
    for log in logs.values():
        assert log.receipt.dropped == {'configuration line ({"type": "config"})': 1}
        assert np.isnan(log.records["mean_reward"].iloc[0])
        assert log.records["step"].iloc[0] == 0
    assert len(logs["training_log_qwen05b_exactpg_seed8"].records) == 2


def test_verl_console():
    logs, notes = read("verl-ppo-gsm8k-baselines")
    (log,) = logs.values()
    steps = log.records["step"].tolist()
    assert steps == [0, *range(435), 434]
    scores = log.records.set_index("step")["val/test_score/openai/gsm8k"].dropna()
    assert scores.index.tolist()[:3] == [0, 9, 19]
    assert (scores.iloc[0], scores.iloc[-1]) == pytest.approx((0.00076, 0.5686), abs=1e-4)
    assert "critic/lr(1e-4)" in log.records
    assert "placed at step 0" in notes


def test_wandb_exports():
    logs, notes = read("wandb-ui-export-min-max")
    plain, grouped = logs.values()
    assert (plain.step, plain.run, len(plain.receipt.runs)) == ("Step", "run", 8)
    lengths = plain.records.groupby("run").size()
    assert (lengths.min(), lengths.max()) == (51, 386)
    assert grouped.receipt.runs == ["algo: UCEA", "algo: MultiEA", "algo: EA"]
    assert {"evaluations", "_step", "generation"} <= set(grouped.records.columns)
    assert "__MIN/__MAX columns left out" in notes
