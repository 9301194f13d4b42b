"""How far a study is: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_LINES = 10


@contextmanager
def task_progress(
    console: Console | None, name: str, total: int, done: int
) -> Iterator[Callable[[int], None]]:
    """Give a callback that takes the number of finished tasks.

    Parameters
    ----------
    console : rich.console.Console or None
        None shows nothing.
    name : str
        Of the study.
    total, done : int
        Tasks, and how many of them an earlier process finished.
    """
    if console is None:
        yield lambda count: None
    elif console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            bar = progress.add_task(escape(name), total=total, completed=done)
            yield lambda count: progress.update(bar, completed=count)
    else:
        yield _lines(console, name, total, done)


def _lines(console: Console, name: str, total: int, done: int) -> Callable[[int], None]:
    started = time.monotonic()
    shown = _LINES * done // total

    def update(count: int) -> None:
        nonlocal shown
        if _LINES * count // total > shown:
            shown = _LINES * count // total
            elapsed = time.monotonic() - started
            left = elapsed * (total - count) / (count - done)
            console.print(
                f"{escape(name)}: {count} of {total} tasks, {_clock(elapsed)} elapsed, about {_clock(left)} left"
            )

    return update


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
