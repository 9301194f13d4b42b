"""``rlforecast simulate --world skills``: what it writes, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from command import Command, tree

from forecast.runs.read import read_runs
from forecast.runs.table import Runs
from simulators.files import OWNED

QUICK = ("--set", "recipe.steps=20", "--set", "prompts.held_out=32", "--points", "5")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_write_a_world_that_its_spec_reads(place: Path, command: Command) -> None:
    answer = command("simulate", "--world", "skills", *QUICK, "-o", "world")
    assert (answer.code, answer.out) == (0, "")
    assert "next: rlforecast fit world/runs.toml" in answer.err
    assert sorted(path.name for path in (place / "world").iterdir()) == sorted(OWNED)
    assert len(tree(place / "world" / "logs")) == 12
    runs = read_runs(place / "world" / "runs.toml")
    saved = Runs.load(place / "world" / "runs.parquet")
    assert runs.table["value"].tolist() == saved.table["value"].tolist()
    assert int(saved.table["stratum"].isna().sum()) == 12 * 5
    assert len(pd.read_csv(place / "world" / "curves.csv")) == 12 * 6
    assert pd.read_csv(place / "world" / "truth.csv")["run"].tolist() == saved.names


def test_options_reach_the_world(place: Path, command: Command) -> None:
    words = """--preset gated --recipe base --recipe big:rollouts=16,learning_rate=2 --seeds 2 --spacing log
        --samples 4 --unit rollouts --seed 3 -o world"""
    assert command("simulate", "--world", "skills", *QUICK, *words.split()).code == 0
    about = json.loads((place / "world" / "world.json").read_text())
    assert about["seed"] == 3
    assert about["settings"]["preset"] == "gated"
    assert about["settings"]["recipes"]["big"]["rollouts"] == 16
    assert about["settings"]["recipes"]["base"]["rollouts"] == 8
    assert about["settings"]["settings"]["prompts"]["gate_share"] == 0.4
    truth = pd.read_csv(place / "world" / "truth.csv")
    assert truth["run"].tolist() == ["base_s0", "base_s1", "big_s0", "big_s1"]
    runs = Runs.load(place / "world" / "runs.parquet")
    assert runs.compute.unit == "rollouts"
    assert runs.table.loc[runs.table["run"] == "big_s0", "compute"].max() == 20 * 64 * 16
    assert "gated" in set(runs.table["stratum"].dropna())
    assert runs.table.loc[runs.table["stratum"].isna(), "trials"].unique().tolist() == [32 * 4]


def test_the_same_seed_writes_the_same_bytes(place: Path, command: Command) -> None:
    for name in ("one", "two"):
        assert command("simulate", "--world", "skills", *QUICK, "--seed", "5", "-o", name).code == 0
    files = tree(place / "one")
    assert files == tree(place / "two")
    for name in files:
        if (place / "one" / name).is_file():
            assert (place / "one" / name).read_bytes() == (place / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset nothing", "unknown preset"),
        ("--set recipe.step=3", "no such setting"),
        ("--set recipe.steps", "expected NAME=VALUE"),
        ("--set recipe.rollouts=1", "one rollout per prompt"),
        ("--recipe a --recipe A", "two recipes of one name"),
        ("--recipe .hidden", "is no recipe"),
        (f"--recipe {'x' * 101}", "is no recipe"),
        ("--recipe a:rollouts=4,rollouts=8", "is set twice"),
        ("--set recipe.steps=3 --set recipe.steps=4", "is set twice"),
        ("--set recipe=none", "names a group"),
        ("--set verifier.reward_model=none --set verifier.reward_model.members=2", "is unset and set"),
        ("--recipe a --recipes 3", "Keep one of the two"),
        ("--samples 10000000", "samples per prompt is out of range"),
        ("--prompts 100", "Say --set prompts.held_out=N"),
        ("--recipe a/b:rollouts=4", "is no recipe"),
        ("--recipe a:rollouts", "is no setting"),
        ("--glitches 0.1", "--glitches belongs to --world parametric"),
        ("--transition rise", "--transition belongs to --world parametric"),
    ],
)
def test_wrong_options_end_in_one_line_and_no_folder(
    place: Path, command: Command, words: str, message: str
) -> None:
    answer = command("simulate", "--world", "skills", *words.split(), "-o", "world")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.last
    assert all(note.startswith("training ") for note in answer.notes)
    assert not (place / "world").exists()


@pytest.mark.parametrize("words", ["--preset gated", "--set recipe.steps=3", "--recipe a", "--unit tokens"])
def test_skills_options_need_a_skills_world(place: Path, command: Command, words: str) -> None:
    answer = command("simulate", *words.split(), "-o", "world")
    assert answer.code == 2
    assert "belongs to --world skills" in answer.err
    assert not (place / "world").exists()


def test_a_world_is_not_overwritten_unasked_and_checked_before_the_work(
    place: Path, command: Command
) -> None:
    assert command("simulate", "--world", "skills", *QUICK, "-o", "world").code == 0
    before = (place / "world" / "truth.csv").read_bytes()
    refused = command("simulate", "--world", "skills", "--set", "recipe.steps=1000000", "-o", "world")
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert (place / "world" / "truth.csv").read_bytes() == before
    # A parametric world has no curves.csv: none of the old one is left.
    assert command("simulate", "--recipes", "1", "--seeds", "1", "--overwrite", "-o", "world").code == 0
    assert not (place / "world" / "curves.csv").exists()


def exact(folder: Path, run: str) -> pd.DataFrame:
    curves = pd.read_csv(folder / "curves.csv")
    return curves[curves["run"] == run].reset_index(drop=True)


def test_a_run_does_not_depend_on_the_other_recipes(place: Path, command: Command) -> None:
    for name, words in {
        "one": "--recipes 1",
        "three": "--recipes 3",
        "base": "--recipe recipe1",
        "turned": "--recipe big:rollouts=16 --recipe recipe1",
    }.items():
        answer = command("simulate", "--world", "skills", *QUICK, *words.split(), "--seeds", "2", "-o", name)
        assert answer.code == 0
    alone = exact(place / "one", "recipe1_s0")
    for name in ("three", "base", "turned"):
        pd.testing.assert_frame_equal(exact(place / name, "recipe1_s0"), alone)


def test_settings_are_strict_json(place: Path, command: Command) -> None:
    assert command("simulate", "--world", "skills", *QUICK, "--recipes", "1", "-o", "world").code == 0
    about = json.loads(
        (place / "world" / "world.json").read_text(), parse_constant=lambda word: pytest.fail(word)
    )
    assert about["settings"]["settings"]["context"]["limit"] == "inf"


def test_the_ceiling_says_what_it_is(place: Path, command: Command) -> None:
    words = "--recipe free --recipe held:kl=.1 --recipe idle:learning_rate=0"
    assert command("simulate", "--world", "skills", *QUICK, *words.split(), "-o", "world").code == 0
    truth = pd.read_csv(place / "world" / "truth.csv").groupby("recipe")["ceiling_is"].first()
    assert truth.to_dict() == {"free": "limit", "held": "bound", "idle": "bound"}


def test_many_exploits_leave_rates_between_0_and_1(place: Path, command: Command) -> None:
    for accepted in ("0", "1"):
        words = f"""--recipes 1 --set verifier.exploits=100 --set verifier.exploit_logit=50 --overwrite
            --set verifier.exploit_accepted={accepted} --set context.limit=500 -o world"""
        assert command("simulate", "--world", "skills", *QUICK, *words.split()).code == 0
        curves = pd.read_csv(place / "world" / "curves.csv")
        rates = curves.drop(columns=["run", "step", "rollouts", "tokens", "flops", "gpu_hours", "entropy"])
        assert ((rates >= 0) & (rates <= 1)).all(axis=None)


def test_none_is_a_value_where_it_is_one(place: Path, command: Command) -> None:
    words = "--recipe a:staleness=2,correction=none --set recipe.correction=ppo -o world"
    assert command("simulate", "--world", "skills", *QUICK, *words.split()).code == 0
    assert pd.read_csv(place / "world" / "truth.csv", keep_default_na=False)["correction"].eq("none").all()


def test_fewer_evaluations_than_asked_for_are_named(place: Path, command: Command) -> None:
    words = "--spacing log --points 1000000000 --recipes 1 -o world --set recipe.steps=30"
    answer = command("simulate", "--world", "skills", *words.split())
    assert answer.code == 0
    assert "(1000000000 were asked for; steps are whole numbers)" in answer.err
