"""The allocation study: every split once, results that say what they hold, and your own pass rates."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from forecast.errors import InputError
from studies import allocation as study
from studies.allocation import figure, markdown, read_pass_rates, summarise, tasks, work

SPLITS = ((8, 8), (32, 2), (32, 8))
BUDGETS = (2**8, 2**9, 2**10, 2**11)
SETS = {"easy": ((0.3, 0.6), None), "mine": ((0.0, 0.25), (4, 8))}
RATES = (0.03, 0.1)
SHORT = partial(tasks, budgets=BUDGETS, splits=SPLITS, learning_rates=RATES)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return pd.concat([work(task) for task in SHORT(SETS, 3, 0)], ignore_index=True)


def test_every_world_meets_every_split_once_and_the_slowest_work_comes_first(rows):
    made = SHORT(SETS, 20, 0)
    assert len(made) == len(SETS) * len(SPLITS) * len(RATES) * 2
    assert {(task["first"], task["worlds"]) for task in made} == {(0, 16), (16, 4)}
    batches = [task["prompts"] * task["rollouts"] for task in made]
    assert batches == sorted(batches)
    assert not rows.duplicated(
        ["set", "world", "prompts", "rollouts", "learning_rate", "budget", "metric"]
    ).any()
    assert len(rows) == len(SETS) * len(RATES) * 3 * 3 * (4 + 4 + 4)


def test_rows_do_not_depend_on_what_else_is_done(rows):
    task = SHORT(SETS, 3, 0)[-1]
    own = rows[
        (rows["set"] == task["set"])
        & (rows["prompts"] == task["prompts"])
        & (rows["rollouts"] == task["rollouts"])
        & (rows["learning_rate"] == task["learning_rate"])
    ]
    pd.testing.assert_frame_equal(own.reset_index(drop=True), work(task))


def test_the_report_holds_every_set_metric_and_budget(rows):
    summary, fits = summarise(rows)
    assert len(summary) == len(SETS) * 3 * len(BUDGETS) * 2
    assert set(fits) == {
        (name, m, p) for name in SETS for m in ("mean", "pass@4", "worst@4") for p in ("any", "32")
    }
    text = markdown(summary, fits)
    for column in ("best P x G x steps", "gain over G = 8 (90 %)", "log10 C0", "plateau L + b", "saturates"):
        assert f" {column} " in text
    assert "| mine | worst@4 | 2^11 |" in text
    assert "**easy, by metric**: the best G with P = 32 at 2^11" in text
    assert "G = 8 at every budget costs at most" in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {15, 11}
    drawn = figure(rows, summary, fits)
    assert len(drawn.axes) == 3 * len(SETS)
    assert "mine: best G, P = 32" in [axes.get_title(loc="left") for axes in drawn.axes]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate\n.5\n", "column pass_rate is missing, found rate"),
        ("pass_rate\n.5\nhigh\n", "row 3, column pass_rate: no number, found high"),
        ("pass_rate\n50\n", r"mine.csv: pass_rates is out of range, found 50, expected 0 to 1, as fractions"),
        ("pass_rate\n0\n", "mine.csv: pass rates of 0 may be small or impossible"),
        ("pass_rate,samples\n.5,0\n", "mine.csv: samples is out of range, found 0"),
        ("", "mine.csv: no CSV file"),
    ],
)
def test_a_file_without_pass_rates_is_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_pass_rates(path)


def test_your_own_prompts_take_the_place_of_easy_and_hard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "mine.csv"
    path.write_text("prompt,pass_rate,samples\na,0,4\nb,.5,8\n")
    monkeypatch.setattr(study, "tasks", SHORT)
    done = CliRunner().invoke(
        study.allocation,
        ["--worlds", "2", "--pass-rates", str(path), "--workers", "1", "-o", str(tmp_path / "out")],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    assert set(pd.read_parquet(tmp_path / "out" / "allocation.parquet")["set"]) == {"own"}
    text = (tmp_path / "out" / "allocation.md").read_text()
    assert f"--pass-rates {path}" in text
    assert "| own | mean | 2^8 |" in text
    assert (tmp_path / "out" / "allocation.png").stat().st_size > 10_000
