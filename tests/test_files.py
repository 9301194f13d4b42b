"""Nothing half-written is left behind and nobody else's files are deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forecast.errors import InputError
from forecast.files import check_directory, replacing, replacing_directory

MARKER = "fit.json"
OWNED = (MARKER, "old only")


def contents(folder: Path) -> dict[str, str]:
    """Relative path -> text of every file below, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


def break_off(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error


def existing(folder: Path) -> Path:
    folder.mkdir()
    (folder / MARKER).write_text("old")
    (folder / "old only").write_text("old")
    return folder


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.csv"
    with replacing(path) as temporary:
        temporary.write_text("first")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        break_off(temporary, ZeroDivisionError)
    assert contents(tmp_path) == {"deep/table.csv": "first"}
    with replacing(path) as temporary:
        temporary.write_text("second")
        assert path.read_text() == "first"
    assert contents(tmp_path) == {"deep/table.csv": "second"}


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match="cannot be written"), replacing(tmp_path / "file" / "table.csv"):
        pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"), replacing(tmp_path / "folder") as temporary:
        temporary.write_text("x")
    assert contents(tmp_path) == {"file": "not a folder"}


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "fit"
    with replacing_directory(path, owned=OWNED) as folder:
        (folder / MARKER).write_text("new")
        assert not path.exists()
    assert contents(tmp_path) == {f"deep/fit/{MARKER}": "new"}
    assert os.access(path, os.R_OK | os.X_OK)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_nothing_and_keeps_the_old(tmp_path: Path, error: type[BaseException]) -> None:
    path = existing(tmp_path / "fit")
    before = contents(tmp_path)
    expected = InputError if error is OSError else error
    for target in (path, tmp_path / "another"):
        with (
            pytest.raises(expected),
            replacing_directory(target, overwrite=True, owned=OWNED) as folder,
        ):
            break_off(folder / MARKER, error)
    assert contents(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_overwriting_replaces_everything_in_the_folder(tmp_path: Path) -> None:
    path = existing(tmp_path / "fit")
    with replacing_directory(path, overwrite=True, owned=OWNED) as folder:
        (folder / MARKER).write_text("new")
    assert contents(tmp_path) == {f"fit/{MARKER}": "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_the_old_folder_comes_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = existing(tmp_path / "fit")
    before = contents(tmp_path)
    original = os.replace

    def refuse(source: Path, target: Path) -> None:
        if Path(target) == path and Path(source).name != "old":
            raise OSError("disk went away")
        original(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with (
        pytest.raises(InputError, match="disk went away"),
        replacing_directory(path, overwrite=True, owned=OWNED) as folder,
    ):
        (folder / MARKER).write_text("new")
    assert contents(tmp_path) == before
    assert [p.name for p in tmp_path.iterdir()] == ["fit"]


def test_an_existing_folder_needs_overwrite(tmp_path: Path) -> None:
    path = existing(tmp_path / "fit")
    with pytest.raises(InputError, match=r"output folder exists.*--overwrite"):
        check_directory(path, owned=OWNED)
    check_directory(path, overwrite=True, owned=OWNED)
    (tmp_path / "empty").mkdir()
    check_directory(tmp_path / "empty", overwrite=True, owned=OWNED)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "fit"]


@pytest.mark.parametrize("names", [["thesis.tex"], [".git"], ["runs.parquet", "posterior.nc"]])
def test_somebody_elses_folder_is_never_replaced(tmp_path: Path, names: list[str]) -> None:
    path = tmp_path / "papers"
    path.mkdir()
    for name in names:
        (path / name).write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        check_directory(path, overwrite=True, owned=OWNED)
    with (
        pytest.raises(InputError, match="holds other files"),
        replacing_directory(path, overwrite=True, owned=OWNED),
    ):
        pass
    assert contents(path) == dict.fromkeys(sorted(names), "precious")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "fit").write_text("precious")
    with pytest.raises(InputError, match="output folder is a file"):
        check_directory(tmp_path / "fit", overwrite=True, owned=OWNED)
    with pytest.raises(InputError, match="output folder cannot be written"):
        check_directory(tmp_path / "fit" / "below", owned=OWNED)
    assert contents(tmp_path) == {"fit": "precious"}
