"""Real logs of strangers, each with its oddity: is it read as the run it was, or refused with reason?"""

from pathlib import Path

import pytest

from forecast.errors import InputError
from forecast.runs.inspection import inspect_paths
from forecast.runs.read import read_runs, read_spec
from forecast.runs.spec import make_spec
from forecast.runs.starting import starting_spec

LOGS = Path(__file__).parents[3] / "shared" / "logs"
pytestmark = pytest.mark.skipif(
    not LOGS.is_dir(), reason="the collection of real logs is not on this machine"
)
HOURS = {"times": 1 / 3600, "compute_unit": "gpu_hours"}


def read(*parts, **options):
    return accounted(read_runs(LOGS.joinpath(*parts), **options))


def accounted(runs):
    kept = sum(r.rows_kept for r in runs.receipts)
    assert kept == runs.table["source"].notna().sum() + len(runs.floors)
    return runs


def dropped(runs, reason):
    return sum(n for r in runs.receipts for why, n in r.dropped.items() if reason in why)


def notes(runs):
    return " | ".join(note for r in runs.receipts for note in r.notes)


def one(runs, name=None):
    rows = runs.overall()
    rows = rows[rows["run"] == (name or runs.names[0])]
    return rows["value"].round(3).tolist(), rows["compute"].tolist()


def test_curriculum_phases_baseline_as_floor_and_blank_cells():
    folder = "curriculum-phases-csv-jsonl-console"
    runs = read(folder, "metrics.jsonl", metric="final_answer_accuracy", trials="n_scored")
    assert one(runs)[1] == [5, 10, 15, 20, 25, 30]
    assert (round(runs.floors[runs.names[0]].value, 4), runs.floors[runs.names[0]].trials) == (0.7867, 150)
    table = read(folder, "metrics.csv", metric="eval_final_ans")
    assert one(table)[0] == one(runs)[0]
    assert not table.floors
    assert dropped(table, "no value of 'eval_final_ans'") == 24
    with pytest.raises(InputError, match="several columns may be the metric"):
        read(folder, "metrics.jsonl")
    with pytest.raises(InputError, match="'iter_time_s' is not cumulative"):
        read(folder, "metrics.jsonl", metric="final_answer_accuracy", compute="iter_time_s", **HOURS)


def test_grokking_two_families_of_columns():
    runs = read("grokking-late-jump-and-collapse", metric="test_accuracy")
    assert len(runs.names) == 6
    assert len(runs.table) == 6000
    assert all(0.008 < floor.value < 0.01 for floor in runs.floors.values())
    with pytest.raises(InputError, match="no column 'elapsed_seconds'"):
        read("grokking-late-jump-and-collapse", metric="test_accuracy", compute="elapsed_seconds", **HOURS)
    timed = "seedstudy_adamw_stable_seed_0.csv"
    runs = read(
        "grokking-late-jump-and-collapse", timed, metric="test_accuracy", compute="elapsed_seconds", **HOURS
    )
    assert runs.table["compute"].max() == pytest.approx(5.05, abs=0.01)


def test_crash_resume_chain_over_four_files():
    run = {"path": [str(LOGS / "grpo-crash-timeout-resume-chain" / "*.log")], "name": "q"}
    metric = {"column": "reward", "kind": "reward", "split": "train"}
    runs = accounted(read_spec(make_spec({"metric": metric, "run": [run]})))
    table = runs.table
    assert table["step"].tolist() == list(range(1, 210))
    origin = table["source"].map(lambda s: Path(s).name.split(".")[1])
    ends = table["step"].groupby(origin, sort=False).agg(["min", "max"])
    assert ends.to_dict("index") == {
        "crash1": {"min": 1, "max": 16},
        "crash2": {"min": 17, "max": 48},
        "timeout_step208": {"min": 49, "max": 209},
    }
    assert "ordered by the time" in notes(runs)
    assert "5 attempts" in notes(runs)
    assert dropped(runs, "superseded") == 90
    separate = read_spec(make_spec({"metric": metric, "run": [run | {"attempts": "separate"}]}))
    assert accounted(separate).table.groupby("run").size().tolist() == [20, 43, 28, 47, 161]


def test_interleaved_launches_in_one_file():
    runs = read("mixed-runs-one-jsonl", "grpo_log.jsonl", metric="mean_reward", split="train")
    values, steps = one(runs)
    assert steps == list(range(1, 202))
    assert values[0] == 1.0  # of the last launch; the dead ones before it logged 0
    assert dropped(runs, "superseded") == 9
    assert "6 attempts" in notes(runs)
    options = {"metric": "mean_reward", "split": "train", "compute": "wall_time"}
    timed = read("mixed-runs-one-jsonl", "grpo_log.jsonl", **options, **HOURS)
    assert timed.table["compute"].is_monotonic_increasing


