"""``rlforecast study``: the group, and the options that all studies share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from forecast.cli_options import with_options
from studies.conduct import Where
from studies.execution.errors import Interrupted
from studies.executor import EXECUTORS

_MODULES = {
    "calibration": "studies.calibration",
    "sbc": "studies.sbc",
    "scalerl": "studies.scalerl",
    "mini-runs": "studies.mini_runs",
    "transitions": "studies.transitions",
    "public-logs": "studies.public_logs",
    "mechanisms": "studies.mechanisms",
    "allocation": "studies.allocation",
    "precursors": "studies.precursors",
    "real-transitions": "studies.real_transitions",
    "recipes": "studies.recipes",
    "decisions": "studies.decisions",
}
"""Command -> module that holds it under the same name; loaded when asked for, so that `--help` stays quick."""


class _Studies(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        return getattr(import_module(_MODULES[cmd_name]), cmd_name.replace("-", "_"))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Interrupted:
            # It has said how much is done; "nothing was written" would be wrong.
            ctx.exit(130)


@click.group(cls=_Studies)
def study() -> None:
    """Ask how far the forecasts can be trusted, on simulated and published runs.

    A study writes DIR/NAME.parquet (all rows, and how they were made), DIR/NAME.png and DIR/NAME.md. What has
    finished is kept in DIR/NAME.parts until then: run an interrupted study again and it goes on.

    Exit codes: 0 done, 1 a part of the work failed, 2 bad input, 130 interrupted.
    """


def study_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every study; the command takes them as one argument, `where`."""

    @wraps(command)
    def with_where(
        *args: Any,
        directory: Path,
        executor: str,
        workers: int | None,
        seed: int,
        overwrite: bool,
        **kwargs: Any,
    ) -> Any:
        return command(*args, where=Where(directory, executor, workers, seed, overwrite), **kwargs)

    options = [
        click.option(
            "-o",
            "--output",
            "directory",
            type=click.Path(path_type=Path),
            required=True,
            metavar="DIR",
            help="Folder for the result files.",
        ),
        click.option(
            "--executor",
            type=click.Choice(EXECUTORS),
            default="local",
            show_default=True,
            help="Processes of this machine, or a Ray cluster (at RAY_ADDRESS, else one found or started here).",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Most tasks at a time. [default: one per core of the machine or cluster]",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option(
            "--overwrite",
            is_flag=True,
            help="Replace results, and finished tasks of other settings or versions.",
        ),
    ]
    return with_options(with_where, options)
