"""The ``rlforecast`` command: composes the command groups and turns errors into one line and an exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from forecast.cli import COMMANDS
from forecast.errors import ForecastError, printable
from simulators.cli import COMMANDS as SIMULATORS
from studies.stress_cli import stress
from studies.study_cli import study


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of stdout has gone (`| head`): not an error of ours, though click would exit with 1.
            _close_stdout()
            return 0


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="rlforecast")
def rlforecast() -> None:
    """Forecast RL training of language models from run logs, with intervals that mean what they say.

    \b
    rlforecast demo                           all of it on published runs
    rlforecast inspect logs/                  what is in my logs?
    rlforecast fit logs/ --metric acc -o fit  fit what has been run
    rlforecast predict fit --at 16000         what would more compute buy?
    rlforecast report fit -o report.html      the same as a page with figures
    rlforecast stress fit                     what if a run rises again, or collapses?

    Exit codes: 0 done, 1 forecast withheld (diagnostics failed or the data cannot carry one), 2 bad input.
    """


@click.command()
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("rlforecast-demo"),
    show_default=True,
    metavar="DIR",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier demo in DIR.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
def demo(directory: Path, overwrite: bool, seed: int) -> None:
    """Fit the first 8,000 GPU-hours of nine published runs, forecast the rest, and score the forecast.

    Data: the long runs of Khatri et al. 2025 (ScaleRL), read off the paper's figures. Writes a figure, an HTML
    page, a table and the fit.

    Exit codes: 0 done, 1 the sampler's diagnostics failed, 2 DIR cannot be written.
    """
    from forecast.terminal import messages, progress_reporter
    from studies.demo import run_demo

    console = messages()
    with progress_reporter(console) as report:
        run_demo(directory, overwrite=overwrite, seed=seed, console=console, report=report)


for command in (*COMMANDS, *SIMULATORS, stress, study, demo):
    rlforecast.add_command(command)


def main() -> None:
    """Run the command line."""
    _fix_hash_seed()
    try:
        code = rlforecast.main(prog_name="rlforecast", standalone_mode=False)
        sys.stdout.flush()
    except ForecastError as error:
        _fail(str(error), error.exit_code)
    except click.exceptions.Exit as exit_request:
        code = exit_request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = 2
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "rlforecast"
        text = error.format_message().rstrip(".")
        _fail(f"{text}{'' if text.endswith('?') else '.'} See {command} --help", 2)
    except click.ClickException as error:
        _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted, nothing was written", 130)
    except BrokenPipeError:
        # As above, when the rest is written at the end.
        _close_stdout()
        code = 0
    except OSError as error:
        # A path that is too long, a folder that may not be looked into, a full disk behind stdout.
        _close_stdout()
        _fail(f"{error.filename or 'output'}: cannot be read or written, found {error.strerror or error}", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _fix_hash_seed() -> None:
    """Start over with a fixed hash seed: compiled sums are ordered by it, so draws would differ in the last digits."""
    if os.name == "posix" and "PYTHONHASHSEED" not in os.environ:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _close_stdout() -> None:
    """Forget what is still to be written, or Python tries once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, code: int) -> None:
    click.echo("rlforecast: " + " ".join(printable(message).split()), err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
