"""Do files, specs and saved tables all lead to the same run table?"""

import json
from dataclasses import replace

import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.runs.read import read_runs


@pytest.fixture
def points(tmp_path):
    path = tmp_path / "points.csv"
    rows = [
        (s, seg, h, p)
        for s in ("x", "y")
        for seg, h, p in (("fit", 10, 0.2), ("fit", 20, 0.3), ("ext", 40, 0.4))
    ]
    pd.DataFrame(rows, columns=["series", "segment", "gpu_hours", "pass_rate"]).to_csv(path, index=False)
    return path


OPTIONS = {
    "run": "series",
    "recipe": "series",
    "compute": "gpu_hours",
    "compute_unit": "gpu_hours",
    "metric": "pass_rate",
    "prompts": 1000,
    "samples": 16,
}


def test_a_simple_table_by_options(points):
    runs = read_runs(points, **OPTIONS)
    assert runs.names == ["x", "y"]
    assert runs.compute.unit == "gpu_hours"
    assert runs.table["trials"].unique().tolist() == [16000]
    assert runs.receipts[0].runs == ["x", "y"]


def test_defaults_find_the_same(points):
    found, told = read_runs(points, run="series"), read_runs(points, **OPTIONS)
    pd.testing.assert_frame_equal(found.table.drop(columns="trials"), told.table.drop(columns="trials"))


def test_a_spec_says_the_same_as_options(points):
    spec = points.parent / "runs.toml"
    spec.write_text(
        '[metric]\ncolumn = "pass_rate"\nprompts = 1000\nsamples_per_prompt = 16\n'
        '[compute]\ncolumn = "gpu_hours"\n'
        '[[run]]\npath = "points.csv"\nsplit_by = ["series"]\nrecipe = {column = "series"}\n'
    )
    told = read_runs(points, **OPTIONS).hash()
    assert read_runs(spec).hash() == told
    assert read_runs([], spec=spec).hash() == told


def test_a_declared_domain_is_kept_as_text(points):
    spec = points.parent / "runs.toml"
    runs = '[[run]]\npath = "points.csv"\nsplit_by = ["series"]\n'
    spec.write_text(
        '[domain]\ncontext_length = 8192\nverifier = "math-verify 0.8"\nepochs = 1.5\nthinking = true\n'
        + runs
    )
    found = read_runs(spec)
    assert found.domain == {
        "context_length": "8192",
        "verifier": "math-verify 0.8",
        "epochs": "1.5",
        "thinking": "True",
    }
    # It changes nothing that is fitted.
    spec.write_text(runs)
    assert read_runs(spec).domain == {}
    assert read_runs(spec).hash() == found.hash()
    assert read_runs(points, **OPTIONS).domain == {}


def test_a_filter_on_numbers(points):
    rows = read_runs(points, run="series", where=["gpu_hours=20"]).table
    assert rows["compute"].tolist() == [20, 20]


def test_a_saved_table_is_read_back(points, tmp_path):
    runs = read_runs(points, **OPTIONS)
    runs.save(tmp_path / "runs.parquet")
    assert read_runs(tmp_path / "runs.parquet").hash() == runs.hash()


def test_saved_tables_are_joined_when_their_axes_agree(points, tmp_path):
    runs = read_runs(points, **OPTIONS)
    for name in ("x", "y"):
        runs.select([name]).save(tmp_path / f"{name}.parquet")
    tables = [tmp_path / "x.parquet", tmp_path / "y.parquet"]
    assert read_runs(tables).hash() == runs.hash()
    with pytest.raises(InputError, match="a run is in two run tables"):
        read_runs([tables[0], tables[0]])
    with pytest.raises(InputError, match="cannot be read together"):
        read_runs([tables[0], points])
    read_runs(points, **OPTIONS | {"split": "test"}).select(["y"]).save(tables[1])
    with pytest.raises(InputError, match="different metrics"):
        read_runs(tables)


def test_domains_of_joined_tables_are_those_of_all(points, tmp_path):
    runs = read_runs(points, **OPTIONS)
    tables = [tmp_path / "x.parquet", tmp_path / "y.parquet"]
    domains = [
        {"context_length": "8192", "verifier": "strict", "epochs": "1"},
        {"context_length": "16384", "verifier": "strict", "batch": "512"},
    ]
    for path, name, domain in zip(tables, ("x", "y"), domains, strict=True):
        replace(runs.select([name]), domain=domain).save(path)
    joined = read_runs(tables)
    assert joined.domain == {
        "context_length": "8192 | 16384",
        "verifier": "strict",
        "epochs": "1",
        "batch": "512",
    }
    assert joined.hash() == runs.hash()


def test_a_glob_is_a_run_per_file_and_a_list_is_one_run(tmp_path):
    for name, steps in (("a", [1, 2, 3]), ("b", [3, 4])):
        lines = [json.dumps({"step": s, "val/acc": s / 10 + 0.001 * (name == "b")}) for s in steps]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "broken.jsonl").write_bytes(b"\x00\x01\x02\x03" * 40)
    spec = tmp_path / "runs.toml"
    spec.write_text('[[run]]\npath = "*.jsonl"\n')
    runs = read_runs(spec)
    assert runs.names == ["a", "b"]
    assert any("skipped" in note and "broken" in note for r in runs.receipts for note in r.notes)
    spec.write_text('[[run]]\npath = ["a.jsonl", "b.jsonl"]\n')
    runs = read_runs(spec)
    assert runs.table["value"].tolist() == pytest.approx([0.1, 0.2, 0.301, 0.401])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "pas_rate"}, "no column 'pas_rate', found pass_rate"),
        ({"run": "serie"}, "no column 'serie', found series"),
        ({"recipe": "recipe"}, "no column 'recipe'"),
        ({"where": ["series=z"]}, "no row has series=z.*series: x, y"),
        ({"where": ["series"]}, "not COLUMN=VALUE"),
        ({"compute_unit": "hours"}, "--compute-unit: "),
        ({"kind": "passrate"}, "--kind: "),
        ({"times": 0.0}, "--times: "),
        ({"spec": "runs.toml"}, "either paths or a spec"),
    ],
)
def test_wrong_options_are_one_line(points, monkeypatch, options, message):
    monkeypatch.chdir(points.parent)
    points.with_name("runs.toml").write_text('[[run]]\npath = "points.csv"\n')
    with pytest.raises(InputError, match=message) as error:
        read_runs(points, **({"run": "series"} | options))
    assert "\n" not in str(error.value)


def test_paths_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_runs(tmp_path / "none.csv")
    with pytest.raises(InputError, match="no path given"):
        read_runs([])
    (tmp_path / "runs.toml").write_text('[[run]]\npath = "*.jsonl"\n')
    with pytest.raises(InputError, match="no file matches"):
        read_runs(tmp_path / "runs.toml")
