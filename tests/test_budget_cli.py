"""Comparisons and decisions from the command line: what is printed, where, and how it ends."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command import Command
from fits_by_hand import fit_by_hand, hand_runs
from rich.console import Console
from weighed_by_hand import hand_weighed

import forecast as fc
from forecast.budget_tables import print_comparison, print_decision
from forecast.fits import Fit
from forecast.outlook.domain import USUAL
from forecast.report.sentences import decision_sentences
from forecast.runs.table import Metric, Runs

MODELS = {"alpha": "qwen-1b", "beta": "qwen-7b"}


def hand_declared() -> Runs:
    runs = hand_runs()
    return replace(
        runs,
        table=runs.table.assign(model=runs.table["run"].map(MODELS)),
        domain={"context_length": "8192", "epochs": "1"},
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Fit]:
    folder = tmp_path_factory.mktemp("kept")
    fit = fit_by_hand(hand_declared())
    fit.save(folder / "fit")
    return folder, fit


@pytest.fixture
def saved(kept: tuple[Path, Fit], monkeypatch: pytest.MonkeyPatch) -> Fit:
    """A fit in the folder ``fit``, which no test changes."""
    folder, fit = kept
    monkeypatch.chdir(folder)
    # Averaging weighs families once per fit.
    return replace(fit)


def read(text: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(text))


def same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Equal but for rounding, and for empty text, which CSV cannot tell from nothing."""
    assert list(found.columns) == list(expected.columns)
    for name in expected:
        if pd.api.types.is_numeric_dtype(expected[name]):
            np.testing.assert_allclose(found[name].astype(float), expected[name], rtol=1e-9, atol=1e-9)
        else:
            assert found[name].fillna("").tolist() == expected[name].tolist()


# Compare


def test_a_comparison_as_a_table(saved: Fit, command: Command) -> None:
    answer = command("compare", "fit")
    assert answer.code == 0, answer.err
    assert answer.err == ""
    row = fc.compare(saved).iloc[0]
    assert answer.out.startswith("beta against alpha: not decided.")
    # Models differ, so they are named.
    for word in (
        "alpha (qwen-1b)",
        "beta (qwen-7b)",
        "pass_rate on validation",
        "gpu_hours",
        "not decided",
        f"{row['speed_q50']:.2f} [{row['speed_q05']:.2f}, {row['speed_q95']:.2f}]",
        f"{row['efficiency_q50']:.2f} [{row['efficiency_q05']:.2f}, {row['efficiency_q95']:.2f}]",
        f"{row['difference_q50']:+.3f}",
    ):
        assert word in answer.out, word


@pytest.mark.usefixtures("place")
def test_models_that_do_not_differ_are_not_named(command: Command) -> None:
    runs = hand_runs()
    fit_by_hand(replace(runs, table=runs.table.assign(model="qwen-7b"))).save("one")
    assert "qwen-7b" not in command("compare", "one").out


def test_a_comparison_as_data_alone(saved: Fit, command: Command) -> None:
    expected = fc.compare(saved)
    as_csv = command("compare", "fit", "--format", "csv")
    assert (as_csv.code, as_csv.err) == (0, "")
    same(read(as_csv.out), expected)
    as_json = command("compare", "fit", "--format", "json")
    assert (as_json.code, as_json.err) == (0, "")
    same(pd.DataFrame(json.loads(as_json.out)), expected)


def test_runs_and_margins(saved: Fit, command: Command) -> None:
    wide = read(command("compare", "fit", "--level", "run", "--margin", ".9", "--format", "csv").out)
    assert wide["p_within"].tolist() == [1.0]
    narrow = read(command("compare", "fit", "--margin", "1e-9", "--format", "csv").out)
    assert narrow["p_within"].tolist() == [0.0]
    by_run = fc.compare(saved, level="run")["difference_q50"].item()
    assert wide["difference_q50"].item() == pytest.approx(by_run)