def test_step_inside_a_name_and_problems_as_classes():
    folder = "oi-ds15b-aime-solve-rate"
    with pytest.raises(InputError, match="differ in 'dataset_index'"):
        read(folder)
    runs = read(folder, stratum="dataset_index", prompts=1, samples=32)
    overall = runs.overall()
    assert len(overall) == 23
    assert overall["compute"].max() == 4400
    assert (round(overall["value"].iloc[0], 3), round(overall["value"].iloc[-1], 3)) == (0.265, 0.428)
    assert overall["trials"].unique().tolist() == [1920]
    assert "not in order of step; sorted" in notes(runs)


def test_stitched_history_with_each_evaluation_twice():
    column = "eval/objective/verifiable_correct_rate"
    path = ("oi-olmo32b-stitched", "rl0_32b_stitched_wandb_history.csv")
    runs = read(*path, metric=column, compute="source/runtime", **HOURS)
    assert runs.table["step"].tolist() == list(range(100, 1001, 100))
    assert runs.table["value"].iloc[5] == pytest.approx(11 / 30, abs=1e-6)
    assert dropped(runs, "logged again later") == 8
    assert "starts anew at step 100, 200" in notes(runs)
    assert runs.table["compute"].is_monotonic_increasing
    with pytest.raises(InputError, match="outside the declared scale"):
        read(*path, metric="eval/scores")


def test_histories_per_prompt():
    options = {"metric": "value", "compute": "visit", "compute_unit": "steps", "split": "train"}
    with pytest.raises(InputError, match="differ in 'prompt'"):
        read("one-shot-rlvr-acc-history", **options)
    runs = read("one-shot-rlvr-acc-history", **options, stratum="prompt")
    values, visits = one(runs)
    assert visits == list(range(1, 45))
    assert (values[0], values[-1]) == (0.335, 0.47)
    assert runs.table["stratum"].nunique() == 1209


def test_wide_export_with_blanks():
    runs = read("qwen3-gsm8k-5-sizes", "export.csv", wide=True)
    assert runs.table.groupby("run").size().to_dict() == {
        "0.6b": 13,
        "1.7b": 13,
        "14b": 54,
        "4b": 13,
        "8b": 13,
    }
    assert len(runs.floors) == 5
    with pytest.raises(InputError):
        read("qwen3-gsm8k-5-sizes", "export.csv")


def test_a_run_that_never_started():
    folder, column = "tfevents-countdown-stuck-at-zero", "train/rewards/equation_reward_func"
    with pytest.raises(InputError, match="on training prompts"):
        read(folder, metric=column)
    runs = read(folder, metric=column, split="train")
    assert one(runs) == ([0.0] * 39, list(range(1, 40)))


def test_launches_in_one_tensorboard_folder_stay_apart():
    options = {"metric": "train/reward", "kind": "reward", "split": "train"}
    with pytest.raises(InputError, match="outside the declared scale"):
        read("tfevents-wordle-grpo-one-logdir", **options)
    runs = read("tfevents-wordle-grpo-one-logdir", **options, scale=(-3, 3))
    assert len(runs.names) == 5
    assert runs.compute.unit == "tokens"
    assert runs.table.groupby("run").size().max() == 636


def test_a_dead_launch_followed_by_relaunches_is_no_late_jump():
    folder = "tinker-reward-hacking"
    path = "rl-leetcode__Qwen__Qwen3-4B-Instruct-2507__Easy__metrics.jsonl"
    runs = read(folder, path, metric="reward/mean", split="train")
    assert one(runs) == ([1.0] * 4, [1, 2, 3, 4])
    assert runs.floors[runs.names[0]].value == 1.0
    assert dropped(runs, "superseded") == 11
    assert "step 0-9 (left out), 0-0 (left out), 0-4 (kept)" in notes(runs)
    options = {"metric": "reward/mean", "split": "train", "compute": "time/total", "cumulate": True}
    whole = read(folder, **options, **HOURS)
    assert len(whole.names) == 11
    with pytest.raises(InputError, match="'reward/mean' looks like a value on training prompts"):
        read(folder, metric="reward/mean")


def test_many_runs_in_a_table_and_repeated_rows():
    folder = "tinyzero-cognitive-countdown"
    with pytest.raises(InputError, match="differ in 'condition'"):
        read(folder, "llama_results.csv")
    llama = read(folder, "llama_results.csv", run="condition")
    assert len(llama.names) == 12
    assert "run base_70b: no evaluation after training began" in notes(llama)
    assert one(llama, "base_ppo")[0][0] == 0.0
    qwen = read(folder, "qwen_results.csv", run="condition")
    assert len(qwen.names) == 10
    assert dropped(qwen, "exact copy") == 24
    both = accounted(
        read_runs([LOGS / folder / f for f in ("llama_results.csv", "qwen_results.csv")], run="condition")
    )
    assert len(both.names) == 22
    for name in ("results.csv", "claude_accs.csv"):
        with pytest.raises(InputError, match=r"no column is clearly|no compute column"):
            read(folder, name, run="condition")


