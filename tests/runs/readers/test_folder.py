import json

import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.runs import table
from forecast.runs.readers import TIME, is_run_table, read_log


def history(upto):
    return [{"step": k, "loss": 1 / k, "reward": k / 100, "epoch": k / 50} for k in range(1, upto + 1)]


def state(folder, upto, extra=()):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(
        json.dumps({"global_step": upto, "log_history": [*history(upto), *extra]}, indent=1)
    )


def test_nested_checkpoints_are_one_run(tmp_path):
    state(tmp_path / "grpo_a" / "checkpoint-20", 20)
    state(tmp_path / "grpo_a" / "checkpoint-100", 30, extra=[{"train_runtime": 1.0}])
    state(tmp_path / "grpo_a" / "checkpoint-10", 10)
    (log,) = read_log(tmp_path)
    assert log.name == "grpo_a"
    assert log.records["step"].tolist() == list(range(1, 31))
    assert log.receipt.dropped["repeats an earlier checkpoint's log_history"] == 30
    assert log.receipt.rows_kept == 30
    assert log.receipt.rows_read == 61


def test_runs_that_only_begin_alike_stay_apart(tmp_path):
    state(tmp_path / "a" / "checkpoint-20", 20)
    state(
        tmp_path / "b" / "checkpoint-30", 19, extra=[{"step": 20, "loss": 9.0, "reward": 0.0, "epoch": 0.4}]
    )
    assert [log.name for log in read_log(tmp_path)] == ["a", "b"]


def test_a_folder_is_walked_in_order_and_says_what_it_skipped(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_text('{"step": 1, "acc": 0.5}\n{"step": 2, "acc": 0.6}\n')
    (tmp_path / "NOTES.txt").write_text("Two runs, see below.\nNothing to see.\n")
    (tmp_path / "config.json").write_text('{\n "lr": 1e-6,\n "steps": 100\n}')
    (tmp_path / "model.bin").write_bytes(b"\x00\x01\x02" * 100)
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / ".hidden.csv").write_text("step,acc\n1,2\n")
    first, second = read_log(tmp_path)
    assert (first.name, second.name) == ("a", "b")
    notes = " ".join(first.receipt.notes)
    for name in ("NOTES.txt", "config.json", "model.bin", "empty.csv"):
        assert name in notes
    assert ".hidden" not in notes


def test_names_are_distinct(tmp_path):
    for name in ("metrics.csv", "metrics.jsonl"):
        text = (
            "step,acc\n1,0.5\n2,0.6\n"
            if name.endswith("csv")
            else '{"step": 1, "acc": 1}\n{"step": 2, "acc": 1}\n'
        )
        (tmp_path / name).write_text(text)
    logs = read_log(tmp_path)
    assert [log.name for log in logs] == ["metrics.csv", "metrics.jsonl"]
    assert [log.receipt.runs for log in logs] == [["metrics.csv"], ["metrics.jsonl"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "file is empty"),
        (b"  \n\n\t\n", "file is empty"),
        (b"\x00" * 400, "file is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)), "binary file"),
        (bytes(range(128, 256)) * 20, "binary file"),
        (b"PAR1 and then nothing", "Parquet file is damaged"),
        (b"Only a line of prose, nothing more.\n", "no records found"),
        (b"[1, 2]\n[3, 4]\n", "no record"),
        (b"{" * 100_000, "no records found"),
        (b"[" * 100_000, "not valid|no records found"),
    ],
)
def test_what_is_no_log_is_one_line_that_names_the_file(tmp_path, content, said):
    path = tmp_path / "thing.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as caught:
        read_log(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_path_and_folder_without_logs(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        read_log(tmp_path / "nothing")
    with pytest.raises(InputError, match="no logs in this folder"):
        read_log(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.csv", '{"step": 1, "acc": 0.5}\n{"step": 2, "acc": 0.5}\n', "jsonl"),
        ("a.json", "step,acc\n1,0.5\n2,0.6\n", "csv"),
        ("a.jsonl", "step 1 loss 0.5\nstep 2 loss 0.4\n", "console"),
        ("a.log", "step\tacc\n1\t0.5\n2\t0.6\n", "csv"),
        ("a.txt", '[{"step": 1, "acc": 0.5}]', "json"),
        ("a.tfevents.1", "{'loss': 0.5, 'reward': 1}\n{'loss': 0.4, 'reward': 1}\n", "console-dict"),
        ("a", "[step 1] loss=0.5, lr=1\n[step 2] loss=0.4, lr=1\n", "console"),
        (
            "b.log",
            "2026-01-01 00:00:00,123 INFO step 1 loss=0.5\n2026-01-01 00:00:01,456 INFO step 2 loss=0.4\n",
            "console",
        ),
    ],
)
def test_content_decides_and_not_the_extension(tmp_path, name, text, kind):
    path = tmp_path / name
    path.write_text(text)
    (log,) = read_log(path)
    assert log.format == kind
    assert len(log.records) == log.receipt.rows_kept == (1 if kind == "json" else 2)


def test_parquet_tables_and_run_tables(tmp_path):
    plain = tmp_path / "history.pq"
    stamps = pd.to_datetime(["2026-01-01", "2026-01-02"])
    pd.DataFrame({"_step": [1, 2], "eval": [{"acc": 0.5}, {"acc": None}], "timestamp": stamps}).to_parquet(
        plain
    )
    (log,) = read_log(plain)
    assert log.format == "parquet"
    assert log.records["eval/acc"].tolist()[0] == 0.5
    assert log.records[TIME].diff().iloc[1] == 86400
    assert log.receipt.rows_kept == 2
    assert not is_run_table(plain)
    saved = tmp_path / "runs.parquet"
    rows = pd.DataFrame({"run": ["a"], "compute": [1.0], "value": [0.5]})
    table.Runs(rows, table.Metric("acc"), table.ComputeAxis("steps")).save(saved)
    assert is_run_table(saved)
    assert not is_run_table(tmp_path / "missing")