@pytest.mark.usefixtures("place")
def test_many_pairs_are_not_all_put_into_words(command: Command) -> None:
    fit_by_hand(hand_runs([f"r{i}" for i in range(6)]), ceiling_sd=0.001).save("fit")
    table = fc.compare(fc.load("fit"))
    decided = int((table["verdict"] != "not decided").sum())
    assert len(table) == 15
    assert 0 < decided < 15
    out = command("compare", "fit").out
    assert f"{15 - decided} of 15 pairs are not decided." in out
    assert out.count("probability") == decided + sum(
        row["verdict"].startswith("only") for _, row in table.iterrows()
    )


# Budget


def test_a_decision_as_a_table(saved: Fit, command: Command) -> None:
    words = ("--spend", "8000,32000", "--target", ".6", "--price", "2.5")
    answer = command("budget", "fit", *words)
    assert answer.code == 0, answer.err
    decision = fc.budget(saved, spend=[8_000, 32_000], target=0.6, price=2.5)
    flat = " ".join(answer.out.split())
    for head, rest in decision_sentences(decision):
        for sentence in (head, *rest):
            assert " ".join(sentence.split()) in flat
    for row in decision.options.to_dict("records"):
        assert row["option"] in answer.out
        assert f"{row['q50']:.3f} [{row['q05']:.3f}, {row['q95']:.3f}]" in answer.out
    assert "P(target)" in answer.out
    assert "Compute in all to 0.600" in answer.out
    assert "transitions excluded: jumps and collapses beyond the data are not in these numbers" in answer.out
    # What it takes for granted goes to stderr.
    silent = [key.replace("_", " ") for key in USUAL if key not in ("context_length", "epochs", "model")]
    assert answer.err.splitlines() == [f"outside the map: not declared, so not checked: {', '.join(silent)}"]


def test_without_target_and_price_there_are_no_columns_for_them(saved: Fit, command: Command) -> None:
    out = command("budget", "fit", "--spend", "8000", "--no-experiments").out
    assert "P(target)" not in out
    assert "money" not in out
    assert "Look first" not in out
    assert "P(best)" in out


def test_a_decision_as_csv_is_its_options_alone(saved: Fit, command: Command) -> None:
    answer = command("budget", "fit", "--at", "16000,9000", "--format", "csv")
    assert answer.code == 0, answer.err
    same(read(answer.out), fc.budget(saved, [16_000, 9_000]).options)
    assert all(line.startswith("outside the map: ") for line in answer.err.splitlines())


def test_a_decision_as_json_is_everything(saved: Fit, command: Command) -> None:
    answer = command(
        *("budget", "fit", "--money", "20000", "--price", "qwen-1b=2,qwen-7b=5", "--worth", "40000"),
        *("--target", ".6", "--domain", "context_length=32768,epochs=1", "--format", "json"),
    )
    assert answer.code == 0, answer.err

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(answer.out, parse_constant=refuse)
    decision = fc.budget(
        saved,
        money=[20_000],
        price=fc.Prices(None, {"qwen-1b": 2, "qwen-7b": 5}),
        worth=40_000,
        target=0.6,
    )
    expected = decision.to_dict()
    assert {key: found[key] for key in expected} == json.loads(json.dumps(expected))
    said = decision_sentences(decision)
    assert [(one["headline"], one["details"]) for one in found["sentences"]] == said
    assert found["outside_map"][0] == "context length changes from 8192 to 32768: no run here has seen that"
    assert set(found) == {*expected, "sentences", "outside_map"}
    assert answer.err.splitlines() == [f"outside the map: {sentence}" for sentence in found["outside_map"]]
    extra = {row["option"]: row["extra"] for row in found["options"]}
    assert (extra["continue alpha"], extra["continue beta"]) == (10_000, 4_000)


def test_names_and_experiments(saved: Fit, command: Command) -> None:
    found = json.loads(
        command(
            "budget", "fit", "--spend", "8000", "--name", "alpha", "--no-experiments", "--format", "json"
        ).out
    )
    assert [row["option"] for row in found["options"]] == ["continue alpha", "start alpha", "stop with beta"]
    assert found["experiments"] == []
    assert found["targets"] == []


