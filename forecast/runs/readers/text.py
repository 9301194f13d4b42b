"""Text of unknown origin as lines: encodings, undecodable bytes, binary files, half-written last lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from forecast.errors import InputError
from forecast.runs.receipt import Receipt

_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEAD = 1 << 16


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    """Read what is no UTF-8 as Latin-1: names that differ stay different."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error("rlforecast-latin-1", _as_latin_1)
# A line longer than this is read whole all the same, but not looked at when the format is guessed.
_LONG = 1 << 20


class TextFile:
    """Lines of one file, decoded one at a time.

    Attributes
    ----------
    path : Path
        The file.
    undecodable : int
        Lines with bytes that are no UTF-8, so far; their bad bytes are read as Latin-1.
    complete : bool
        Whether the last line ended in a line break (known after iterating).

    Raises
    ------
    InputError
        If the file is missing, empty or binary.
    """

    def __init__(self, path: Path) -> None:
        """Look at the first bytes."""
        self.path = path
        self.undecodable = 0
        self.complete = True
        head = read_head(path)
        if not head.strip(b" \t\r\n\x00" + codecs.BOM_UTF8):
            raise InputError("file is empty", where=path, fix="give a log that holds records")
        self._old_mac = b"\n" not in head and b"\r" in head.rstrip(b"\r")
        self._wide = next((name for bom, name in _BOMS if head.startswith(bom)), None)
        if self._wide is None and _is_binary(head):
            raise InputError(
                "binary file of an unknown kind",
                where=path,
                found=f"bytes {head[:8].hex(' ')}",
                expected="CSV, JSON, JSON lines, a console log, TensorBoard events or Parquet",
                fix="unpack or export it first",
            )

    def __iter__(self) -> Iterator[str]:
        """Yield each line without its line break."""
        self.undecodable, self.complete = 0, True
        yield from self._wide_lines(self._wide) if self._wide else self._lines()

    def _lines(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            first = True
            for raw in file.read().splitlines(keepends=True) if self._old_mac else file:
                if first:
                    raw, first = raw.removeprefix(codecs.BOM_UTF8), False
                self.complete = raw.endswith((b"\n", b"\r"))
                try:
                    line = raw.decode()
                except UnicodeDecodeError:
                    self.undecodable += 1
                    line = raw.decode(errors="rlforecast-latin-1")
                if "\0" in line:
                    # Blocks of NUL are what a machine that lost power leaves in a growing file.
                    self.undecodable += 1
                    line = line.replace("\0", "")
                yield line.rstrip("\r\n")

    def _wide_lines(self, encoding: str) -> Iterator[str]:
        with self.path.open(encoding=encoding, errors="replace", newline="\n") as file:
            for line in file:
                self.complete = line.endswith("\n")
                self.undecodable += "\ufffd" in line
                yield line.rstrip("\r\n")

    def sample(self, count: int) -> list[str]:
        """Return the first `count` lines that are not blank, without those of extreme length."""
        lines = (line for line in islice(self, 20 * count) if line.strip() and len(line) < _LONG)
        return list(islice(lines, count))

    def note_undecodable(self, receipt: Receipt) -> None:
        """Mention undecodable lines in `receipt`."""
        if self.undecodable:
            receipt.note(
                f"{self.undecodable} lines hold bytes that are no UTF-8 (read as Latin-1) or zero bytes (left out)"
            )


def read_head(path: Path, size: int = _HEAD) -> bytes:
    """Return the first bytes of a file.

    Raises
    ------
    InputError
        If it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise InputError("cannot be read", where=path, found=error.strerror or str(error)) from error


def _is_binary(head: bytes) -> bool:
    body = head.rstrip(b"\x00")
    if b"\x00" in body:
        return True
    text = body.decode(errors="replace")[:-4]
    strange = sum(c == "\ufffd" or (c < " " and c not in "\t\r\n\x1b\b\f") for c in text)
    return strange > 0.3 * len(text)