def test_console_dicts_without_a_step():
    runs = read("trl-console-rho-sweep", metric="reward", split="train")
    assert len(runs.names) == 8
    assert runs.compute.unit == "tokens"
    assert set(runs.table.groupby("run").size()) == {40}
    path = ("trl-console-rho-sweep", "exp1a__rho0.10_seed43.log")
    options = {"metric": "reward", "split": "train", "compute": "#", "times": 5, "compute_unit": "steps"}
    values, steps = one(read(*path, **options))
    assert steps == list(range(5, 201, 5))
    assert values[-1] == 0.0


def test_bare_log_history():
    runs = read("trl-log-history-qwen35-sweep", metric="reward", split="train")
    assert len(runs.names) == 6
    assert set(runs.table.groupby("run").size()) == {40}
    with pytest.raises(InputError, match="training prompts"):
        read("trl-log-history-qwen35-sweep", metric="reward")


def test_nested_checkpoints_count_once_by_folder_and_by_glob():
    folder = "trl-trainer-state-nested-checkpoints"
    metric = {"column": "eval_reward", "kind": "reward", "scale": (-3.0, 3.0)}
    runs = read(folder, metric="eval_reward", kind="reward", scale=(-3, 3))
    assert one(runs)[0][-1] == -0.17
    assert runs.table["step"].tolist() == list(range(20, 161, 20))
    spec = make_spec({"metric": metric, "run": [{"path": [str(LOGS / folder / "*" / "trainer_state.json")]}]})
    by_glob = accounted(read_spec(spec))
    assert one(by_glob) == one(runs)
    assert dropped(by_glob, "every row is repeated") == 84 + 126


def test_short_runs_and_an_evaluation_table_with_unknown_steps():
    folder = "trl-trainer-state-short-plus-eval-table"
    runs = read(folder, metric="rewards/r1_correctness", split="train")
    assert len(runs.names) == 3
    assert dropped(runs, "log without column") == 141
    with pytest.raises(InputError, match="column step: not a number, found 'unknown'"):
        read(folder, "results__training__master.csv", metric="pass_at_1")


def test_verifier_runs_with_null_rewards_and_a_short_seed():
    runs = read("verifier-reward-multi-seed", metric="accuracy", trials="n_eval_actions")
    assert len(runs.names) == 12
    assert runs.table["trials"].unique().tolist() == [120, 80]
    assert {name for name in runs.names if len(one(runs, name)[0]) == 1} == {
        "training_log_qwen05b_exactpg_seed8"
    }
    options = {"metric": "accuracy", "compute": "cumulative_examples", "compute_unit": "rollouts"}
    assert read("verifier-reward-multi-seed", **options).compute.unit == "rollouts"


def test_verl_console_with_validation_without_a_step():
    column = "val/test_score/openai/gsm8k"
    timing = ["timing/gen", "timing/update_actor"]
    options = {"compute": timing, "cumulate": True, "times": 8 / 3600, "compute_unit": "gpu_hours"}
    runs = read("verl-ppo-gsm8k-baselines", metric=column, **options)
    assert runs.floors[runs.names[0]].value < 0.001
    assert len(runs.table) == 44
    assert runs.table["value"].max() > 0.54
    assert runs.table["compute"].iloc[0] == pytest.approx(0.875, abs=0.01)
    assert read("verl-ppo-gsm8k-baselines").metric.name == column
    with pytest.raises(InputError, match="training prompts"):
        read("verl-ppo-gsm8k-baselines", metric="critic/score/mean")


def test_chart_exports():
    folder = "wandb-ui-export-min-max"
    with pytest.raises(InputError, match="no column is clearly"):
        read(folder, "wandb_export.csv")
    loss = read(folder, "wandb_export.csv", metric="train/loss", kind="reward", split="train", scale=(30, 0))
    assert len(loss.names) == 8
    grouped = ("wandb_export_grouped_custom_x.csv",)
    options = {"metric": "generation", "kind": "reward", "scale": (0, 10000)}
    with pytest.raises(InputError, match="no compute column and no step column"):
        read(folder, *grouped, **options)
    runs = read(folder, *grouped, **options, compute="evaluations", compute_unit="steps")
    assert len(runs.names) == 3
    assert dropped(runs, "superseded") == 0


FOLDERS = sorted(p.name for p in LOGS.iterdir()) if LOGS.is_dir() else []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_can_be_inspected_and_its_starting_spec_read(folder, tmp_path):
    inspection = inspect_paths(LOGS / folder)
    assert inspection.sources
    if folder == "wandb-ui-export-min-max":  # losses and generation counts: nothing there is an outcome
        with pytest.raises(InputError, match="no starting spec"):
            starting_spec(inspection)
        return
    (tmp_path / "runs.toml").write_text(starting_spec(inspection, tmp_path))
    accounted(read_runs(tmp_path / "runs.toml"))
