"""The real command in-process, and what it leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from studies import cli


@dataclass
class Answer:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The one line of a failure; notes on reading may stand before it."""
        return self.err.splitlines()[-1]

    @property
    def notes(self) -> list[str]:
        """The lines before."""
        return self.err.splitlines()[:-1]


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def fill(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


Command = Callable[..., Answer]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``rlforecast`` with some arguments."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # else the command starts itself anew

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["rlforecast", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        printed = capsys.readouterr()
        return Answer(int(left.value.code or 0), printed.out, printed.err)

    return run
