"""Commands that look for second rises and collapses: once, or as a log grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from forecast.cli_options import FORMATS, FloorChoice, HazardChoice, read, reading_options
from forecast.errors import InputError

_HORIZON = click.option(
    "--horizon",
    type=float,
    metavar="C",
    help="Compute up to which transitions ahead are counted. [default: four times what each run has used]",
)
_HAZARD = click.option(
    "--hazard",
    type=HazardChoice(),
    help="Transitions expected per decade of compute. [default: rise=.05,collapse=.05]",
)
_FLOOR = click.option(
    "--floor",
    type=FloorChoice(),
    default="measured",
    show_default=True,
    help="Pass rate before training, for logs: as logged at step 0, unknown, or stated.",
)
_SEED = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the sampler, for logs."
)


class Seconds(click.ParamType):
    """A time to wait."""

    name = "SECONDS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse, or fail with what was found."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        if not 1 <= seconds <= 86_400:
            self.fail(f"found {value!r}, expected seconds from 1 to 86400", param, ctx)
        return seconds


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="DIR|RUNS...")
@_HORIZON
@_HAZARD
@_FLOOR
@_SEED
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
@reading_options
def transitions(
    paths: tuple[Path, ...],
    horizon: float | None,
    hazard: Any,
    floor: str | float,
    seed: int,
    form: str,
    **reading: Any,
) -> None:
    """Has a second rise or a collapse begun? Flags per run and recipe.

    DIR is a saved fit, whose runs in the fitted range are looked at, also those that carry no forecast. RUNS are logs
    or a runs.toml. A run is read at every evaluation as if it had been watched; the highest state stays:

    \b
    prior_only  nothing seen; before a move begins, only the hazard speaks
    watch       probability that one has begun above .3, or log Bayes factor above 1
    alarm       probability above .8 or log Bayes factor above 3, also against slow noise

    Exit codes: 0 done, 2 bad input.

    \b
    rlforecast transitions fit --hazard rise=.1,collapse=.02
    rlforecast transitions runs.toml --format csv
    """
    from forecast.outlook.transitions import transitions as look
    from forecast.terminal import messages, output, print_receipts, print_records, progress_reporter
    from forecast.transitions_tables import print_reasons, transitions_table

    say = messages()
    source: Any
    fits = [path for path in paths if (path / "fit.json").is_file()]
    if fits and len(paths) > 1:
        raise InputError("name one saved fit, or logs", found=", ".join(map(str, paths)))
    if fits:
        from forecast.fits import load

        _refuse_for_a_fit()
        source = load(paths[0])
    else:
        source = read(paths, reading)
        print_receipts(say, source.receipts)
    with progress_reporter(say) as report:
        table = look(source, horizon=horizon, hazard=hazard, floor=floor, seed=seed, report=report)
    if form == "table":
        output().print(transitions_table(table))
        print_reasons(output(), table)
    else:
        print_records(table, form)


def _refuse_for_a_fit() -> None:
    """Refuse options that say how logs are read: a fit has been read, and keeps its floor and seed."""
    context = click.get_current_context()
    for option in context.command.params:
        name = str(option.name)
        own = name in ("paths", "horizon", "hazard", "form")
        if not own and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise InputError(
                "option has no effect on a saved fit",
                found=option.opts[0],
                fix="leave it out, or name the logs",
            )


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="FILE...")
@_HORIZON
@_HAZARD
@_FLOOR
@_SEED
@click.option(
    "--every",
    type=Seconds(),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the log is looked at.",
)
@click.option("--once", is_flag=True, help="Print the states once and stop.")
@reading_options
def watch(
    paths: tuple[Path, ...],
    horizon: float | None,
    hazard: Any,
    floor: str | float,
    seed: int,
    every: float,
    once: bool,
    **reading: Any,
) -> None:
    """Watch growing logs: print the state of every run, then each change.

    FILE is a log or a runs.toml. A log that holds no evaluation yet is waited for. Stop with Ctrl-C. States are those of
    transitions --help: prior_only, watch, alarm; from the eighth evaluation on.

    Exit codes: 0 stopped, 2 bad input.

    \b
    rlforecast watch runs.toml --every 300
    """
    if not paths and reading["spec"] is None:
        raise InputError("nothing to watch", fix="name a log or a runs.toml")
    lines = _changes(paths, reading, horizon, hazard, floor, seed, wait=not once)
    with suppress(KeyboardInterrupt):
        for batch in lines:
            for line in batch:
                click.echo(line)
            if once:
                return
            time.sleep(every)


def _changes(
    paths: tuple[Path, ...],
    reading: dict[str, Any],
    horizon: float | None,
    hazard: Any,
    floor: str | float,
    seed: int,
    *,
    wait: bool,
) -> Iterator[list[str]]:
    """Read the logs each time it is asked, and give the states that are new."""
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.transitions import Watched
    from forecast.terminal import messages
    from forecast.transitions_tables import changed_lines

    watched: Watched | None = None
    shown: dict[tuple[str, str], tuple[str, str]] = {}
    waiting = ""
    while True:
        try:
            runs = read(paths, reading)
        except InputError as error:
            # What was read before will be whole again; what is there but cannot be read yet may grow.
            if not wait or not (watched or all(path.exists() for path in paths)):
                raise
            if str(error) != waiting:
                waiting = str(error)
                messages().print(f"waiting: {waiting}", markup=False)
            yield []
            continue
        waiting = ""
        first = watched is None
        watched = watched or Watched(runs, floor=floor, seed=seed)
        watched.runs = runs
        # A log that has grown past the horizon is still watched.
        ahead = horizon if first or (horizon or 0) > watched.last else None
        table = watched.table(horizon=ahead, hazard=hazard or Hazard())
        yield list(changed_lines(table, shown))


COMMANDS = (transitions, watch)
