"""Writing without leaving anything half-written behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forecast.errors import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it onto `path` on success, delete it on failure.

    Raises
    ------
    InputError
        If the place cannot be written to.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError("cannot be written", where=path, found=error.strerror or str(error)) from error
    finally:
        # Where the parent is a file there is nothing to delete either.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def replacing_directory(path: str | Path, *, overwrite: bool = False, marker: str) -> Iterator[Path]:
    """Give a temporary folder; on success it becomes `path`, on failure it is deleted.

    Raises
    ------
    InputError
        As `check_directory`.
    """
    path = Path(path)
    check_directory(path, overwrite=overwrite, marker=marker)
    try:
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise InputError("cannot be written", where=path, found=error.strerror or str(error)) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
            os.replace(path, old / "old")
            try:
                os.replace(temporary, path)
            except OSError:
                os.replace(old / "old", path)
                old.rmdir()
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, path)
    except OSError as error:
        raise InputError("cannot be written", where=path, found=error.strerror or str(error)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_directory(path: str | Path, *, overwrite: bool = False, marker: str) -> None:
    """Fail now, not after a long fit, if `path` cannot become an output folder.

    Parameters
    ----------
    path : path
    overwrite : bool
        Allow a folder that is empty or holds the file `marker`: never replace somebody's other files.
    marker : str

    Raises
    ------
    InputError
        If it exists and may not be replaced, is a file, or its parent cannot be written to.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise InputError("output folder is a file", where=path, fix="choose another -o")
    if path.exists() and not overwrite:
        raise InputError("output folder exists", where=path, fix="add --overwrite or choose another -o")
    if path.exists() and not (path / marker).exists() and any(path.iterdir()):
        raise InputError(
            "output folder holds other files, which --overwrite would delete",
            where=path,
            found=f"no {marker}",
            fix="choose another -o",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(
            "output folder cannot be written", where=path, found=error.strerror or str(error)
        ) from error
