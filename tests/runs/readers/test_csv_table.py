import csv
import io
import math

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from forecast.runs.readers import LAUNCH, SOURCE_ROW, TIME, melt_wide, read_log


@pytest.fixture
def read(tmp_path):
    def _read(text, name="points.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        (log,) = read_log(path)
        assert log.receipt.rows_kept == len(log.records)
        return log

    return _read


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_delimiter_is_found_by_content(read, delimiter):
    log = read("step,acc\n1,0.5\n2,0.75\n".replace(",", delimiter), name="points.txt")
    assert log.format == "csv"
    assert log.records[["step", "acc"]].values.tolist() == [[1, 0.5], [2, 0.75]]
    assert log.records[SOURCE_ROW].tolist() == [2, 3]


def test_quotes_byte_order_mark_and_blanks(read):
    log = read('\ufeff"step","note","acc"\n"1","a, b",""\n\n"2","two\nlines","0.5"\n')
    assert list(log.records.columns[:3]) == ["step", "note", "acc"]
    assert log.records["note"].tolist() == ["a, b", "two\nlines"]
    assert math.isnan(log.records["acc"].iloc[0])
    assert log.records[SOURCE_ROW].tolist() == [2, 5]


def test_utf16_is_recognised(read):
    assert read("step,acc\n1,0.5\n2,0.6\n", encoding="utf-16").records["acc"].tolist() == [0.5, 0.6]


def test_bytes_that_are_no_utf8_are_counted(read):
    log = read(b"step,who\n1,\xff\xfe!\n2,me\n")
    assert len(log.records) == 2
    assert any("1 lines hold bytes that are no UTF-8" in n for n in log.receipt.notes)


def test_ragged_rows_are_dropped_with_a_reason_and_trailing_delimiters_are_not(read):
    log = read("step,acc\n1,0.1\n2\n3,0.3,9\n4,0.4,\n5,0.5\n6,0.6\n7,0.7\n8,0.8\n9,0.9\n10,1\n11,1\n12,1\n")
    assert log.receipt.dropped == {
        "row with fewer cells than the header": 1,
        "row with more cells than the header": 1,
    }
    assert 4 in log.records["step"].tolist()


def test_an_unclosed_quotation_mark_swallows_nothing_silently(read):
    log = read('step,acc,note\n1,0.1,fine\n2,0.2,"a\nb"\n3,0.3,"open\n4,0.4,x\n5,0.5,y\n')
    assert log.records["step"].tolist() == [1, 2]
    assert log.receipt.dropped == {"row after a quotation mark that is never closed": 3}
    assert "line 5 opens a quotation mark that is never closed" in log.receipt.notes


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_endings(read, ending):
    assert read(f"step,acc{ending}1,0.5{ending}2,0.75{ending}").records["acc"].tolist() == [0.5, 0.75]


def test_markdown_table_and_comments_above_a_header(read):
    assert read("| step | acc |\n|------|----:|\n| 1 | 0.5 |\n| 2 | 1 |\n").records["acc"].tolist() == [
        0.5,
        1,
    ]
    log = read("# exported by hand\nstep,acc\n1,0.5\n2,0.75\n")
    assert log.records["acc"].tolist() == [0.5, 0.75]
    assert log.receipt.dropped == {"comment line": 1}


def test_cut_off_last_row(read):
    log = read("step,acc,kl\n1,0.1,0\n2,0.2,0\n3,0")
    assert log.receipt.dropped == {"last row is cut off": 1}


def test_repeated_header_tells_launches_apart(read):
    log = read("step,acc\n1,0.1\n2,0.2\nstep,acc\n1,0.15\nstep,acc,kl\n2,0.3,0.01\n")
    assert log.records[LAUNCH].fillna(0).tolist() == [0, 0, 1, 2]
    assert log.receipt.dropped == {"header line repeated": 2}
    assert log.records["kl"].tolist()[-1] == 0.01


def test_headers_missing_blank_and_repeated(read):
    assert list(read("0,0.1\n1,0.2\n").records.columns[:2]) == ["column_1", "column_2"]
    log = read(",acc,acc\n0,0.1,1\n1,0.2,2\n")
    assert list(log.records.columns[:3]) == ["column_1", "acc", "acc.2"]
    assert any("more than once" in n for n in log.receipt.notes)


def test_thousands_and_decimal_commas_are_not_guessed(read):
    log = read('step,tokens,acc\n1,"1,024","0,5"\n2,"2,048","0,6"\n')
    assert log.records["tokens"].tolist() == ["1,024", "2,048"]
    assert log.records["acc"].tolist() == ["0,5", "0,6"]


def test_time_stamps_become_seconds(read):
    log = read("step,timestamp,acc\n1,2026-04-26T03:00:00,0.1\n2,2026-04-26T03:01:00,0.2\n")
    assert log.records[TIME].diff().iloc[1] == 60
    assert TIME not in read("step,wall_time,acc\n1,12.5,0.1\n2,30.0,0.2\n").records


def test_header_alone_is_an_error(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("step,acc\n")
    with pytest.raises(InputError, match=r"empty\.csv: table without a usable row, found a header"):
        read_log(path)


SERIES = [f"{run} - acc{band}" for run in ("a_s0", "b - x") for band in ("", "__MIN", "__MAX")]
WANDB = """"Step","{}"
"0","0.1","0.1","0.1","0.2","0.2","0.2"
"1","","","","0.3","0.3","0.3"
"2","0.5","0.5","0.5","","",""
""".format('","'.join(SERIES))


def test_wandb_export_is_made_long(read):
    log = read(WANDB)
    assert (log.format, log.run, log.step) == ("wandb-export", "run", "Step")
    assert log.records[["run", "Step", "acc"]].values.tolist() == [
        ["a_s0", 0, 0.1],
        ["a_s0", 2, 0.5],
        ["b - x", 0, 0.2],
        ["b - x", 1, 0.3],
    ]
    assert log.receipt.runs == ["a_s0", "b - x"]
    assert log.receipt.dropped == {"blank in a wide table (the run has no value there)": 2}
    assert "4 __MIN/__MAX columns left out" in log.receipt.notes


def test_wandb_groups_with_a_band_and_several_metrics(read):
    log = read(
        "evaluations,g - _step,g - _step__MIN,g - _step__MAX,g - acc,g - acc__MIN,g - acc__MAX\n"
        "60,0,0,0,0.5,0.4,0.6\n62,1,1,1,0.6,0.5,0.7\n"
    )
    assert log.records[["evaluations", "_step", "acc"]].values.tolist() == [[60, 0, 0.5], [62, 1, 0.6]]
    assert log.step is None
    assert any("group of runs" in n for n in log.receipt.notes)


PLAIN = "Step,0.6b,14b\n0,0.04,0.78\n1,,0.79\n4,0.10,0.80\n"


def test_plain_wide_table_is_hinted_at_but_not_melted(read):
    log = read(PLAIN)
    assert log.run is None
    assert any("may be one run each" in n for n in log.receipt.notes)
    assert not any("may be one run each" in n for n in read("step,acc,kl\n0,0.1,2\n1,0.2,3\n").receipt.notes)


def test_melt_wide_on_request(read):
    raw = read(PLAIN)
    log = melt_wide(raw, ["0.6b", "14b"], x="Step", value="accuracy")
    assert log.receipt.rows_kept == len(log.records) == 5
    assert log.receipt.dropped == {"blank in a wide table (the run has no value there)": 1}
    assert raw.receipt.dropped == {}
    small = log.records[log.records["run"] == "0.6b"]
    assert small[["Step", "accuracy", SOURCE_ROW]].values.tolist() == [[0, 0.04, 2], [4, 0.10, 4]]
    with pytest.raises(InputError, match="no column '7b'"):
        melt_wide(raw, ["7b"], x="Step")


CELL = st.one_of(st.floats(allow_nan=False).map(repr), st.integers(-9999, 9999).map(str), st.just(""))
TEXT = st.text("ab1 ,;\t\"'\né#", max_size=8)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 10**6).map(str), CELL, TEXT), min_size=2, max_size=40),
    delimiter=st.sampled_from(",;\t"),
)
def test_any_table_survives_the_round_trip(tmp_path, rows, delimiter):
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=delimiter)
    writer.writerows([("step", "value", "remark"), *rows])
    path = tmp_path / "random.csv"
    path.write_text(buffer.getvalue(), newline="")
    (log,) = read_log(path)
    assert log.receipt.rows_read == len(rows)
    assert log.receipt.dropped == {}
    assert log.records["step"].tolist() == [int(step) for step, _, _ in rows]
    for found, (_, text, _) in zip(log.records["value"], rows, strict=True):
        assert pd.isna(found) if text == "" else found == float(text)
