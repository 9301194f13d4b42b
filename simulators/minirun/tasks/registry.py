"""The tasks by name."""

from __future__ import annotations

from simulators.minirun.tasks.arithmetic import ADDMUL, CARRY, CARRY_LATE
from simulators.minirun.tasks.base import Task
from simulators.minirun.tasks.chain import CHAIN
from simulators.minirun.tasks.route import ROUTE
from simulators.ranges import check_choice

TASKS: dict[str, Task] = {task.name: task for task in (ADDMUL, CARRY, CARRY_LATE, CHAIN, ROUTE)}


def task(name: str) -> Task:
    """Return the task of that name.

    Raises
    ------
    InputError
        If there is none; the message names all there are.
    """
    check_choice("task", name, tuple(TASKS))
    return TASKS[name]
