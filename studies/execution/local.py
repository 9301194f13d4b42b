"""Tasks in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for

from studies.execution.errors import TaskFailed
from studies.execution.tasks import ENVIRONMENT, Outcome, Task, Work, perform

_IN_FLIGHT = 2
"""Tasks per worker that have been handed out: one runs, one waits."""


def run_local(
    work: Work, tasks: Sequence[Task], versions: Mapping[str, str], *, workers: int | None = None
) -> Iterator[Outcome]:
    """Yield what comes of `tasks` as they finish; closing the iterator kills the workers.

    Raises
    ------
    TaskFailed
        If a worker dies.
    """
    workers = min(workers or os.cpu_count() or 1, len(tasks))
    waiting = iter(tasks)
    pending: dict[Future[Outcome], Task] = {}
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_follow_parent
    )
    finished = False
    try:
        while True:
            with environment(ENVIRONMENT), _interrupts_held_back():
                for task in islice(waiting, _IN_FLIGHT * workers - len(pending)):
                    pending[pool.submit(perform, work, task, versions)] = task
            if not pending:
                break
            # A wait without an end would not notice Ctrl-C if another thread was given the signal.
            wait(pending, timeout=1, return_when=FIRST_COMPLETED)
            for future in [future for future in pending if future.done()]:
                outcome = future.result()
                del pending[future]
                yield outcome
        finished = True
    except BrokenProcessPool as error:
        keys = ", ".join(task.key for task in pending.values())
        raise TaskFailed(
            f"a worker process died (killed, or out of memory?) in one of the tasks {keys}. Finished tasks are "
            "kept: run the same command to go on, with fewer --workers if memory ran out"
        ) from error
    finally:
        if not finished:
            for process in set(multiprocessing.active_children()) - others:
                process.kill()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Start processes that never see Ctrl-C: they inherit the mask, and this process stops them itself."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow_parent() -> None:
    """End this worker when its parent was killed: it would finish its task for nobody, then wait forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