def test_compute_beyond_what_was_tested_is_said(saved: Fit, command: Command) -> None:
    answer = command("budget", "fit", "--at", "160000", "--no-experiments", "--format", "csv")
    assert "outside the map: compute goes to 20 times what was fitted" in answer.err


def test_transitions_averaged(saved: Fit, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = {name: hand_weighed() for name in saved.runs.names}
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: weighed)
    words = ("budget", "fit", "--spend", "1e6", "--no-experiments")
    answer = command(*words, "--transitions", "averaged", "--hazard", "rise=.2")
    assert answer.code == 0, answer.err
    assert "transitions averaged, hazard per decade of compute rise=0.2,collapse=0.05" in answer.out
    plain, moving = (
        read(command(*words, *more, "--format", "csv").out) for more in ((), ("--transitions", "averaged"))
    )
    assert (moving["q95"] - moving["q05"] > plain["q95"] - plain["q05"])[:4].all()


# How it ends


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("words", [("compare",), ("budget", "--spend", "8000")])
def test_failed_diagnostics_withhold_both(command: Command, words: tuple[str, ...]) -> None:
    fit_by_hand(passed=False).save("fit")
    name, *rest = words
    answer = command(name, "fit", *rest)
    assert answer.code == 1
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "withheld" in answer.err
    assert "R-hat" in answer.err
    forced = command(name, "fit", *rest, "--force")
    assert forced.code == 0, forced.err
    assert "beta" in forced.out


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), ["give one of at, spend and money", "found none", "--spend 8000"]),
        (("--spend", "1", "--at", "9000"), ["found at and spend"]),
        (("--spend", "1", "--money", "5"), ["found spend and money"]),
        (("--spend", "much"), ["--spend", "'much'", "numbers separated by commas"]),
        (("--spend", "-1"), ["spend", "must be positive", "found -1"]),
        (("--spend", "nan"), ["must be positive", "found nan"]),
        (("--spend", "1,,2"), ["--spend", "'1,,2'"]),
        (("--money", "100"), ["needs a price", "--price"]),
        (("--spend", "1", "--price", "cheap"), ["price is no number", "'cheap'"]),
        (("--spend", "1", "--price", "0"), ["a price must be positive"]),
        (("--spend", "1", "--price", "qwen-1b=2"), ["no price for model 'qwen-7b'", "MODEL=PRICE"]),
        (("--spend", "1", "--domain", "epochs"), ["domain not understood", "'epochs'", "KEY=VALUE"]),
        (("--spend", "1", "--domain", "epochs=1,epochs=2"), ["domain not understood"]),
        (("--spend", "1", "--worth", "0"), ["worth", "positive", "found 0"]),
        (("--spend", "1", "--target", "60"), ["target outside the metric's scale", "found 60"]),
        (("--spend", "1", "--target", "high"), ["--target", "high"]),
        (("--spend", "1", "--name", "gamma"), ["no such run or recipe", "gamma", "alpha | beta"]),
        (("--spend", "1", "--transitions", "perhaps"), ["'perhaps'", "excluded | averaged"]),
        (("--spend", "1", "--hazard", ".1"), ["hazard", "averaged"]),
        (("--spend", "1", "--hazard", "often"), ["often"]),
        (("--spend", "1", "--format", "xml"), ["--format", "xml"]),
    ],
)
@pytest.mark.usefixtures("saved")
def test_a_wrong_question_is_one_line(command: Command, words: tuple[str, ...], found: list[str]) -> None:
    answer = command("budget", "fit", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert "Traceback" not in answer.err
    assert len(answer.err.splitlines()) == 1
    for word in found:
        assert word in answer.last, answer.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--margin", "0"), "--margin"),
        (("--margin", "2"), "--margin"),
        (("--margin", "nan"), "margin"),
        (("--level", "team"), "team"),
        (("--level", "new_run"), "new_run"),
        (("--format", "xml"), "xml"),
    ],
)
@pytest.mark.usefixtures("saved")
def test_a_wrong_comparison_is_one_line(command: Command, words: tuple[str, ...], found: str) -> None:
    answer = command("compare", "fit", *words)
    assert answer.code == 2
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert found in answer.err


