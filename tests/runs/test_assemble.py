"""Are records taken for what they are, and is every one of them in the table, a floor or a receipt?"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from forecast.runs.assemble import assemble
from forecast.runs.readers import SOURCE_ROW, TIME, RawLog
from forecast.runs.receipt import Receipt
from forecast.runs.spec import make_spec

HELD_OUT = {"column": "val/acc"}


def log(records, name="r", fmt="jsonl", **more):
    frame = pd.DataFrame(records)
    frame[SOURCE_ROW] = np.arange(1, len(frame) + 1)
    source = f"{name}.{fmt}"
    return RawLog(
        Path(source), fmt, name, frame, Receipt(source, fmt, rows_read=len(frame), runs=[name]), **more
    )


def read(logs, metric=HELD_OUT, compute=None, **run):
    logs = logs if isinstance(logs, list) else [logs]
    spec = make_spec({"metric": metric, "compute": compute or {}, "run": [{"path": ["x"]} | run]})
    runs = assemble([(spec.run[0], logs)], spec)
    kept = sum(r.rows_kept for r in runs.receipts)
    floors = 0 if "floor" in run else len(runs.floors)
    assert kept == runs.table["source"].notna().sum() + floors
    return runs


def dropped(runs):
    return {reason: n for receipt in runs.receipts for reason, n in receipt.dropped.items()}


def notes(runs):
    return " | ".join(note for receipt in runs.receipts for note in receipt.notes)


STEPS = {"step": [0, 1, 2, 3], "val/acc": [0.1, np.nan, 0.3, 0.4], "loss": [3, 2, 1, 0.5]}


def test_the_first_evaluation_is_the_floor_and_training_rows_are_accounted_for():
    runs = read(log(STEPS), {"column": "val/acc", "prompts": 50, "samples_per_prompt": 4})
    assert runs.table["value"].tolist() == [0.3, 0.4]
    assert runs.table["compute"].tolist() == [2, 3]
    assert runs.table["trials"].tolist() == [200, 200]
    assert (runs.floors["r"].value, runs.floors["r"].trials) == (0.1, 200)
    assert dropped(runs) == {"no value of 'val/acc'": 1}
    assert runs.compute.unit == "steps"
    assert runs.table["source_row"].tolist() == [3, 4]


def test_compute_of_rows_without_evaluation_counts():
    records = STEPS | {"time/step": [np.nan, 10.0, 20.0, 30.0]}
    runs = read(
        log(records), compute={"column": "time/step", "cumulate": True, "times": 0.1, "unit": "gpu_hours"}
    )
    assert runs.table["compute"].tolist() == [3, 6]
    assert runs.compute.derivation == "sum of time/step over the run x 0.1"
    assert runs.floors["r"].value == 0.1


def test_a_dead_launch_is_never_a_jump():
    records = {
        "step": [0, 1, 2, 3, 0, 0, 1],
        "val/acc": [0, 0, 0, 0, 0.97, 1.0, 1.0],
        "t": [1, 2, 3, 4, 5, 6, 7],
    }
    runs = read(log(records))
    assert runs.floors["r"].value == 1.0
    assert runs.table["value"].tolist() == [1.0]
    assert dropped(runs) == {"superseded by a later attempt": 5}
    assert "3 attempts" in notes(runs)


def test_a_relaunch_without_an_evaluation_does_not_wipe_out_what_was_measured():
    records = {"step": [1, 2, 3, 1], "val/acc": [0.1, 0.2, 0.3, np.nan], "loss": [3, 2, 1, 3]}
    runs = read(log(records))
    assert runs.table["value"].tolist() == [0.1, 0.2, 0.3]
    assert dropped(runs) == {"of a later attempt without an evaluation": 1}


def test_attempts_as_runs_of_their_own():
    records = {"step": [1, 2, 3, 2, 3], "val/acc": [0.1, 0.2, 0.3, 0.25, 0.35]}
    runs = read(log(records), attempts="separate")
    assert runs.names == ["r#1", "r#2"]
    assert runs.receipts[0].runs == ["r#1", "r#2"]


def test_superseded_compute_is_not_paid_for_twice():
    records = {"step": [1, 2, 3, 2, 3], "val/acc": [0.1, 0.2, 0.3, 0.25, 0.35], "s": [10, 11, 10, 12, 10]}
    runs = read(log(records), compute={"column": "s", "cumulate": True, "unit": "gpu_hours"})
    assert runs.table["compute"].tolist() == [10, 22, 32]
    assert runs.table["value"].tolist() == [0.1, 0.25, 0.35]


@pytest.mark.parametrize("timed", [True, False])
def test_files_of_one_run_are_ordered_by_time_where_all_carry_it(timed):
    late = log({"step": [3, 4], "val/acc": [0.35, 0.4]} | ({TIME: [500, 600]} if timed else {}), "a")
    early = log(
        {"step": [1, 2, 3], "val/acc": [0.1, 0.2, 0.3]} | ({TIME: [100, 200, 300]} if timed else {}), "b"
    )
    runs = read([late, early], name="whole")
    assert runs.names == ["whole"]
    if timed:
        assert runs.table["value"].tolist() == [0.1, 0.2, 0.35, 0.4]
        assert "by the time of their first record: b.jsonl, a.jsonl" in notes(runs)
    else:
        assert runs.table["value"].tolist() == [0.1, 0.2, 0.3]
        assert "as listed" in notes(runs)


def test_a_log_that_another_one_repeats_is_left_out():
    long = {"step": [1, 2, 3, 4], "val/acc": [0.111, 0.222, 0.333, 0.444]}
    short = {key: values[:3] for key, values in long.items()}
    runs = read([log(short, "checkpoint-3"), log(long, "checkpoint-4")])
    assert runs.names == ["checkpoint-4"]
    assert dropped(runs) == {"every row is repeated in checkpoint-4.jsonl": 3}


def test_two_dead_seeds_are_no_copies_of_each_other():
    dead = {"step": [1, 2, 3], "val/acc": [0.0, 0.0, 0.0]}
    assert read([log(dead, "s0"), log(dead, "s1")]).names == ["s0", "s1"]


def test_rows_of_several_runs_are_not_taken_for_restarts():
    table = {"arm": list("aaabbb"), "step": [1, 2, 3] * 2, "val/acc": [0.1, 0.2, 0.3, 0.15, 0.25, 0.35]}
    with pytest.raises(InputError, match=r"differ in 'arm'.*--run arm.*--where arm=VALUE.*--stratum arm"):
        read(log(table, fmt="csv"))
    runs = read(log(table, fmt="csv"), split_by=["arm"], recipe={"column": "arm"})
    assert runs.recipes == {"a": "a", "b": "b"}
    assert read(log(table, fmt="csv"), where=["arm=b"]).table["value"].tolist() == [0.15, 0.25, 0.35]


def test_runs_of_one_table_on_a_compute_axis_of_their_own_are_not_sorted_into_one():
    table = {"arm": list("aaabbb"), "gpu_hours": [1, 2, 3, 1.5, 2.5, 3.5], "val/acc": [0.1] * 6}
    with pytest.raises(InputError, match=r"differ in 'arm'"):
        read(log(table, fmt="csv"))


def test_a_table_out_of_order_is_sorted_and_said():
    table = {"step": [3, 1, 2], "val/acc": [0.3, 0.1, 0.2]}
    runs = read(log(table, fmt="csv"))
    assert runs.table["value"].tolist() == [0.1, 0.2, 0.3]
    assert "not in order of step; sorted" in notes(runs)


def test_repeated_rows_of_a_table_are_dropped_as_copies():
    table = {"step": [1, 2, 3] * 2, "val/acc": [0.1, 0.2, 0.3] * 2}
    runs = read(log(table, fmt="csv"))
    assert dropped(runs) == {"exact copy of rows logged elsewhere": 3}


def test_the_same_checkpoint_evaluated_once_but_logged_twice():
    records = {
        "step": [100, 110, 200, 209],
        "val/acc": [0.37, 0.36666666, 0.4, 0.5],
        "eval/model_step": [99, 99, 199, 199],
    }
    runs = read(log(records))
    assert runs.table["step"].tolist() == [100, 200, 209]
    assert runs.table["value"].tolist() == [0.36666666, 0.4, 0.5]
    assert "logged again later" in notes(runs)


def test_prompt_classes_and_their_mean_by_trials():
    records = {
        "step": [1, 1, 2, 2],
        "level": ["easy", "hard"] * 2,
        "val/acc": [0.8, 0.0, 1.0, 0.2],
        "n": [30, 10, 30, 10],
    }
    runs = read(log(records), {"column": "val/acc", "stratum": "level", "trials": "n"})
    overall = runs.overall()
    assert overall["value"].tolist() == pytest.approx([0.6, 0.8])
    assert overall["trials"].tolist() == [40, 40]
    assert set(runs.table["stratum"].dropna()) == {"easy", "hard"}
    assert "weighted by trials" in notes(runs)


def test_compute_logged_beside_the_whole_set_serves_the_classes():
    records = {
        "step": [1, 1, 2, 2],
        "level": [None, "hard"] * 2,
        "val/acc": [0.5, 0.1, 0.6, 0.2],
        "s": [10, np.nan, 12, np.nan],
    }
    compute = {"column": "s", "cumulate": True, "unit": "gpu_hours"}
    runs = read(log(records), {"column": "val/acc", "stratum": "level", "prompts": 64}, compute)
    assert runs.overall()["trials"].tolist() == [64, 64]
    assert runs.table["trials"].isna().sum() == 2  # of the classes, whose size nobody gave
    assert runs.table.groupby("value")["compute"].first().to_dict() == {0.1: 10, 0.2: 22, 0.5: 10, 0.6: 22}


@pytest.mark.parametrize(
    ("values", "metric", "message"),
    [
        ([30, 50, 70], {}, "looks like percent.*--scale 0,100"),
        ([0.3, 0.5, 0.7], {"scale": [0, 100]}, "looks like a fraction"),
        ([0.3, 0.5, 700], {}, "outside the declared scale.*row 3.*|row 3.*outside the declared scale"),
        (["0.3", "half", "0.7"], {}, "row 2, column val/acc: not a number, found 'half'"),
    ],
)
def test_values_that_are_not_what_was_declared(values, metric, message):
    with pytest.raises(InputError, match=message):
        read(log({"step": [1, 2, 3], "val/acc": values}), HELD_OUT | metric)


def test_numbers_logged_as_text_and_infinite_values():
    runs = read(log({"step": ["1", "2", "3"], "val/acc": ["0.1", "inf", "0.3"]}))
    assert runs.table["value"].tolist() == [0.1, 0.3]
    assert dropped(runs) == {"'val/acc' is infinite": 1}


@pytest.mark.parametrize(
    ("column", "accepted"),
    [
        ("rewards/accuracies", {"kind": "preference"}),
        ("reward", {"split": "train"}),
        ("critic/score/mean", {"kind": "reward"}),
    ],
)
def test_what_is_no_held_out_pass_rate_must_be_declared(column, accepted):
    one = log({"step": [1, 2], column: [0.1, 0.2]})
    with pytest.raises(InputError, match="declare"):
        read(one, {"column": column})
    runs = read(one, {"column": column} | accepted)
    assert runs.metric.caveat


def test_the_clear_metric_is_found_and_said_and_others_are_listed():
    runs = read(log(STEPS | {"train/reward": [1, 2, 3, 4]}), {})
    assert runs.metric.name == "val/acc"
    assert "'val/acc' taken" in notes(runs)
    with pytest.raises(InputError, match="several columns may be the metric, found val/acc, val/score"):
        read(log(STEPS | {"val/score": [0.1, 0.2, 0.3, 0.4]}), {})
    with pytest.raises(InputError, match=r"no column is clearly.*reward on training prompts"):
        read(log({"step": [1, 2], "reward": [0.1, 0.2]}), {})


def test_units_are_not_mixed():
    one, other = log(STEPS, "a"), log(STEPS | {"num_tokens": [1, 2, 3, 4]}, "b")
    with pytest.raises(InputError, match=r"different compute units.*a\.jsonl: step in steps"):
        read([one, other])
    with pytest.raises(InputError, match="compute units disagree"):
        read(log(STEPS | {"unit": ["tokens"] * 4}))


def test_two_evaluations_at_one_compute_are_an_error_with_the_row():
    records = {"step": [1, 2, 3, 4], "val/acc": [0.1, 0.2, 0.3, 0.4], "gpu_hours": [1.0, 2.0, 2.0, 3.0]}
    with pytest.raises(InputError, match="row 3, run r: two evaluations of one run at the same compute"):
        read(log(records))


def test_a_run_that_has_not_begun_is_left_out_and_said():
    done, new = log(STEPS, "done"), log({"step": [0], "val/acc": [0.2]}, "new")
    runs = read([done, new])
    assert runs.names == ["done"]
    assert dropped(runs)["of a run without an evaluation after training began"] == 1
    with pytest.raises(InputError, match="no evaluation of 'val/acc' is left"):
        read(new)


def test_labels_must_be_the_same_throughout_a_run():
    records = {"step": [1, 2], "val/acc": [0.1, 0.2], "seed": [0, 1]}
    with pytest.raises(InputError, match="run 'r' has several values of seed"):
        read(log(records), seed={"column": "seed"})
    assert read(log(records), seed=7).table["seed"].tolist() == [7, 7]


def test_the_declared_floor_replaces_the_logged_one():
    runs = read(log(STEPS), floor=0.05)
    assert runs.floors["r"].value == 0.05
    assert dropped(runs)["replaced by the declared floor"] == 1


def test_the_number_of_the_evaluation_as_axis():
    records = {"val/acc": [0.1, np.nan, 0.2, 0.2]}
    runs = read(log(records), compute={"column": "#", "times": 5, "unit": "steps"})
    assert runs.table["compute"].tolist() == [5, 10, 15]
    assert runs.compute.derivation == "number of the evaluation x 5"


def test_a_wide_table_with_blanks():
    one = log({"Step": [0, 4, 8], "0.6b": [0.1, np.nan, 0.3], "8b": [0.5, 0.6, 0.7]}, fmt="csv")
    runs = read(one, {"wide": True})
    assert runs.names == ["0.6b", "8b"]
    assert runs.floors["8b"].value == 0.5
    assert runs.table.groupby("run").size().to_dict() == {"0.6b": 1, "8b": 2}


def test_equal_names_in_two_logs_are_two_runs():
    table = {"arm": ["a", "a"], "step": [1, 2]}
    one, other = log(table | {"val/acc": [0.1, 0.2]}, "llama"), log(table | {"val/acc": [0.3, 0.4]}, "qwen")
    assert read([one, other], split_by=["arm"]).names == ["llama/a", "qwen/a"]


def test_a_named_run_is_not_made_of_the_runs_a_file_tells_apart():
    table = {"run": ["a", "a", "b", "b"], "step": [1, 2, 1, 2], "val/acc": [0.1, 0.2, 0.3, 0.4]}
    assert read(log(table, run="run"), name="sweep").names == ["sweep/a", "sweep/b"]


@settings(max_examples=60, deadline=None)
@example([(1, None), (1, 0.0), (3, None), (2, 0.0), (2, None)])
@given(
    st.lists(
        st.tuples(st.integers(0, 12), st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0]))),
        min_size=1,
        max_size=40,
    )
)
def test_any_order_of_steps_gives_a_growing_axis_with_every_row_accounted_for(rows):
    records = {"step": [s for s, _ in rows], "val/acc": [np.nan if v is None else v for _, v in rows]}
    try:
        runs = read(log(records))  # checks the receipts
    except InputError:
        evaluated = [s for s, v in rows if v is not None]
        assert not evaluated or 0 in evaluated
    else:
        assert (np.diff(runs.table["compute"]) > 0).all()
