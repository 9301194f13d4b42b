"""Several runs side by side, each in a process of one thread (or on a GPU of its own), in one folder.

The folder holds a folder for each run and a ``runs.toml`` that reads all of them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

from forecast.errors import ForecastError, InputError
from forecast.files import LOCK, locked, replacing
from simulators.minirun.settings import RunSettings
from simulators.minirun.tasks.registry import task
from simulators.minirun.training import ABOUT, FILES, LOG, refuse_other
from simulators.minirun.warm_start import place

SPEC = "runs.toml"
_BEING_WRITTEN = f".{SPEC}.*.tmp"
"""What is left of it where a sweep was killed as it wrote it."""

Report = Callable[[str, dict[str, Any]], None]
"""Called with the name of a run and what it says: ``stage``, ``done``, ``total``, ``pass_rate``."""


class RunFailed(ForecastError):
    """A run ended before its time; the others are kept."""

    exit_code = 1


def name(settings: RunSettings) -> str:
    """Of a run and its folder."""
    return f"{settings.name}-s{settings.seed}"


def sweep(
    runs: Sequence[RunSettings],
    folder: Path,
    *,
    jobs: int,
    devices: Sequence[str] = (),
    overwrite: bool = False,
    report: Report,
) -> None:
    """Do runs, or what is missing of them.

    Parameters
    ----------
    runs : sequence of RunSettings
        Of one task; names (`name`) differ.
    folder : path
        Made if missing. Runs of an earlier sweep of the same task that it holds stay, and are read by ``runs.toml``
        as well.
    jobs : int
        Runs at a time.
    devices : sequence of str
        Identifiers of the GPUs to share out (as in ``CUDA_VISIBLE_DEVICES``), one run at a time on each.
    overwrite : bool
        Begin the named runs anew.
    report : callable

    Raises
    ------
    InputError
        If the folder holds something else, runs of another task, or runs of the same name with other settings.
    RunFailed
        If a run fails.
    """
    _check(runs, folder, overwrite=overwrite)
    with locked(folder, "this sweep"):
        _sweep(runs, folder, jobs, devices, overwrite, report)
        (folder / LOCK).unlink()


def _sweep(
    runs: Sequence[RunSettings],
    folder: Path,
    jobs: int,
    devices: Sequence[str],
    overwrite: bool,
    report: Report,
) -> None:
    for left in folder.glob(_BEING_WRITTEN):
        left.unlink(missing_ok=True)
    for settings in runs if overwrite else ():
        _delete(folder / name(settings))
    listed: set[str] = set()

    def listing(run: str, words: dict[str, Any]) -> None:
        # From its first evaluation on a run can be watched.
        if words["stage"] == "run" and run not in listed:
            listed.add(run)
            with replacing(folder / SPEC) as temporary:
                temporary.write_text(spec(folder), encoding="utf-8")
        report(run, words)

    start = runs[0]
    if not place(task(start.task), start.size, start.warm_seed, start.device).exists():
        # One process makes the checkpoint that all start from.
        _in_processes([(start, None)], 1, devices, listing)
    _in_processes([(each, folder / name(each)) for each in runs], jobs, devices, listing)


def _delete(run: Path) -> None:
    try:
        if run.is_symlink():
            run.unlink()
        elif run.exists():
            shutil.rmtree(run)
    except OSError as error:
        raise InputError("cannot be deleted", where=run, found=error, fix="choose another folder") from error


def _check(runs: Sequence[RunSettings], folder: Path, *, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError("is no folder", where=folder, fix="choose another place")
    for entry in sorted(folder.iterdir()) if folder.exists() else ():
        ours = entry.name in (SPEC, LOCK, ".DS_Store") or entry.match(_BEING_WRITTEN) or _is_run(entry)
        if not ours:
            raise InputError(
                "holds what no mini-run wrote", where=folder, found=entry.name, fix="choose another folder"
            )
    planned = {name(settings): settings.plain() for settings in runs}
    # What is begun anew may be damaged.
    for path, about in _abouts(folder, without=planned if overwrite else ()):
        if path.name not in planned:
            for what in ("task", "verifier", "size", "warm_seed", "heldout", "samples"):
                kept, asked = about.get(what), runs[0].plain()[what]
                if kept != asked:
                    raise InputError(
                        f"holds runs with another {what}",
                        where=folder,
                        found=f"{kept!r} in {path.name}",
                        expected=repr(asked),
                        fix="choose another folder",
                    )
        elif not overwrite:
            refuse_other(planned[path.name], about, path)


def _is_run(path: Path) -> bool:
    """Whether a folder holds a run, or what is left of one that was killed as it began."""
    return path.is_dir() and all(
        entry.name in FILES or entry.name.startswith(tuple(f".{name}." for name in FILES))
        for entry in path.iterdir()
    )


def _abouts(folder: Path, *, without: Collection[str] = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Folders of runs, each with its settings."""
    for path in sorted(folder.glob(f"*/{ABOUT}")):
        if path.parent.name in without:
            continue
        try:
            about = json.loads(path.read_text(encoding="utf-8"))["settings"]
            # Those that `spec` names a run by.
            about = dict(about) | {"name": str(about["name"]), "seed": int(about["seed"])}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError("cannot be read", where=path, found=error, fix="delete its folder") from error
        yield path.parent, about


