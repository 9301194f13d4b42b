"""Threads for compiled work that releases the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Lock, Thread


def in_threads[Task, Result](
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int
) -> Iterator[Result]:
    """Yield results in the order of the tasks.

    An interrupt is answered at once. Compiled code cannot be stopped, so its threads are daemons, which neither keep
    the process alive nor hold up its end as those of `concurrent.futures` would.
    """
    todo, taking, stopped = iter(enumerate(tasks)), Lock(), Event()
    done: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        while not stopped.is_set():
            with taking:
                taken = next(todo, None)
            if taken is None:
                return
            number, task = taken
            try:
                done.put((number, work(task), None))
            except BaseException as error:  # raised where the results are asked for
                done.put((number, None, error))

    for _ in range(min(workers, len(tasks))):
        Thread(target=run, daemon=True).start()
    ready: dict[int, Result | None] = {}
    try:
        for number in range(len(tasks)):
            while number not in ready:
                finished, result, error = done.get()
                if error is not None:
                    raise error
                ready[finished] = result
            yield ready.pop(number)  # type: ignore[misc]
    finally:
        stopped.set()
