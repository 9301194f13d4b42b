"""The backtest as a command: what it prints, what it writes, how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from command import Command, fill, tree

X = range(1, 17)
POINTS = "series,gpu_hours,pass_rate\n" + "".join(
    f"{name},{1000 * i},{0.2 + height * i / (i + 3) + 0.002 * (-1) ** i:.4f}\n"
    for name, height in (("a", 0.4), ("b", 0.5))
    for i in X
)
FLAT = "series,gpu_hours,pass_rate\n" + "".join(f"f,{1000 * i},{0.3 + 0.001 * (-1) ** i}\n" for i in X)
HOW = ["--run", "series", "--prompts", "1000", "--samples", "16"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path, {"points.csv": POINTS, "flat.csv": FLAT})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tables_on_stdout_people_on_stderr(command: Command, place: Path) -> None:
    answer = command("backtest", "points.csv", "flat.csv", *HOW)
    assert answer.code == 0, answer.err
    for words in ("point forecast", "Cut at 25 %", "Cut at 50 %", "power law", "RMSE", "90 % width"):
        assert words in answer.out
    for words in ("1-1.5 x fitted", ">4 x midpoint", "later evaluations of 2 runs, worth about"):
        assert words in answer.out
    assert "not scored: f at 25 %: flat" in answer.err
    assert tree(place) == ["flat.csv", "points.csv"]


def test_files_are_the_same_numbers_and_need_leave_to_be_replaced(command: Command, place: Path) -> None:
    asked = ["backtest", "points.csv", *HOW, "--upto", "8000", "-o", "out"]
    answer = command(*asked, "--format", "csv")
    assert answer.code == 0, answer.err
    assert tree(place / "out") == ["backtest.json", "backtest.png", "forecasts.csv"]
    printed = pd.read_csv(io.StringIO(answer.out))
    pd.testing.assert_frame_equal(printed, pd.read_csv(place / "out" / "forecasts.csv"))
    assert set(printed["cut"]) == {"8000 gpu_hours"}
    told = json.loads((place / "out" / "backtest.json").read_text())
    ours = printed[printed["method"] == "rlforecast"]
    assert told["summary"][0]["crps"] == pytest.approx(ours["crps"].mean())
    again = command(*asked)
    assert again.code == 2
    assert "out: output folder exists" in again.last
    replaced = command(*asked, "--overwrite", "--format", "json", "--workers", "1")
    assert replaced.code == 0
    assert json.loads(replaced.out) == told


def test_exit_1_when_no_run_can_be_scored(command: Command, place: Path) -> None:
    answer = command("backtest", "flat.csv", *HOW, "-o", "out")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.last.startswith("rlforecast: no run could be scored: f at 25 %: flat")
    assert tree(place) == ["flat.csv", "points.csv"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--upto-fraction", ".25,1.5"], "--upto-fraction is no share of a run, found 1.5"),
        (["--upto-fraction", "half"], "found 'half', expected numbers separated by commas"),
        (["--upto-fraction", ".5", "--upto", "8000"], "give either --upto-fraction or --upto, found both"),
        (["--upto", "50000"], "found 50000, expected from 1000 to less than 16000 gpu_hours"),
        (["--upto", "10"], "found 10, expected from 1000"),
        (["--siblings", "whole"], "Ask for the hierarchical engine (--engine hierarchical)"),
        (["--engine", "oracle"], "unknown engine, found 'oracle'"),
        (["--floor", "3"], "floor outside the metric's scale"),
        (["--workers", "0"], "--workers"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    command: Command, place: Path, options: list[str], words: str
) -> None:
    answer = command("backtest", "points.csv", *HOW, "-o", "out", *options)
    assert answer.code == 2
    assert answer.out == ""
    assert words in answer.last
    assert tree(place) == ["flat.csv", "points.csv"]


def test_help_has_an_example_to_copy(command: Command) -> None:
    answer = command("backtest", "--help")
    assert answer.code == 0
    for words in ("rlforecast backtest runs.toml --upto-fraction .25,.5\n", "--siblings", "Exit codes"):
        assert words in answer.out