def spec(folder: Path) -> str:
    """``runs.toml`` for all runs in a folder."""
    lines = [
        "[metric]",
        'column = "pass_rate"',
        'kind = "pass_rate"',
        'split = "validation"',
        'stratum = "stratum"',
        'trials = "trials"',
        "",
        "[compute]   # or tokens, rollouts, or column step with unit steps",
        'column = "flops"',
        'unit = "flops"',
    ]
    for path, about in _abouts(folder):
        if (path / LOG).is_file():
            lines += [
                "",
                "[[run]]",
                f"name = {json.dumps(path.name)}",
                f"path = {json.dumps(f'{path.name}/{LOG}')}",
                f"recipe = {json.dumps(about['name'])}",
                f"seed = {about['seed']}",
            ]
    return "\n".join(lines) + "\n"


Job = tuple[RunSettings, Path | None]
"""A run and its folder; None: only the warm start."""


def _in_processes(jobs: Sequence[Job], limit: int, devices: Sequence[str], report: Report) -> None:
    waiting, free = list(jobs), list(devices)
    running: dict[str, tuple[subprocess.Popen[str], str | None]] = {}
    said: Queue[tuple[str, dict[str, Any] | None]] = Queue()
    failed: dict[str, str] = {}
    limit = min(limit, len(devices)) if devices else limit
    with _killed(running):
        while waiting or running:
            while waiting and len(running) < limit:
                settings, folder = waiting.pop(0)
                device = free.pop(0) if free else None
                running[name(settings)] = (_start(settings, folder, device, said), device)
            if not running:
                break
            run, words = said.get()
            if words is not None:
                if "error" in words:
                    failed[run] = words["error"]
                else:
                    report(run, words)
                continue
            process, device = running.pop(run)
            free += [device] if device is not None else []
            if process.wait() and run not in failed:
                failed[run] = (
                    f"its process ended with exit code {process.returncode} (killed, or out of memory?). What has "
                    "been done is kept: run the same command to go on"
                )
    if failed:
        raise RunFailed("; ".join(f"{run}: {why}" for run, why in failed.items()))


def _start(
    settings: RunSettings,
    folder: Path | None,
    device: str | None,
    said: Queue[tuple[str, dict[str, Any] | None]],
) -> subprocess.Popen[str]:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    gpu = {} if device is None else {"CUDA_VISIBLE_DEVICES": device}
    process = subprocess.Popen(
        [sys.executable, "-m", "simulators.minirun.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | threads | gpu,
        # Ctrl-C reaches this process alone, which stops them.
        start_new_session=True,
    )
    assert process.stdin is not None
    asked = {"settings": settings.plain(), "folder": None if folder is None else str(folder)}
    process.stdin.write(json.dumps(asked))
    process.stdin.close()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.put((name(settings), json.loads(line)))
        said.put((name(settings), None))

    threading.Thread(target=listen, daemon=True).start()
    return process


@contextmanager
def _killed(running: dict[str, tuple[subprocess.Popen[str], str | None]]) -> Iterator[None]:
    """Leave no process behind."""
    try:
        yield
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()


def visible_gpus(count: int) -> list[str]:
    """Identifiers of `count` GPUs, as the environment of this process names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return (named.split(",") if named else [str(index) for index in range(count)])[:count]
