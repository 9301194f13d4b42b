"""One unit of work of a study, and how a worker does it."""

from __future__ import annotations

import json
import pickle
import platform
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from forecast.errors import ForecastError, InputError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

KEY_COLUMN = "task"
"""Column of a study's table that says which task a row comes from."""

PACKAGES = ("rlforecast", "numpy", "scipy", "numba", "pymc", "nutpie")
"""Packages on whose versions results may depend."""

ENVIRONMENT = {
    # One thread per worker: as many workers as cores would otherwise fight for them.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    # Compiled sums are ordered by it: draws would differ in the last digits.
    "PYTHONHASHSEED": "0",
}
"""Environment of every worker, set before it loads a numerical library."""


@dataclass(frozen=True)
class Task:
    """One independent fit, world or mini-run.

    Attributes
    ----------
    key : str
        Names the task; unique in its study.
    parameters : mapping
        All that the work needs, seeds included, as JSON types (tuples become lists). ``task["seed"]`` reads one.

    Raises
    ------
    TypeError
        If a parameter is of no JSON type.
    """

    key: str
    parameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", json.loads(canonical(self.parameters)))

    def __getitem__(self, name: str) -> Any:
        return self.parameters[name]


Work = Callable[[Task], "pd.DataFrame | Sequence[Mapping[str, Any]]"]


@dataclass(frozen=True)
class Outcome:
    """What came of a task: a table, or what went wrong and where."""

    task: Task
    table: pa.Table | None = None
    error: str = ""
    traceback: str = ""


def canonical(value: Any) -> str:
    """One JSON text for equal values."""
    return json.dumps(value, sort_keys=True)


def check_tasks(work: Work, tasks: Sequence[Task]) -> None:
    """Refuse what would only fail in a worker, or at the end.

    Raises
    ------
    ValueError
        If keys are empty or repeated.
    TypeError
        If `work` cannot be sent to another process.
    """
    keys = [task.key for task in tasks]
    if "" in keys or len(set(keys)) < len(keys):
        raise ValueError("every task needs a key of its own")
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(f"work must be a function at the top level of a module, got {work!r}") from error


@cache
def package_versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of Python and of `packages` in this process."""
    return {"python": platform.python_version()} | {name: _version(name) for name in packages}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, str]:
    """Say the entries in which two mappings differ: as they were, and as they are."""
    changed = [name for name in {**then, **now} if canonical(then.get(name)) != canonical(now.get(name))]
    return _listed(then, changed), _listed(now, changed)


def _listed(values: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {json.dumps(values[name]) if name in values else 'not set'}" for name in names)


def perform(work: Work, task: Task, versions: Mapping[str, str]) -> Outcome:
    """Do one task in a worker; what it raises comes back as text.

    An exception object may not survive the way between processes, and would take the pool down with it.
    """
    try:
        here = package_versions(tuple(name for name in versions if name != "python"))
        if here != versions:
            theirs, ours = differences(here, versions)
            raise InputError(
                "a worker has other versions",
                where=platform.node(),
                found=theirs,
                expected=ours,
                fix="install the same versions on every machine",
            )
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
        return Outcome(task, _table(work(task)))
    except (Exception, SystemExit) as error:
        text = str(error) if isinstance(error, ForecastError) else f"{type(error).__name__}: {error}"
        return Outcome(task, error=text, traceback=traceback.format_exc())


def _table(result: Any) -> pa.Table:
    import pandas as pd
    import pyarrow as pa

    if not isinstance(result, pd.DataFrame):
        result = pd.DataFrame(list(result))
    if KEY_COLUMN in result.columns:
        raise ValueError(f"a result may not have a column {KEY_COLUMN!r}: it holds the task's key")
    # Without what pandas notes about itself, tables of all tasks join by their Arrow types alone; a column that is
    # missing throughout has no type, whatever pandas made of it.
    table = pa.Table.from_pandas(result, preserve_index=False).replace_schema_metadata(None)
    for place, name in enumerate(table.column_names):
        if table.column(place).null_count == len(table):
            table = table.set_column(place, name, pa.nulls(len(table)))
    return table