@pytest.mark.usefixtures("place")
def test_one_recipe_is_nothing_to_compare(command: Command) -> None:
    fit_by_hand(hand_runs({"a": "same", "b": "same"})).save("fit")
    answer = command("compare", "fit")
    assert answer.code == 2
    assert "nothing to compare" in answer.last
    assert command("compare", "fit", "--level", "run").code == 0


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("words", [("compare", "absent"), ("budget", "absent", "--spend", "1")])
def test_no_fit_is_one_line(command: Command, words: tuple[str, ...]) -> None:
    answer = command(*words)
    assert answer.code == 2
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "absent" in answer.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("compare", ["--level", "--margin", "rlforecast compare fit", "only faster"]),
        (
            "budget",
            [
                "--at",
                "--spend",
                "--money",
                "--worth",
                "--domain",
                "--hazard",
                "rlforecast budget fit --spend",
            ],
        ),
    ],
)
def test_help_says_what_it_does_and_how_it_ends(
    command: Command, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = command(name, "--help")
    assert (answer.code, answer.err) == (0, "")
    flat = " ".join(answer.out.split())
    for word in [*words, "Exit codes: 0 done"]:
        assert word in flat
    assert max(map(len, answer.out.splitlines())) <= 84  # examples are not broken


# Tables


def printed(show: Any, *what: Any, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    show(console, *what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


WIDTHS = [80, 200]
LONG = {f"qwen3-4b-dapo-lr1e-6-seed{seed}": "dapo-lr1e-6" for seed in (0, 1)} | {"cispo": "cispo"}


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_comparison_is_cut(width: int) -> None:
    fit = fit_by_hand(hand_runs(LONG))
    table = fc.compare(fit)
    out = printed(print_comparison, fit, table, width=width)
    assert "…" not in out
    row = table.iloc[0]
    assert f"{row['efficiency_q50']:.2f} [{row['efficiency_q05']:.2f}, {row['efficiency_q95']:.2f}]" in out
    assert max(map(len, out.splitlines())) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_of_a_decision_is_cut(width: int) -> None:
    fit = fit_by_hand(hand_runs(LONG))
    decision = fc.budget(fit, spend=[8_000], target=0.6, price=2.5, experiments=False)
    out = printed(print_decision, decision, width=width)
    assert "…" not in out
    assert "next +10 %" in out
    for row in decision.options.to_dict("records"):
        assert f"{row['q50']:.3f} [{row['q05']:.3f}, {row['q95']:.3f}]" in out


@pytest.mark.parametrize(
    "metric",
    [Metric("acc", scale=(0.0, 100.0)), Metric("err", kind="error_rate", scale=(1.0, 0.0), split="train")],
    ids=["percent", "errors"],
)
def test_other_scales_in_tables(metric: Metric) -> None:
    fit = fit_by_hand(hand_runs(metric=metric))
    target = metric.from_fraction(0.95)
    decision = fc.budget(fit, spend=[8_000, 7e6], target=target, experiments=False)
    out = printed(print_decision, decision, width=200)
    out += printed(print_comparison, fit, fc.compare(fit), width=200)
    assert "nan" not in out
    assert "None" not in out
    assert ("note: y is measured on training prompts" in out) == (metric.split == "train")


def test_names_are_no_markup() -> None:
    fit = fit_by_hand(hand_runs(("[bold]a[/bold]", "b[red]")))
    decision = fc.budget(fit, spend=[8_000], target=0.6, experiments=False)
    out = printed(print_decision, decision, width=200)
    assert "continue [bold]a[/bold]" in out
    assert "start b[red]" in out
    out = printed(print_comparison, fit, fc.compare(fit), width=200)
    assert "[bold]a[/bold]" in out
