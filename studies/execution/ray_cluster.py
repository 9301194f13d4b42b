"""Tasks on a Ray cluster; without one, on a Ray of this machine."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from forecast.errors import InputError
from studies.execution.local import environment
from studies.execution.tasks import ENVIRONMENT, Outcome, Task, Work, perform

_IN_FLIGHT = 2
_RETRIES = 3
"""Times that a task is started again when its machine is lost."""
_PATIENCE = 10.0
"""Seconds that a cluster may take to answer."""

_NONE_RUNS = "Could not find any running Ray"
"""What Ray says when there is no cluster, in contrast to one that cannot be joined."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Its hook would build the environment of `uv run` anew for every worker.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def run_ray(
    work: Work,
    tasks: Sequence[Task],
    versions: Mapping[str, str],
    *,
    workers: int | None = None,
    gpus_per_task: float = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Outcome]:
    """Yield what comes of `tasks` as they finish; closing the iterator cancels the rest.

    The cluster is the one at ``RAY_ADDRESS``, else one that this machine belongs to, else one is started here and
    stopped at the end (also with ``RAY_ADDRESS=local``).

    Parameters
    ----------
    workers : int, optional
        Most tasks at a time. Default: what the cluster holds.
    gpus_per_task : float
    say : callable
        Told when a cluster is started.

    Raises
    ------
    InputError
        If Ray is not installed, the cluster cannot be joined, or it lacks GPUs.
    """
    with environment(_QUIET):
        try:
            import ray
        except ModuleNotFoundError as error:
            raise InputError(
                "--executor ray needs Ray, which is not installed",
                fix='install it: uv sync --extra cluster, or pip install "rlforecast[cluster]"',
            ) from error
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, workers, say)
    pending: dict[Any, Task] = {}
    try:
        slots = _slots(ray, gpus_per_task)
        remote = ray.remote(perform).options(
            num_cpus=1,
            num_gpus=gpus_per_task,
            max_retries=_RETRIES,
            runtime_env={"env_vars": ENVIRONMENT},
        )
        waiting = iter(tasks)
        while True:
            most = workers or _IN_FLIGHT * slots
            for task in islice(waiting, most - len(pending)):
                pending[remote.remote(work, task, dict(versions))] = task
            if not pending:
                return
            done, _ = ray.wait(list(pending), timeout=1)
            if not done:
                # Machines may have joined.
                slots = _slots(ray, gpus_per_task)
            for reference in done:
                try:
                    outcome = ray.get(reference)
                except ray.exceptions.RayTaskError as error:
                    # Code that the worker cannot import, mostly: what the work raises comes back as an outcome.
                    outcome = _lost(pending[reference], error, str(error).strip().splitlines()[-1])
                except ray.exceptions.RayError as error:
                    outcome = _lost(pending[reference], error, str(error).strip().splitlines()[0])
                del pending[reference]
                yield outcome
    finally:
        for reference in pending:
            ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()


def _lost(task: Task, error: Exception, message: str) -> Outcome:
    return Outcome(task, error=f"{type(error).__name__}: {message}", traceback=str(error))


def _connect(ray: Any, workers: int | None, say: Callable[[str], None]) -> None:
    address = os.environ.get("RAY_ADDRESS", "")
    # What workers print would land on stdout, among the results.
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address != "local":
        try:
            _knock(address)
            ray.init(address=address or "auto", **options)
            return
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            if address or _NONE_RUNS not in str(error):
                raise InputError(
                    "Ray cluster cannot be joined",
                    where=f"RAY_ADDRESS={address}" if address else "",
                    found=error,
                    fix="check that it runs (ray status) and whether it wants a token (RAY_AUTH_MODE=token); "
                    "RAY_ADDRESS=local uses this machine alone",
                ) from error
    count = workers or os.cpu_count() or 1
    ray.init(address="local", num_cpus=count, include_dashboard=False, **options)
    say(
        f"{'started' if address else 'no Ray cluster found: started'} Ray on this machine with {count} workers"
    )


def _knock(address: str) -> None:
    """Raise OSError if nobody listens at ``host:port``: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()


def _slots(ray: Any, gpus_per_task: float) -> int:
    """Count the tasks that the cluster can hold at a time."""
    resources = ray.cluster_resources()
    slots = resources.get("CPU", 0)
    if gpus_per_task:
        gpus = resources.get("GPU", 0)
        if gpus < gpus_per_task:
            raise InputError(
                "the Ray cluster lacks GPUs", found=f"{gpus:g}", expected=f"{gpus_per_task:g} per task"
            )
        slots = min(slots, gpus / gpus_per_task)
    return max(1, int(slots))
