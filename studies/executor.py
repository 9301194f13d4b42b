"""The one place where many independent fits, worlds or mini-runs are run: here, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecast.errors import InputError
from studies.execution.errors import Interrupted, TaskFailed
from studies.execution.tasks import PACKAGES, Outcome, Task, Work, check_tasks, package_versions

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

__all__ = ["EXECUTORS", "Interrupted", "Task", "TaskFailed", "run_tasks"]

EXECUTORS = ("local", "ray")


def run_tasks(
    work: Work,
    tasks: Sequence[Task],
    folder: str | Path,
    *,
    name: str,
    settings: Mapping[str, Any],
    executor: str = "local",
    workers: int | None = None,
    gpus_per_task: float = 0,
    packages: Sequence[str] = PACKAGES,
    overwrite: bool = False,
    console: Console | None = None,
) -> pd.DataFrame:
    """Do every task once and return all rows.

    The answer does not depend on the executor, the number of workers or interruptions. What has finished is kept
    in `folder`: called again with the same settings, only what is missing is done.

    Parameters
    ----------
    work : callable
        Function at the top level of a module: takes a `Task`, returns a DataFrame or a list of rows (dicts). All
        randomness comes from seeds among the task's parameters.
    tasks : sequence of Task
        Their order is the order of the rows. Tasks may be added when a study is taken up again.
    folder : path
        Where finished tasks are kept; made if missing.
    name : str
        Of the study.
    settings : mapping
        What the results depend on, as JSON types: kept beside them, and compared when the study is taken up again.
    executor : {"local", "ray"}
        Processes of this machine, or a Ray cluster; see `studies.execution.ray_cluster.run_ray`.
    workers : int, optional
        Most tasks at a time. Default: one per core of the machine or cluster.
    gpus_per_task : float
        What a task asks of a Ray cluster; local workers share the GPUs of the machine.
    packages : sequence of str
        Packages whose versions are kept and compared like `settings`.
    overwrite : bool
        Start over where `folder` holds tasks done with other settings or versions.
    console : rich.console.Console, optional
        Where progress is shown. Default: nowhere.

    Returns
    -------
    pandas.DataFrame
        Column ``task`` (the key), then those of the results; plain NumPy and ``str`` columns, NaN where a task
        gives no such column.

    Raises
    ------
    InputError
        If `folder` is in use, holds tasks done with other settings, versions or parameters, or Ray is missing.
    TaskFailed
        If a task raises or loses its worker; the rest is cancelled, finished tasks are kept.
    Interrupted
        On Ctrl-C (a KeyboardInterrupt); finished tasks are kept.
    """
    if executor not in EXECUTORS:
        raise InputError("unknown executor", found=executor, expected=" or ".join(EXECUTORS))
    tasks = list(tasks)
    check_tasks(work, tasks)
    versions = package_versions(tuple(packages))
    identity = {"study": name, "settings": dict(settings), "versions": versions}

    # Arrow and pandas, which a command that only parses its options does not need.
    from forecast.files import locked
    from studies.execution.manifest import Manifest
    from studies.execution.progress import task_progress

    def say(text: str) -> None:
        if console is not None:
            console.print(text, markup=False)

    def outcomes(missing: Sequence[Task]) -> Iterator[Outcome]:
        if executor == "local":
            from studies.execution.local import run_local

            return run_local(work, missing, versions, workers=workers)
        from studies.execution.ray_cluster import run_ray

        return run_ray(work, missing, versions, workers=workers, gpus_per_task=gpus_per_task, say=say)

    with locked(Path(folder), "this study"):
        manifest = Manifest(Path(folder), identity, tasks, overwrite=overwrite)
        done = manifest.tables
        missing = [task for task in tasks if task.key not in done]
        if done:
            say(f"{name}: {len(done)} of {len(tasks)} tasks were done before")
        if missing:
            try:
                with (
                    task_progress(console, name, len(tasks), len(done)) as progress,
                    closing(outcomes(missing)) as finished,  # type: ignore[type-var]
                ):
                    for outcome in finished:
                        manifest.keep(outcome)
                        progress(len(done))
            except KeyboardInterrupt as interrupt:
                text = f"interrupted: {len(done)} of {len(tasks)} tasks done, run the same command to go on"
                say(text)
                raise Interrupted(text) from interrupt
        return manifest.result(tasks)
