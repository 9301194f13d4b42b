"""What the tasks of the executor's tests do: importable in workers, traces left in files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from studies.executor import Interrupted, Task, run_tasks


def leave_trace(task: Task) -> None:
    """Make a file that says that the task was executed, where a test wants it."""
    if folder := os.environ.get("TEST_TRACES"):
        Path(folder, f"{task.key}.{time.time_ns()}").touch()


def rows(seed: int, key: str) -> pd.DataFrame:
    """Return a few rows that depend on the seed, how many too; texts in every second task alone."""
    rng = np.random.default_rng(seed)
    count = seed % 3
    note = [f"{key} {k}" for k in range(count)] if seed % 2 else None
    return pd.DataFrame({"k": np.arange(count), "value": rng.normal(size=count), "note": note})


def draws(task: Task) -> pd.DataFrame:
    """Take a while, leave a trace and return `rows`."""
    leave_trace(task)
    time.sleep(task.parameters.get("seconds", 0.0))
    return rows(task["seed"], task.key)


def raises(task: Task) -> list[dict[str, Any]]:
    """Some tasks cannot be done."""
    if task["seed"] == 3:
        raise ZeroDivisionError("nothing to divide by")
    return [{"value": task["seed"]}]


def surroundings(task: Task) -> list[dict[str, Any]]:
    """What a worker sees."""
    names = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")]
    return [{name: os.environ.get(name) for name in names} | {"hash": hash("seed"), "pid": os.getpid()}]


def nothing(task: Task) -> list[dict[str, Any]]:
    """No rows, not even columns."""
    leave_trace(task)
    return []


def dies(task: Task) -> list[dict[str, Any]]:
    """The worker is killed, as by a machine that runs out of memory."""
    os._exit(9)


def echo(task: Task) -> list[dict[str, Any]]:
    """One row: the parameters."""
    return [dict(task.parameters)]


def tasks(count: int, **parameters: Any) -> list[Task]:
    """Return tasks with seeds 0, 1, ...."""
    return [Task(f"world {seed}", {"seed": seed, **parameters}) for seed in range(count)]


def main(folder: str, count: str, seconds: str) -> None:
    """Run a study that a test may stop."""
    run_tasks(
        draws,
        tasks(int(count), seconds=float(seconds)),
        folder,
        name="draws",
        settings={},
        workers=2,
        console=Console(stderr=True),
    )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Interrupted:
        sys.exit(130)
