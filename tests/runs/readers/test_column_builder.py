import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast.runs.readers import SOURCE_ROW, metric_like, step_like
from forecast.runs.readers.columns import Columns, numbers
from forecast.runs.receipt import Receipt


def build(*records):
    columns = Columns()
    for row, record in enumerate(records, 1):
        columns.add(record, row)
    receipt = Receipt("here", "test")
    return columns.frame(receipt), receipt


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text("ab1-.e \té", max_size=4),
    st.lists(st.integers(0, 3), max_size=3),
)


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), CELLS), min_size=1, max_size=30), st.integers(1, 7))
def test_every_cell_comes_back_whatever_its_kind_and_wherever_a_chunk_ends(records, chunk):
    columns = Columns()
    for row, record in enumerate(records, 1):
        columns.add(record, row)
        if row % chunk == 0:
            columns._close()
    table = columns.frame(Receipt("here", "test"))
    assert table[SOURCE_ROW].tolist() == list(range(1, len(records) + 1))
    for row, record in enumerate(records):
        for name in [c for c in table.columns if c != SOURCE_ROW]:
            assert same(table[name].iloc[row], record.get(name))


def same(found, logged):
    if isinstance(logged, list):
        return found == logged
    if logged is None or logged != logged:
        return bool(pd.isna(found))
    if isinstance(logged, str):
        if found == logged:
            return True
        text = logged.strip()
        blank = text.lower() in ("", "nan", "null", "none", "na", "n/a", "-")
        return bool(pd.isna(found)) if blank else float(text) == found
    return found == logged or (isinstance(logged, int) and float(logged) == found)


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_floats_written_as_text_come_back_exactly(values):
    parsed = numbers(pd.Series([repr(v) for v in values], dtype="str"))
    assert parsed is not None
    assert parsed.tolist() == values


@pytest.mark.parametrize("text", ["1,234", "1_000", "0x1f", "12:30", "0,5", "1.2.3", "--1", "e5", "79.3%"])
def test_what_is_no_plain_number_stays_text(text):
    assert numbers(pd.Series([text, "1"], dtype="str")) is None


@pytest.mark.parametrize(
    ("text", "value"), [("+.5", 0.5), (" 5. ", 5.0), ("1e-3", 1e-3), ("Inf", math.inf), ("-inf", -math.inf)]
)
def test_spellings_of_numbers(text, value):
    assert numbers(pd.Series([text], dtype="str")).tolist() == [value]


def test_blanks_become_nan_only_beside_numbers():
    table, _ = build({"x": "0.5", "stage": "none"}, {"x": "", "stage": "sft"}, {"x": "N/A", "stage": ""})
    assert table["x"].tolist()[0] == 0.5
    assert table["x"].isna().tolist() == [False, True, True]
    assert table["stage"].tolist()[:2] == ["none", "sft"]
    assert pd.isna(table["stage"].iloc[2])


def test_whole_numbers_stay_whole_and_large_ones_exact():
    big = 2**62 + 1
    table, _ = build({"id": big, "n": 1}, {"id": 3, "n": None})
    assert table["id"].tolist() == [big, 3]
    assert table["n"].dtype == np.float64


def test_text_in_a_numeric_column_is_noted_with_the_first_offender():
    table, receipt = build({"acc": "0.1"}, {"acc": "0.2"}, {"acc": "OOM"})
    assert table["acc"].tolist() == ["0.1", "0.2", "OOM"]
    assert any("'acc'" in note and "OOM" in note for note in receipt.notes)


def test_nested_mappings_are_flattened_and_late_columns_are_blank_before():
    table, _ = build({"a": {"b": 1, "c": {"d": 2}}}, {"e": 3})
    assert {"a/b", "a/c/d", "e"} <= set(table.columns)
    assert math.isnan(table["e"].iloc[0])
    assert math.isnan(table["a/c/d"].iloc[1])


def test_names_that_count_and_names_that_measure():
    counting = ("step", "_step", "Step", "global_step", "progress/step", "iteration", "model_step")
    assert all(step_like(n) for n in counting)
    assert not any(step_like(n) for n in ("stepwise", "accuracy", "0.6b", "time_per_step_s"))
    assert all(metric_like(n) for n in ("reward", "val-core/gsm8k/acc/mean@16", "pass_at_1", "solve_rate"))
    assert not any(metric_like(n) for n in ("0.6b", "14b", "cispo_s0"))
