"""Does looking into a log name the right axes, and can what it writes be read?"""

import io
import json

import pytest
from rich.console import Console

from forecast.errors import InputError
from forecast.runs.inspection import inspect_paths
from forecast.runs.inspection_tables import render
from forecast.runs.read import read_runs
from forecast.runs.starting import starting_spec


def jsonl(path, records):
    path.write_text("\n".join(json.dumps(r) for r in records) + "\n")
    return path


@pytest.fixture
def folder(tmp_path):
    for seed in (0, 1):
        records = [
            {"step": s, "reward": s * 3.0, "loss": 1 / (s + 1), "time/step": 10 + s % 3}
            | ({"val/acc": 0.1 + s / 40 + seed / 1000} if s % 2 == 0 else {})
            for s in range(12)
        ]
        jsonl(tmp_path / f"cispo_seed{seed}.jsonl", records)
    (tmp_path / "notes.txt").write_text("lr 1e-6 was too high\n")
    return tmp_path


def shown(inspection):
    text = io.StringIO()
    render(inspection, Console(file=text, width=200))
    return text.getvalue()


def test_candidates_are_judged(folder):
    inspection = inspect_paths(folder)
    view = inspection.sources[0]
    y = {c.name: c for c in view.y}
    assert set(y) == {"reward", "val/acc"}
    assert (y["val/acc"].split, y["val/acc"].scale, y["val/acc"].why_not) == ("validation", (0, 1), "")
    assert "unbounded" in y["reward"].why_not
    assert view.metric == "val/acc"
    assert {c.name: c.nature for c in view.x} == {"step": "cumulative", "time/step": "per step"}
    assert [(r.name, r.evaluations) for r in view.runs] == [("cispo_seed0", 5)]
    assert json.loads(json.dumps(inspection.to_dict()))["sources"][1]["runs"][0]["name"] == "cispo_seed1"
    text = shown(inspection)
    assert "val/acc" in text
    assert "notes.txt" in text


def test_the_starting_spec_is_readable_and_guesses_recipe_and_seed(folder):
    text = starting_spec(inspect_paths(folder), folder)
    (folder / "runs.toml").write_text(text)
    assert 'path = "cispo_seed0.jsonl"' in text
    assert "# times = " in text
    runs = read_runs(folder / "runs.toml")
    assert runs.metric.name == "val/acc"
    assert set(runs.recipes.values()) == {"cispo"}
    assert sorted(set(runs.table["seed"])) == [0, 1]


def test_several_runs_in_a_table_are_found(tmp_path):
    rows = ["arm,step,accuracy"] + [f"{a},{s},{0.1 + s / 100}" for a in "ab" for s in (10, 20, 30)]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    view = inspect_paths(tmp_path / "t.csv").sources[0]
    assert view.split_by == ["arm"]
    assert [r.name for r in view.runs] == ["a", "b"]
    spec = tmp_path / "runs.toml"
    spec.write_text(starting_spec(inspect_paths(tmp_path / "t.csv")))
    assert read_runs(spec).names == ["a", "b"]


def test_a_wide_table_is_recognised(tmp_path):
    (tmp_path / "w.csv").write_text("Step,0.6b,8b\n0,0.1,0.5\n4,,0.6\n8,0.3,0.7\n")
    inspection = inspect_paths(tmp_path / "w.csv")
    assert inspection.sources[0].wide == ["0.6b", "8b"]
    (tmp_path / "runs.toml").write_text(starting_spec(inspection, tmp_path))
    assert read_runs(tmp_path / "runs.toml").names == ["0.6b", "8b"]


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        ([12.0, 30, 44, 51, 60], "looks like percent"),
        ([0.0] * 5, "zero throughout"),
        ([0.53, 0.55, 0.54, 0.56, 0.53], "declare chance"),
    ],
)
def test_warnings(tmp_path, values, warning):
    path = jsonl(
        tmp_path / "r.jsonl", [{"step": i + 1, "val/acc": v, "k": i / 7} for i, v in enumerate(values)]
    )
    inspection = inspect_paths(path)
    assert any(warning in w for w in inspection.sources[0].warnings)
    assert warning in shown(inspection)


def test_restarts_are_warned_of(tmp_path):
    steps = [1, 2, 3, 2, 3, 4]
    path = jsonl(tmp_path / "r.jsonl", [{"step": s, "val/acc": 0.1 + i / 50} for i, s in enumerate(steps)])
    view = inspect_paths(path).sources[0]
    assert any(w.startswith("restarts: run r: 2 attempts") for w in view.warnings)


def test_markup_in_names_is_printed_as_it_is(tmp_path):
    path = jsonl(tmp_path / "r.jsonl", [{"step": i, "val/acc[bold]": i / 10} for i in range(5)])
    assert "val/acc[bold]" in shown(inspect_paths(path))


def test_files_that_are_no_logs_are_listed_and_nothing_at_all_is_an_error(tmp_path, folder):
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    inspection = inspect_paths([folder / "cispo_seed0.jsonl", empty])
    assert list(inspection.skipped) == [str(empty)]
    assert "skipped" in shown(inspection)
    with pytest.raises(InputError, match="empty"):
        inspect_paths(empty)


def test_no_spec_is_written_when_nothing_is_readable(tmp_path):
    path = jsonl(tmp_path / "r.jsonl", [{"step": i, "loss": 1 / (i + 1)} for i in range(5)])
    with pytest.raises(InputError, match="no starting spec"):
        starting_spec(inspect_paths(path))


def test_a_saved_run_table(folder):
    read_runs(folder, metric="val/acc").save(folder / "runs.parquet")
    view = inspect_paths(folder / "runs.parquet").sources[0]
    assert view.format == "run table"
    assert [r.name for r in view.runs] == ["cispo_seed0", "cispo_seed1"]
