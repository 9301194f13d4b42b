"""What the command prints, where it prints it, and how it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from command import Command, fill, tree
from fits_by_hand import fit_by_hand, hand_runs
from rich.console import Console

import forecast.fits
from forecast.fits import Fit
from forecast.runs.read import read_runs
from forecast.runs.table import ComputeAxis, Metric
from forecast.terminal import forecast_table, print_parameters

RLFORECAST = Path(sys.executable).with_name("rlforecast")
POINTS = "series,gpu_hours,pass_rate\n" + "".join(
    f"{name},{1000 * i},{0.2 + 0.3 * i / (i + 3):.4f}\n" for name in ("a", "b") for i in range(1, 9)
)
SEEDS = "series,recipe,gpu_hours,pass_rate\n" + "".join(
    f"{name},dapo,{500 * i},{0.2 + 0.35 * i**2 / (i**2 + 25) + 0.015 * (-1) ** (i * i // 3):.4f}\n"
    for name in ("a", "b")
    for i in range(1, 17)
)
LONG = {f"qwen3-4b-dapo-lr1e-6-seed{seed}": "dapo-lr1e-6" for seed in (0, 1)} | {"cispo": "cispo"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path, {"points.csv": POINTS})
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Help


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ([], ["rlforecast inspect logs/", "rlforecast predict fit --at 16000", "demo", "fit", "inspect"]),
        (["inspect"], ["rlforecast inspect logs/ --write-spec runs.toml", "TensorBoard", "--format"]),
        (["fit"], ["rlforecast fit runs.toml -o fit --upto 8000\n", "--prompts 1000 --samples 16", "--pool"]),
        (
            ["predict"],
            ["rlforecast predict fit --at 16000,32000\n", "--level recipe --format csv > f", "--to"],
        ),
        (["demo"], ["--overwrite", "rlforecast-demo", "ScaleRL"]),
    ],
)
def test_help_is_worth_reading(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    name: list[str],
    words: list[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = command(*name, "--help")
    assert answer.code == 0
    assert answer.err == ""
    for word in [*words, "Exit codes: 0 done"]:
        assert word in answer.out, answer.out
    assert max(map(len, answer.out.splitlines())) <= 84  # examples are not broken


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys; from studies.cli import rlforecast\n"
        "for words in (['--help'], ['fit', '--help'], ['--version']):\n"
        "    rlforecast.main(words, standalone_mode=False)\n"
        "print(*sorted(m for m in sys.modules if '.' not in m))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"pymc", "pandas", "numpy", "nutpie", "arviz", "xarray", "matplotlib", "rich"}


def test_version(command: Command) -> None:
    answer = command("--version")
    assert answer.code == 0
    assert answer.out.startswith("rlforecast, version ")


def test_no_command_shows_the_help(command: Command) -> None:
    answer = command()
    assert answer.code == 2
    assert answer.err.startswith("Usage: rlforecast")
    assert len(answer.err.splitlines()) > 10


# Inspect


def test_inspect_json_is_data_alone(place: Path, command: Command) -> None:
    answer = command("inspect", "points.csv", "--format", "json")
    assert answer.code == 0
    assert answer.err == ""
    (source,) = json.loads(answer.out)["sources"]
    assert source["metric"] == "pass_rate"
    assert [run["name"] for run in source["runs"]] == ["a", "b"]


def test_a_written_spec_reads_the_same_runs(place: Path, command: Command) -> None:
    answer = command("inspect", "points.csv", "--write-spec", "specs/runs.toml")
    assert answer.code == 0
    assert "points.csv" in answer.out
    assert "rlforecast fit specs/runs.toml -o fit" in answer.err
    runs = read_runs("specs/runs.toml")
    assert runs.names == ["a", "b"]
    assert len(runs.table) == 16
    again = command("inspect", "points.csv", "--write-spec", "specs/runs.toml")
    assert again.code == 2
    assert command("inspect", "points.csv", "--write-spec", "specs/runs.toml", "--overwrite").code == 0


# Fit


def test_fit_prints_what_was_read_and_found(
    place: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    hand_fit: Fit,
) -> None:
    monkeypatch.setattr(forecast.fits, "fit", lambda *arguments, **options: hand_fit)
    answer = command("fit", "points.csv", "--run", "series", "-o", "deep/fit")
    assert answer.code == 0
    assert "alpha" in answer.out
    assert "16 rows read, 16 kept" in answer.err
    assert "rlforecast predict deep/fit --to 16000" in answer.err
    assert sorted(tree(place / "deep")) == ["fit", "fit/fit.json", "fit/posterior.nc", "fit/runs.parquet"]


def test_a_fit_that_did_not_converge_is_kept_but_withheld(
    place: Path,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad = fit_by_hand(passed=False)
    monkeypatch.setattr(forecast.fits, "fit", lambda *arguments, **options: bad)
    answer = command("fit", "points.csv", "--run", "series", "-o", "fit")
    assert answer.code == 1
    assert answer.out == ""
    assert answer.last.startswith("rlforecast: forecast withheld")
    assert (place / "fit" / "fit.json").exists()
    assert command("predict", "fit", "--at", "16000").code == 1
    forced = command("predict", "fit", "--at", "16000", "--force", "--format", "csv")
    assert forced.code == 0
    assert pd.read_csv(io.StringIO(forced.out))["warning"].str.contains("NOT RELIABLE").all()
    assert "NOT RELIABLE" in forced.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engine", "particle", "--pool", "all"), "pools nothing, found --pool all"),
        (("--engine", "nuts"), "unknown engine, found 'nuts', expected auto | hierarchical | particle"),
    ],
)
def test_engines_that_cannot_do_what_is_asked(
    place: Path, command: Command, options: tuple[str, ...], words: str
) -> None:
    answer = command("fit", "points.csv", "--run", "series", "-o", "fit", *options)
    assert answer.code == 2
    assert answer.out == ""
    assert words in answer.last
    assert not (place / "fit").exists()


def test_one_run_needs_no_choice_of_engine(place: Path, command: Command) -> None:
    fill(place, {"seeds.csv": SEEDS})
    one = ("fit", "seeds.csv", "--run", "series", "--where", "series=a", "--seed", "3")
    answer = command(*one, "-o", "fit")
    assert answer.code == 0, answer.err
    assert "nothing pooled" not in answer.err
    kept = json.loads((place / "fit" / "fit.json").read_text())
    assert kept["settings"]["engine"] == "particle"
    assert kept["passed"]
    first = command("predict", "fit", "--at", "16000", "--format", "csv")
    assert first.code == 0
    assert command(*one, "-o", "again", "--engine", "particle").code == 0
    assert command("predict", "again", "--at", "16000", "--format", "csv").out == first.out


def test_runs_fitted_apart_are_not_said_to_be_of_different_models(
    place: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = fit_by_hand(pooled=(), engine="particle")
    monkeypatch.setattr(forecast.fits, "fit", lambda *arguments, **options: apart)
    answer = command("fit", "points.csv", "--run", "series", "-o", "fit", "--engine", "particle")
    assert answer.code == 0, answer.err
    assert "different base models" not in answer.err
    assert "--pool all" not in answer.err


def test_a_recipe_that_was_fitted_run_by_run_says_what_to_do(place: Path, command: Command) -> None:
    fill(place, {"seeds.csv": SEEDS})
    columns = ("--run", "series", "--recipe", "recipe")
    answer = command("fit", "seeds.csv", *columns, "-o", "fit", "--engine", "particle")
    assert answer.code == 0, answer.err
    answer = command("predict", "fit", "--at", "16000", "--level", "recipe")
    assert answer.code == 2
    assert answer.last.endswith("Fit with --engine hierarchical")
    assert command("predict", "fit", "--at", "16000").code == 0


# Predict


def test_data_alone_on_stdout(place: Path, command: Command) -> None:
    fit = fit_by_hand(hand_runs(metric=Metric("acc", split="train", prompts=100)))
    fit.save("fit")
    expected = fit.predict([16_000, 32_000])
    answer = command("predict", "fit", "--at", "16000,32000", "--format", "csv")
    assert answer.code == 0
    pd.testing.assert_frame_equal(
        pd.read_csv(io.StringIO(answer.out), keep_default_na=False), expected, check_dtype=False
    )
    assert "training prompts" in answer.err
    answer = command("predict", "fit", "--at", "16000,32000", "--format", "json")
    rows = json.loads(answer.out)
    assert [row["name"] for row in rows] == expected["name"].tolist()
    assert [row["q50"] for row in rows] == pytest.approx(expected["q50"].tolist())
    assert "training prompts" in answer.err


def test_levels_quantities_and_names(place: Path, command: Command, hand_fit: Fit) -> None:
    hand_fit.save("fit")
    for level in ("run", "recipe", "new_run"):
        for quantity in ("curve", "evaluation"):
            options = ("--level", level, "--quantity", quantity, "--name", "beta", "--format", "csv")
            answer = command("predict", "fit", "--to", "32000", *options)
            table = pd.read_csv(io.StringIO(answer.out))
            assert set(table["name"]) == {"beta"}
            assert set(table["level"]) == {level}
            assert set(table["quantity"]) == {quantity}
            assert table["compute"].iloc[-1] == 32_000


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("axis", ["gpu_hours", "flops"])
def test_tables_are_readable_at_any_width(width: int, axis: str) -> None:
    times = 1e21 if axis == "flops" else 1_000
    runs = hand_runs(LONG, axis=ComputeAxis(axis), compute=[times * k for k in range(1, 17)])
    fit = fit_by_hand(runs, upto=8 * times)
    console = Console(width=width, file=io.StringIO(), highlight=False)
    print_parameters(console, fit, fit.parameters())
    forecast_rows = fit.predict([16 * times, 320 * times])
    console.print(forecast_table(fit, forecast_rows))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for line in text.splitlines():
        assert line.count("[") == line.count("]") or "equal-tailed" in line, line
    for _, row in forecast_rows.iterrows():
        assert f"{row['q50']:.3f} [{row['q05']:.3f}, {row['q95']:.3f}]" in text


# Ends


def test_a_reader_that_goes_away_is_no_error(place: Path, hand_fit: Fit) -> None:
    hand_fit.save("fit")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [RLFORECAST, "predict", "fit", "--to", "99999", "--format", "csv"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_stdout_is_one_line(place: Path, hand_fit: Fit) -> None:
    hand_fit.save("fit")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [RLFORECAST, "predict", "fit", "--at", "16000", "--format", "csv"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "rlforecast: output: cannot be read or written, found No space left on device"
    ]


def test_an_interrupted_fit_leaves_nothing(place: Path) -> None:
    """Ctrl-C while the sampler is being compiled."""
    before = tree(place)
    with subprocess.Popen(
        [RLFORECAST, "fit", "points.csv", "--run", "series", "-o", "deep/fit"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rstrip().endswith("..."):
                break
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert out == ""
    assert err.split("\n", 1)[-1].strip().endswith("rlforecast: interrupted, nothing was written")
    assert "Traceback" not in err
    assert tree(place) == before
