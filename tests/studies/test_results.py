"""Result files say how they were made, come back byte for byte, and never replace others unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
import work
from click.testing import CliRunner
from matplotlib.figure import Figure

from forecast.errors import InputError
from forecast.files import locked
from studies.conduct import Where
from studies.executor import Interrupted, run_tasks
from studies.results import check_results, parts_folder, read_provenance, write_results
from studies.study_cli import study, study_options

TABLE = pd.DataFrame({"task": ["a", "b"], "coverage": [0.9, float("nan")]})


def write(folder: Path, **changes: Any) -> list[Path]:
    figure = Figure()
    figure.subplots().plot([0, 1], [0, 1])
    options: dict[str, Any] = {"title": "Coverage of 90 % intervals", "command": "rlforecast study coverage"}
    return write_results(
        folder,
        "coverage",
        TABLE,
        figure,
        "| a | b |\n|---|---|\n",
        {"sets": 2},
        **options | {"seed": 3} | changes,
    )


def test_files_say_how_they_were_made(tmp_path):
    table, figure, text = write(tmp_path / "new", data_sha256="abc")
    pd.testing.assert_frame_equal(pd.read_parquet(table), TABLE)
    provenance = read_provenance(table)
    versions = provenance.pop("versions")
    assert provenance == {
        "study": "coverage",
        "title": "Coverage of 90 % intervals",
        "command": "rlforecast study coverage",
        "seed": 3,
        "settings": {"sets": 2},
        "data_sha256": "abc",
    }
    first, blank, *rest = text.read_text().splitlines()
    assert first.startswith(
        "Coverage of 90 % intervals. Command: `rlforecast study coverage`, seed 3, python 3."
    )
    assert f"numpy {versions['numpy']}" in first
    assert (blank, rest) == ("", ["| a | b |", "|---|---|"])
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_same_study_gives_the_same_bytes(tmp_path):
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(list((tmp_path / "a").iterdir())) == 3


def test_nothing_appears_if_one_file_cannot_be_made(tmp_path):
    figure = Figure()
    figure.text(0.5, 0.5, r"$\nonsense$")
    with pytest.raises(ValueError, match="nonsense"):
        write_results(tmp_path / "new", "coverage", TABLE, figure, "", {}, title="", command="", seed=0)
    assert not (tmp_path / "new").exists()


def test_finished_study_is_replaced_only_when_asked(tmp_path):
    check_results(tmp_path / "new", "coverage")
    write(tmp_path)
    with pytest.raises(InputError, match=r"coverage\.parquet: exists\. Overwrite it \(--overwrite"):
        check_results(tmp_path, "coverage")
    check_results(tmp_path, "coverage", overwrite=True)
    check_results(tmp_path, "recovery")
    with pytest.raises(InputError, match="output folder is a file"):
        check_results(tmp_path / "coverage.md", "coverage")


def test_finished_tasks_go_when_results_are_there(tmp_path):
    folder = parts_folder(tmp_path, "coverage")
    run_tasks(work.draws, work.tasks(1), folder, name="coverage", settings={}, workers=1)
    assert folder.name == "coverage.parts"
    with locked(folder, "this study"):
        write(tmp_path)
    assert list(folder.glob("*.parquet")), "another process works on them"
    write(tmp_path)
    assert not folder.exists()


def test_other_parquet_files_are_no_study(tmp_path):
    TABLE.to_parquet(tmp_path / "other.parquet")
    with pytest.raises(InputError, match="not the table of a study"):
        read_provenance(tmp_path / "other.parquet")


@pytest.fixture
def studies(monkeypatch) -> dict[str, Any]:
    """What a study was called with that stands in for one of the group's."""
    called: dict[str, Any] = {}

    @click.command()
    @study_options
    def some(where: Where) -> None:
        called.update(vars(where))
        if where.workers == 3:
            raise Interrupted

    monkeypatch.setattr(study, "get_command", lambda context, name: some)
    return called


def test_every_study_takes_the_same_options(studies, tmp_path):
    assert CliRunner().invoke(study, ["some", "-o", str(tmp_path)]).exit_code == 0
    assert studies == {
        "directory": tmp_path,
        "executor": "local",
        "workers": None,
        "seed": 0,
        "overwrite": False,
    }
    arguments = ["--output", "x", "--executor", "ray", "--workers", "2", "--seed", "5", "--overwrite"]
    assert CliRunner().invoke(study, ["some", *arguments]).exit_code == 0
    assert studies == {
        "directory": Path("x"),
        "executor": "ray",
        "workers": 2,
        "seed": 5,
        "overwrite": True,
    }
    assert CliRunner().invoke(study, ["some", "-o", "x", "--workers", "0"]).exit_code == 2


def test_interrupted_study_adds_no_words(studies):
    answer = CliRunner().invoke(study, ["some", "-o", "x", "--workers", "3"])
    assert (answer.exit_code, answer.output) == (130, "")
