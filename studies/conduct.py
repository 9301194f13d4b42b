"""From tasks to result files: what every study does in the same way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from studies.executor import Task, run_tasks

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Report = Callable[["pd.DataFrame"], "tuple[Figure, str]"]
"""From all rows to the figure and the Markdown text."""


@dataclass(frozen=True)
class Where:
    """What `studies.study_cli.study_options` asks for."""

    directory: Path
    executor: str
    workers: int | None
    seed: int
    overwrite: bool


def conduct(
    name: str,
    work: Callable[[Task], pd.DataFrame],
    tasks: Sequence[Task],
    report: Report,
    where: Where,
    *,
    title: str,
    options: Mapping[str, Any],
    arguments: str = "",
    data_sha256: str | None = None,
) -> None:
    """Do the tasks, or what is left of them, and write table, figure and text.

    Parameters
    ----------
    name : str
        Of the study and its command.
    work, tasks
        See `studies.executor.run_tasks`; the seed is among the parameters of every task.
    report : callable
    where : Where
    title : str
        What the results are, in half a line.
    options : mapping
        Options of this study, by name; part of the command that is printed.
    arguments : str
        Its arguments, as the user gave them.
    data_sha256 : str, optional
        Hash of the data that went in.

    Raises
    ------
    InputError
        If results are there and may not be replaced, or cannot be written.
    TaskFailed
        If a task fails.
    """
    from forecast.terminal import messages
    from studies.results import check_results, parts_folder, write_results

    check_results(where.directory, name, overwrite=where.overwrite)
    console = messages()
    rows = run_tasks(
        work,
        tasks,
        parts_folder(where.directory, name),
        name=name,
        settings={"seed": where.seed, "data_sha256": data_sha256},
        executor=where.executor,
        workers=where.workers,
        overwrite=where.overwrite,
        console=console,
    )
    figure, markdown = report(rows)
    given = "".join(f" --{option} {value}" for option, value in options.items())
    paths = write_results(
        where.directory,
        name,
        rows.drop(columns="task"),
        figure,
        markdown,
        {**options, "seed": where.seed},
        title=title,
        command=f"rlforecast study {name}{arguments and ' ' + arguments}{given} --seed {where.seed} -o DIR",
        seed=where.seed,
        data_sha256=data_sha256,
    )
    for path in paths:
        console.print(f"  {path}", markup=False)
