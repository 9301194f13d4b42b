"""Writing without leaving anything half-written behind."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from forecast.errors import InputError

LOCK = ".lock"
"""File in a folder that one process holds; see `locked`."""


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
        with _parents(path):
            try:
                yield temporary
                os.replace(temporary, path)
            finally:
                # Where the parent is a file there is nothing to delete either.
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def replacing_directory(
    path: str | Path, *, overwrite: bool = False, owned: Collection[str]
) -> Iterator[Path]:
    """Give a temporary folder; on success it becomes `path`, on failure it is deleted.

    Raises
    ------
    InputError
        As `check_directory`.
    """
    path = Path(path)
    check_directory(path, overwrite=overwrite, owned=owned)
    try:
        with _parents(path):
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            try:
                yield temporary
                temporary.chmod(0o755)
                _move(temporary, path)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise _unwritable(path, error) from error
    except InputError as error:
        # A file inside could not be written: its place is the folder as it was asked for.
        if isinstance(error.__cause__, OSError):
            raise _unwritable(path, error.__cause__) from error
        raise


def _move(temporary: Path, path: Path) -> None:
    """Put a folder in its place; what was there comes back if that fails."""
    if not path.exists():
        os.replace(temporary, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    os.replace(path, old / "old")
    try:
        os.replace(temporary, path)
    except OSError:
        os.replace(old / "old", path)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Make the folders above `path`; on failure those that were made are deleted."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for folder in missing:
                folder.rmdir()
        raise


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        "cannot be written", where=path, found=error.strerror or str(error), fix="choose another place"
    )


def check_directory(path: str | Path, *, overwrite: bool = False, owned: Collection[str]) -> None:
    """Fail now, not after a long fit, if `path` cannot become an output folder.

    Parameters
    ----------
    path : path
    overwrite : bool
        Allow a folder that holds nothing but `owned`: never delete what somebody else put there.
    owned : collection of str
        Names of the files and folders that are about to be written.

    Raises
    ------
    InputError
        If it exists and may not be replaced, is a file, or its parent cannot be written to.
    """
    path = Path(path)
    try:
        if os.path.lexists(path) and not path.is_dir():
            raise InputError("output folder is a file", where=path, fix="choose another -o")
        if path.exists() and not overwrite:
            raise InputError(
                "output folder exists",
                where=path,
                fix="overwrite it (--overwrite, overwrite=True) or choose another",
            )
        foreign = (
            sorted(entry.name for entry in path.iterdir() if entry.name not in owned) if path.exists() else []
        )
        if foreign:
            raise InputError(
                "output folder holds other files, which --overwrite would delete",
                where=path,
                found=foreign[0],
                fix="move them or choose another -o",
            )
        here = Path.cwd()
        if path.resolve() in (here, *here.parents):
            raise InputError("output folder is the folder you are in", where=path, fix="choose another -o")
        # Nothing is made yet: a run that fails later leaves no empty folders.
        nearest = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise InputError(
            "output folder cannot be written",
            where=path,
            found=error.strerror or str(error),
            fix="choose another -o",
        ) from error


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold `folder` (made if missing) for this process alone; the system lets go when the process dies.

    Parameters
    ----------
    folder : path
    what : str
        What is being done in it ("this study").

    Raises
    ------
    InputError
        If another process holds it, or it cannot be written to.
    """
    try:
        descriptor = _acquire(folder, what)
    except OSError as error:
        raise InputError(
            "cannot be written", where=folder, found=error.strerror or str(error), fix="choose another -o"
        ) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(folder: Path, what: str) -> int:
    path = folder / LOCK
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its last holder may have deleted the file after it was opened here.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode() or "another process"
            os.close(descriptor)
            raise InputError(
                f"{what} is being run already",
                where=folder,
                found=holder,
                fix="wait for it or choose another -o",
            ) from None
        os.close(descriptor)
