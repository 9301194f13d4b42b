import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from forecast.runs.readers import SOURCE_ROW, TIME, read_log


@pytest.fixture
def read(tmp_path):
    def _read(content, name="train.log"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        (log,) = read_log(path)
        assert log.receipt.rows_kept == len(log.records)
        return log

    return _read


def test_json_lines_are_recognised_whatever_the_name(read):
    log = read('{"step": 1, "eval": {"acc": 0.5}}\n\n{"step": 2, "eval": {"acc": null}, "loss": NaN}\n')
    assert log.format == "jsonl"
    assert log.records["step"].tolist() == [1, 2]
    assert log.records["eval/acc"].tolist()[0] == 0.5
    assert log.records[["eval/acc", "loss"]].iloc[1].isna().all()
    assert log.records[SOURCE_ROW].tolist() == [1, 3]


def test_every_line_that_is_no_record_has_its_reason(read):
    log = read(
        '{"type": "config", "args": {"lr": 1e-5}}\n{"step": 1, "acc": "0.5"}\n[1, 2]\nWARNING: slow\n'
        '{"step": 2, "acc": "0.6"}\n{"step": 3, "acc": "0.7"}\n{"train_runtime": 12.0}\n{"step": 4, "ac'
    )
    assert log.records["acc"].tolist() == [0.5, 0.6, 0.7]
    assert log.receipt.dropped == {
        'configuration line ({"type": "config"})': 1,
        "row is not a JSON object": 1,
        "final summary (train_runtime), not a training record": 1,
        "last line is cut off": 1,
        "line is not JSON": 1,
    }
    assert log.receipt.rows_read == 8


def test_lists_stay_as_logged_and_unix_times_are_found(read):
    log = read(
        '{"rewards": [0, 1], "timestamp": 1765178421.5}\n{"rewards": [1], "timestamp": 1765178422.5}\n'
    )
    assert log.records["rewards"].tolist() == [[0, 1], [1]]
    assert log.records[TIME].tolist() == [1765178421.5, 1765178422.5]


def test_list_of_records_and_single_record(read):
    assert read([{"step": 1, "acc": 0.5}, {"step": 2, "acc": 0.6}]).records["acc"].tolist() == [0.5, 0.6]
    assert read('{"step": 0, "reward/mean": 0.25}\n').records["reward/mean"].tolist() == [0.25]


def test_objects_written_one_after_the_other_over_several_lines(read):
    text = "\n".join(json.dumps({"step": k, "acc": k / 10}, indent=2) for k in range(3))
    assert read(text).records["acc"].tolist() == [0.0, 0.1, 0.2]


def test_columns_of_equal_length(read):
    log = read({"step": [1, 2, 3], "acc": [0.1, None, 0.3]})
    assert log.records["step"].tolist() == [1, 2, 3]
    assert math.isnan(log.records["acc"].iloc[1])


def test_history_per_prompt(read):
    log = read({"1033": [0.0, 0.125], "324": [0.75, 1.0, 1.0]})
    assert log.records[["prompt", "visit", "value"]].values.tolist() == [
        [1033, 1, 0.0],
        [1033, 2, 0.125],
        [324, 1, 0.75],
        [324, 2, 1.0],
        [324, 3, 1.0],
    ]
    assert any("visited 2 to 3 times" in n for n in log.receipt.notes)


def test_metrics_of_different_lengths_are_not_taken_for_prompts(tmp_path):
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"loss": [1, 2, 3], "acc": [0.5]}))
    with pytest.raises(InputError, match="columns of different lengths, found loss 3, acc 1"):
        read_log(path)


def test_one_record_per_key(read):
    log = read({"step_100": {"acc": 0.5}, "step_200": {"acc": 0.6}})
    assert log.records[["key", "acc"]].values.tolist() == [["step_100", 0.5], ["step_200", 0.6]]


HISTORY = [
    {"loss": 0.1, "reward": 0.2, "learning_rate": 1e-6, "epoch": 0.1, "step": 5},
    {"eval_loss": 0.1, "eval_reward": 0.3, "epoch": 0.1, "step": 5},
    {"loss": 0.0, "reward": 0.4, "learning_rate": 1e-6, "epoch": 0.2, "step": 10},
    {"train_runtime": 4966.9, "train_loss": 0.02, "epoch": 0.2, "step": 10},
]


def test_log_history_with_and_without_its_trainer_state(read):
    bare = read(HISTORY, "step_logs.json")
    state = read({"global_step": 10, "max_steps": 40, "log_history": HISTORY}, "trainer_state.json")
    for log in (bare, state):
        assert (log.format, log.step) == ("trl", "step")
        assert log.records["step"].tolist() == [5, 5, 10]
        assert log.receipt.dropped == {"final summary (train_runtime), not a training record": 1}
        assert "1 of 3 records are evaluations (eval_...)" in log.receipt.notes
    assert "the run was saved at step 10 of 40" in state.receipt.notes


def test_tensorboard_download(read):
    log = read([[1.77e9, 1, 0.5], [1.77e9 + 5, 2, 0.75]])
    assert log.records["Value"].tolist() == [0.5, 0.75]
    assert log.records[TIME].diff().iloc[1] == 5


@pytest.mark.parametrize(
    "document",
    [
        {"learning_rate": 1e-6, "eval_every": 5, "num_iterations": 60, "max_steps": 100, "warmup_steps": 3},
        {"model": {"layers": 2, "width": 8}, "data": {"batch": 4}},
        {"shots": [0, 1], "models": [{"model": "m", "benchmarks": {"gsm8k": {"0": {"accuracy": 1.0}}}}]},
        [1, 2, 3],
        [],
        {},
        "text",
    ],
)
def test_configurations_and_reports_hold_no_records(tmp_path, document):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(document, indent=2))
    with pytest.raises(InputError) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_off_document_is_an_error(tmp_path):
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": HISTORY}, indent=2)[:-60])
    with pytest.raises(InputError, match="JSON document is not valid"):
        read_log(path)


VALUES = st.one_of(st.none(), st.floats(), st.integers(-(2**53), 2**53))
RECORDS = st.lists(st.dictionaries(st.sampled_from(["acc", "kl", "a/b"]), VALUES), min_size=2, max_size=40)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(records=RECORDS)
def test_any_records_survive_the_round_trip(tmp_path, records):
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": k} | r) + "\n" for k, r in enumerate(records)))
    (log,) = read_log(path)
    assert log.receipt.rows_read == log.receipt.rows_kept == len(records)
    for k, record in enumerate(records):
        for name, value in record.items():
            found = log.records[name].iloc[k]
            assert (found != found) if value is None or value != value else found == value
