"""The run table: what it refuses, how it is cut, and what its hash sees."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forecast.errors import InputError
from forecast.runs.receipt import Receipt
from forecast.runs.table import COLUMNS, ComputeAxis, Floor, Metric, Runs

PASS_RATE = Metric("acc", prompts=100, samples_per_prompt=4)
STEPS = ComputeAxis("steps")


def table(**changes: Any) -> pd.DataFrame:
    columns = {
        "run": ["b", "b", "a", "a", "a"],
        "recipe": ["y", "y", "x", "x", "x"],
        "compute": [20.0, 10.0, 1.0, 2.0, 3.0],
        "value": [0.4, 0.3, 0.0, 0.5, 1.0],
        "source": "log.jsonl",
        "source_row": [4, 5, 6, 7, 8],
    }
    return pd.DataFrame(columns | changes)


def runs(**changes: Any) -> Runs:
    floors = {"a": Floor(0.1, 400), "b": Floor(0.2)}
    return Runs(table(**changes), PASS_RATE, STEPS, floors, (Receipt("log.jsonl", "jsonl", rows_read=9),))


def test_rows_are_sorted_and_columns_complete() -> None:
    found = runs()
    assert tuple(found.table.columns) == COLUMNS
    assert found.names == ["a", "b"]
    assert found.recipes == {"a": "x", "b": "y"}
    assert found.table["compute"].tolist() == [1, 2, 3, 10, 20]
    assert found.table["source_row"].tolist() == [6, 7, 8, 5, 4]


def test_a_run_without_a_recipe_column_is_its_own_recipe() -> None:
    found = Runs(table().drop(columns="recipe"), PASS_RATE, STEPS)
    assert found.recipes == {"a": "a", "b": "b"}


def test_numbers_as_names_and_as_text_are_read() -> None:
    found = Runs(
        pd.DataFrame({"run": [1, 1], "compute": ["1", "2"], "value": ["0.25", 0.5]}), PASS_RATE, STEPS
    )
    assert found.names == ["1"]
    assert found.table["value"].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"value": [0.4, 0.3, 0.0, 1.2, 1.0]}, ["log.jsonl, row 7, run a", "found 1.2", "0 to 1", "scale"]),
        ({"value": [0.4, -0.3, 0.0, 0.5, 1.0]}, ["row 5, run b", "found -0.3"]),
        ({"value": [0.4, 0.3, np.nan, 0.5, 1.0]}, ["row 6, run a", "value is not a finite number"]),
        ({"value": [0.4, 0.3, 0.0, 0.5, "n/a"]}, ["row 8, run a", "value is not a number", "n/a"]),
        ({"compute": [20.0, 10.0, 0.0, 2.0, 3.0]}, ["row 6, run a", "compute must be positive", "floor"]),
        ({"compute": [20.0, 10.0, 1.0, -2.0, 3.0]}, ["row 7, run a", "found -2"]),
        ({"compute": [20.0, np.inf, 1.0, 2.0, 3.0]}, ["row 5, run b", "compute is not a finite number"]),
        ({"compute": [20.0, 10.0, 1.0, 3.0, 3.0]}, ["row 8, run a", "compute 3 twice"]),
        ({"trials": [0, 1, 1, 1, 1]}, ["row 4, run b", "trials must be at least 1", "found 0"]),
        ({"trials": [1, 1, 1, 1.5, 1]}, ["row 7, run a", "trials is not a whole number", "1.5"]),
        ({"recipe": ["y", "y", "x", "x", "z"]}, ["run 'a' carries several recipes", "x", "z"]),
        ({"recipe": ["y", "y", "x", None, "x"]}, ["row 7", "recipe has no name"]),
        ({"run": ["b", "b", "a", None, "a"]}, ["row 7", "run has no name"]),
    ],
)
def test_a_bad_row_is_named_in_one_line(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        runs(**changes)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("column", ["run", "compute", "value"])
def test_a_missing_column_is_named(column: str) -> None:
    with pytest.raises(InputError, match=f"lacks column '{column}'"):
        Runs(table().drop(columns=column), PASS_RATE, STEPS)


def test_floors_belong_to_runs_and_lie_on_the_scale() -> None:
    with pytest.raises(InputError, match=r"not in the table.*nobody"):
        Runs(table(), PASS_RATE, STEPS, {"nobody": Floor(0.5)})
    with pytest.raises(InputError, match=r"run a, step 0.*found 40"):
        Runs(table(), PASS_RATE, STEPS, {"a": Floor(40.0)})


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"kind": "score"}, "unknown metric kind"),
        ({"split": "dev"}, "unknown metric split"),
        ({"scale": (1.0, 1.0)}, "two different finite numbers"),
        ({"scale": (0.0, float("inf"))}, "two different finite numbers"),
        ({"chance": 1.0}, "chance must be a fraction"),
        ({"prompts": 0}, "prompts must be at least 1"),
        ({"samples_per_prompt": -3}, "samples_per_prompt must be at least 1"),
    ],
)
def test_an_impossible_metric_is_refused(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Metric("acc", **declared)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(InputError, match=r"unknown compute unit.*gpu_hours"):
        ComputeAxis("hours")


@pytest.mark.parametrize("scale", [(0, 1), (0, 100), (-1, 1), (1, 0), (100, 0)])
def test_scales_map_there_and_back(scale: tuple[float, float]) -> None:
    metric = Metric("acc", scale=scale)
    assert metric.to_fraction(scale[0]) == 0
    assert metric.to_fraction(scale[1]) == 1
    fractions = np.linspace(0, 1, 11)
    np.testing.assert_allclose(metric.to_fraction(metric.from_fraction(fractions)), fractions, atol=1e-15)


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        (Metric("acc"), ""),
        (Metric("acc", split="train"), "training prompts"),
        (Metric("r", kind="reward"), "not a pass rate"),
        (Metric("p", kind="preference"), "not a pass rate"),
        (Metric("r", kind="reward", split="train"), "train"),
    ],
)
def test_what_is_no_held_out_pass_rate_says_so(metric: Metric, words: str) -> None:
    assert (metric.caveat == "") == (words == "")
    assert words in metric.caveat


def test_window_keeps_both_ends_and_drops_empty_runs_with_their_floors() -> None:
    kept = runs().window(2.0, 10.0)
    assert kept.table["compute"].tolist() == [2, 3, 10]
    early = runs().window(upto=5)
    assert early.names == ["a"]
    assert dict(early.floors) == {"a": Floor(0.1, 400)}
    assert early.receipts == runs().receipts
    nothing = runs().window(11, 12)
    assert nothing.names == []
    assert not nothing.floors
    assert runs().window().hash() == runs().hash()


def test_select_keeps_the_named_runs_only() -> None:
    assert runs().select(["b", "unheard of"]).names == ["b"]
    assert dict(runs().select(["b"]).floors) == {"b": Floor(0.2)}
    assert runs().select(iter(["a", "b"])).hash() == runs().hash()


def test_the_callers_table_is_left_alone() -> None:
    given = table()
    before = given.copy(deep=True)
    Runs(given, PASS_RATE, STEPS).window(2)
    pd.testing.assert_frame_equal(given, before)


def test_strata_are_kept_apart_from_the_whole_set() -> None:
    mixed = runs(stratum=[None, None, None, "hard", None], compute=[20.0, 10.0, 1.0, 1.0, 3.0])
    assert mixed.overall()["compute"].tolist() == [1, 3, 10, 20]
    assert len(mixed.table) == 5


def test_parquet_brings_everything_back(tmp_path: Path) -> None:
    original = Runs(
        table(trials=[1, 2, 3, None, 5], stratum=[None, "hard", None, None, None], model="Qwen ß 7B"),
        Metric("acc", "accuracy", "test", (0, 100), 0.25, 100, 4),
        ComputeAxis("flops", "sum of flops × 1e18", 2.5),
        {"a": Floor(10.0, 400)},
        (Receipt("log.jsonl", "jsonl", rows_read=9, dropped={"no value": 4}),),
    )
    original.save(tmp_path / "deep" / "runs.parquet")
    back = Runs.load(tmp_path / "deep" / "runs.parquet")
    pd.testing.assert_frame_equal(back.table, original.table)
    assert (back.metric, back.compute, dict(back.floors)) == (
        original.metric,
        original.compute,
        dict(original.floors),
    )
    assert [r.to_dict() for r in back.receipts] == [r.to_dict() for r in original.receipts]
    assert back.hash() == original.hash()


def test_a_domain_survives_the_round_trip_and_every_cut(tmp_path: Path) -> None:
    domain = {"context_length": "8192", "verifier": "Prüfer ≥ 0.8"}
    original = replace(runs(), domain=domain)
    original.save(tmp_path / "runs.parquet")
    assert Runs.load(tmp_path / "runs.parquet").domain == domain
    assert original.window(2, 10).domain == domain
    assert original.select(["a"]).domain == domain


def test_a_table_of_an_earlier_version_declares_no_domain(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    runs().save(path)
    arrow = pq.read_table(path)
    meta = dict(arrow.schema.metadata)
    declared = json.loads(meta[b"rlforecast"])
    del declared["domain"]
    meta[b"rlforecast"] = json.dumps(declared).encode()
    pq.write_table(arrow.replace_schema_metadata(meta), path)
    back = Runs.load(path)
    assert back.domain == {}
    assert back.hash() == runs().hash()


def test_extreme_compute_survives_the_round_trip(tmp_path: Path) -> None:
    original = runs(compute=[1e300, 1e-300, 1e-30, 2e-30, 3e25])
    original.save(tmp_path / "runs.parquet")
    assert Runs.load(tmp_path / "runs.parquet").table["compute"].tolist() == [
        1e-30,
        2e-30,
        3e25,
        1e-300,
        1e300,
    ]


def test_hash_sees_data_and_nothing_else() -> None:
    original = runs()
    same = [
        Runs(table().sample(frac=1, random_state=1), PASS_RATE, STEPS, original.floors),
        runs(source="elsewhere.csv", source_row=[1, 2, 3, 4, 5]),
        replace(original, receipts=()),
        replace(original, domain={"epochs": "4"}),
        Runs(table().assign(note="extra column"), PASS_RATE, STEPS, original.floors),
    ]
    assert {each.hash() for each in same} == {original.hash()}
    different = [
        runs(value=[0.4, 0.3, 0.0, 0.5 + 1e-12, 1.0]),
        runs(compute=[20.0, 10.0, 1.0, 2.0, 3.0 + 1e-9]),
        runs(compute=[20.0, 10.0, 1e-20, 2.0, 3.0]),
        runs(compute=[20.0, 10.0, 2e-20, 2.0, 3.0]),
        runs(recipe=["z", "z", "x", "x", "x"]),
        runs(trials=[7, None, None, None, None]),
        runs(stratum=[None, None, None, None, "hard"]),
        runs(seed=[1, 1, 0, 0, 0]),
        replace(original, metric=replace(PASS_RATE, scale=(0, 2))),
        replace(original, metric=replace(PASS_RATE, prompts=101)),
        replace(original, compute=ComputeAxis("tokens")),
        replace(original, floors={"a": Floor(0.1, 401), "b": Floor(0.2)}),
        replace(original, floors={"a": Floor(0.1, 400)}),
    ]
    hashes = [original.hash(), *(each.hash() for each in different)]
    assert len(set(hashes)) == len(hashes)


@pytest.mark.parametrize("content", [b"", b"PAR1 and then nothing", b"run,compute\n"])
def test_another_file_is_no_run_table(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a run table saved by rlforecast"):
        Runs.load(path)


def test_a_foreign_parquet_file_is_no_run_table(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"run": ["a"], "compute": [1.0], "value": [0.5]}), path)
    with pytest.raises(InputError, match="not a run table saved by rlforecast"):
        Runs.load(path)
    with pytest.raises(InputError, match="not a run table"):
        Runs.load(tmp_path / "absent.parquet")
