"""``rlforecast simulate``: what it writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command, tree

from forecast.runs.read import read_runs
from forecast.runs.table import Runs
from simulators.evaluations import Evaluations
from simulators.files import OWNED
from simulators.noise import Noise
from simulators.transitions import Transition
from simulators.truth import Curves
from simulators.worlds import draw_world


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_is_worth_reading(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = command("simulate", "--help")
    assert (answer.code, answer.err) == (0, "")
    for word in (
        "Exit codes: 0 done",
        "rlforecast simulate -o world\n",
        "--restarts",
        "LOW,HIGH",
        "truth.csv",
    ):
        assert word in answer.out
    assert max(map(len, answer.out.splitlines())) <= 84


def test_defaults_write_a_world_that_its_spec_reads(place: Path, command: Command) -> None:
    answer = command("simulate", "-o", "world")
    assert (answer.code, answer.out) == (0, "")
    assert "rlforecast fit world/runs.toml" in answer.err
    assert sorted(path.name for path in (place / "world").iterdir()) == sorted({*OWNED} - {"curves.csv"})
    assert len(tree(place / "world" / "logs")) == 12
    runs = read_runs(place / "world" / "runs.toml")
    saved = Runs.load(place / "world" / "runs.parquet")
    assert runs.table["value"].tolist() == saved.table["value"].tolist()
    assert len(saved.table) == 12 * 75
    assert runs.recipes == saved.recipes
    assert pd.read_csv(place / "world" / "truth.csv")["run"].tolist() == saved.names


def test_options_reach_the_world(place: Path, command: Command) -> None:
    words = """--recipes 3 --seeds 2 --models 2 --points 40 --horizon 100 --spacing log --prompts 50 --samples 2
        --ceiling 0.9,0.95 --transition collapse --transition-share 1 --noise-correlation 0.9,0.95
        --glitches 0.2 --missing 0.2 --restarts 3 --no-floors --seed 5 -o world"""
    assert command("simulate", *words.split()).code == 0
    truth = pd.read_csv(place / "world" / "truth.csv")
    assert len(truth) == 12
    assert truth["family"].eq("collapse").all()
    assert truth["noise_correlation"].between(0.9, 0.95).all()
    runs = Runs.load(place / "world" / "runs.parquet")
    assert (runs.metric.prompts, runs.metric.samples_per_prompt) == (50, 2)
    assert runs.floors == {}
    assert runs.table["model"].nunique() == 2
    assert (runs.table["compute"].min() >= 1, runs.table["compute"].max()) == (True, 100)
    assert 12 * 20 < len(runs.table) < 12 * 40
    expected = draw_world(
        3,
        2,
        models=2,
        curves=Curves(ceiling=(0.9, 0.95)),
        transition=Transition("collapse", share=1.0),
        noise=Noise(correlation=(0.9, 0.95)),
        evaluations=Evaluations(
            points=40,
            horizon=100.0,
            start=0.0,
            spacing="log",
            prompts=50,
            samples_per_prompt=2,
            floors=False,
            glitches=0.2,
            missing=0.2,
            restarts=3.0,
        ),
        rng=np.random.default_rng(5),
    )
    assert runs.hash() == expected.runs.hash()


def test_the_settings_written_down_draw_the_same_world_again(place: Path, command: Command) -> None:
    assert command("simulate", "--transition", "either", "--recipes", 2, "--seed", 3, "-o", "world").code == 0
    about = json.loads((place / "world" / "world.json").read_text())
    settings = about["settings"]
    again = draw_world(
        settings["recipes"],
        settings["seeds"],
        models=settings["models"],
        curves=Curves(**settings["curves"]),
        transition=Transition(**settings["transition"]),
        noise=Noise(**settings["noise"]),
        evaluations=Evaluations(**settings["evaluations"]),
        rng=np.random.default_rng(about["seed"]),
    )
    assert again.runs.hash() == about["runs_sha256"]


def test_other_families_and_no_transition_by_default(place: Path, command: Command) -> None:
    assert command("simulate", "--family", "burr", "-o", "world").code == 0
    truth = pd.read_csv(place / "world" / "truth.csv")
    assert truth["family"].eq("burr").all()
    assert truth["tail"].notna().all()


def test_a_world_is_replaced_only_when_asked(place: Path, command: Command) -> None:
    assert command("simulate", "--points", 5, "-o", "world").code == 0
    first = (place / "world" / "runs.parquet").read_bytes()
    again = command("simulate", "--points", 5, "--seed", 1, "-o", "world")
    assert again.code == 2
    assert "world: output folder exists" in again.last
    assert (place / "world" / "runs.parquet").read_bytes() == first
    assert command("simulate", "--points", 5, "--seed", 1, "-o", "world", "--overwrite").code == 0
    assert (place / "world" / "runs.parquet").read_bytes() != first
    assert command("simulate", "--points", 5, "-o", "world", "--overwrite").code == 0
    assert (place / "world" / "runs.parquet").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ceiling", "0.9"], "found '0.9', expected two numbers"),
        (["--ceiling", "0.9,0.5"], "ceiling is not a range, found 0.9, 0.5"),
        (["--family", "burr", "--transition", "rise"], "found family burr, expected family sigmoid"),
        (["--transition-share", "0.5"], "Add --transition"),
        (["--transition", "rise", "--transition-share", "2"], "found 2, expected 0 to 1"),
        (["--glitches", "-1"], "probability of glitches is out of range, found -1"),
        (["--restarts", "-1"], "found -1"),
        (["--horizon", "0"], "horizon must be above 0"),
        (["--recipes", "0"], "0 is not in the range"),
    ],
)
def test_bad_settings_are_one_line_and_leave_nothing(
    place: Path, command: Command, words: list[str], message: str
) -> None:
    answer = command("simulate", *words, "-o", "world")
    assert answer.code == 2
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1
    assert tree(place) == []
