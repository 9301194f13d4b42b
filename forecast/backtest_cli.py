"""The command that tests forecasts on runs that have already gone on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecast.cli_options import FORMATS, Numbers, posterior_options, read, reading_options

if TYPE_CHECKING:
    from forecast.outlook.backtest import Backtest

OWNED = ("backtest.json", "forecasts.csv", "backtest.png")
"""What the command writes into its folder."""


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="RUNS...")
@click.option(
    "--upto-fraction",
    "fractions",
    type=Numbers(),
    metavar="SHARE,...",
    help="Cut each run at these shares of its own compute. [default: .25,.5]",
)
@click.option("--upto", type=Numbers(), metavar="C,...", help="Cut all runs at these computes instead.")
@click.option(
    "--engine",
    default="particle",
    show_default=True,
    metavar="particle|hierarchical",
    help="particle (every run by itself, fast) or hierarchical (all runs of a cut together).",
)
@click.option(
    "--siblings",
    default="cut",
    show_default=True,
    metavar="cut|whole",
    help="cut (all runs), or whole: one run of each recipe is cut at a time. Needs --engine hierarchical.",
)
@posterior_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Threads of the particle engine. [default: one per core]",
)
@click.option(
    "--format",
    "form",
    type=FORMATS,
    default="table",
    show_default=True,
    help="table (scores), csv (every forecast) or json (settings and scores).",
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Folder to write {', '.join(OWNED)} into.",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier backtest in DIR.")
@reading_options
def backtest(
    paths: tuple[Path, ...],
    fractions: list[float] | None,
    upto: list[float] | None,
    engine: str,
    siblings: str,
    prior: str,
    pool: str,
    floor: str | float,
    seed: int,
    workers: int | None,
    form: str,
    directory: Path | None,
    overwrite: bool,
    **reading: Any,
) -> None:
    """Cut finished runs early, refit, and score the forecasts on what came later.

    RUNS is a runs.toml, log files or folders, or a saved run table. Beside ours are scored: the least-squares grid,
    nonlinear least squares with the interval from its covariance, a power law, and the last value carried forward.
    Errors of one run move together: trust the number of runs, not that of evaluations.

    Exit codes: 0 done, 1 no run could be scored, 2 bad input.

    \b
    rlforecast backtest runs.toml --upto-fraction .25,.5
    rlforecast backtest runs.toml --upto 8000 -o backtest
    rlforecast backtest runs.toml --engine hierarchical --siblings whole
    """
    import json

    from forecast.backtest_tables import print_scores, print_skipped
    from forecast.errors import InputError, Withheld
    from forecast.files import check_directory
    from forecast.terminal import messages, output, print_receipts, print_undeclared, progress_reporter

    if fractions is not None and upto is not None:
        raise InputError("give either --upto-fraction or --upto", found="both")
    if directory is not None:
        check_directory(directory, overwrite=overwrite, owned=OWNED)
    say = messages()
    runs = read(paths, reading)
    kept_in = OWNED[0] if directory is not None else ""
    print_receipts(say, runs.receipts, kept_in)
    print_undeclared(say, runs)
    from forecast.outlook.backtest import backtest as backtest_runs

    with progress_reporter(say) as report:
        result = backtest_runs(
            runs,
            fractions=fractions,
            upto=upto,
            engine=engine,
            siblings=siblings,
            prior=prior,
            floor=floor,
            pool=pool,
            seed=seed,
            workers=workers,
            report=report,
        )
    if result.forecasts.empty:
        reasons = [f"{row.run} at {row.cut}: {row.reason}" for row in result.skipped.itertuples()]
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        raise Withheld(f"no run could be scored: {'; '.join(reasons[:3])}{more}")
    print_skipped(say, result.skipped, kept_in)
    told = result.to_dict() | {"receipts": [receipt.to_dict() for receipt in runs.receipts]}
    if form == "csv":
        click.echo(result.forecasts.to_csv(index=False), nl=False)
    elif form == "json":
        click.echo(json.dumps(told, indent=2))
    else:
        print_scores(output(), result)
    if directory is not None:
        _write(directory, result, told, overwrite)
        say.print(f"wrote {', '.join(OWNED)} in {directory}")


def _write(directory: Path, result: Backtest, told: dict[str, Any], overwrite: bool) -> None:
    import json

    from forecast.files import replacing_directory
    from forecast.report.backtest_figure import backtest_figure

    with replacing_directory(directory, overwrite=overwrite, owned=OWNED) as folder:
        (folder / "backtest.json").write_text(json.dumps(told, indent=2) + "\n")
        result.forecasts.to_csv(folder / "forecasts.csv", index=False)
        backtest_figure(result).savefig(folder / "backtest.png")
