"""Commands that read logs, fit and forecast."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forecast.backtest_cli import backtest
from forecast.budget_cli import budget, compare
from forecast.cli_options import (
    FORMATS,
    Numbers,
    check_new,
    posterior_options,
    read,
    reading_options,
    transition_options,
    twice,
)
from forecast.errors import InputError
from forecast.report_cli import report
from forecast.transitions_cli import transitions, watch


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option(
    "--write-spec", type=click.Path(path_type=Path), metavar="FILE", help="Write a starting runs.toml."
)
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def inspect(paths: tuple[Path, ...], write_spec: Path | None, overwrite: bool, form: str) -> None:
    """Show what logs hold: runs, restarts, candidate axes, and what would be dropped.

    PATH is a log file, a TensorBoard folder or a folder of logs. Known formats: CSV/TSV (long, wide, W&B export),
    JSON, JSONL, TRL trainer_state.json, TRL and verl console logs, free-text console logs, TensorBoard, Parquet.

    Exit codes: 0 done, 2 bad input.

    \b
    rlforecast inspect logs/ --write-spec runs.toml     then edit runs.toml, then
    rlforecast inspect runs.toml                        what it declares, then
    rlforecast fit runs.toml -o fit
    """
    import json

    from forecast.files import replacing
    from forecast.runs.inspection import inspect_paths
    from forecast.runs.inspection_tables import render
    from forecast.runs.starting import starting_spec
    from forecast.terminal import messages, output

    if form == "table" and len(paths) == 1 and paths[0].suffix == ".toml":
        from forecast.runs.read import read_runs
        from forecast.terminal import print_receipts, runs_table

        if write_spec is not None:
            raise InputError(
                "--write-spec makes a runs.toml from logs", found=paths[0], fix="name the logs instead"
            )
        runs = read_runs(paths[0])
        print_receipts(messages(), runs.receipts)
        output().print(runs_table(runs))
        return
    if write_spec is not None:
        check_new(write_spec, overwrite, "--write-spec")
    inspection = inspect_paths(list(paths))
    if form == "json":
        click.echo(json.dumps(inspection.to_dict(), indent=2, default=str))
    else:
        render(inspection, output())
    if write_spec is not None:
        text = starting_spec(inspection, write_spec.parent)
        with replacing(write_spec) as temporary:
            temporary.write_text(text, encoding="utf-8")
        messages().print(f"wrote {write_spec}: check it, then: rlforecast fit {write_spec} -o fit")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="RUNS...")
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder to write the fit into.",
)
@click.option("--overwrite", is_flag=True, help="Replace a fit that is already there.")
@click.option("--from", "start", type=float, metavar="C", help="Fit only evaluations from this compute on.")
@click.option(
    "--upto",
    type=float,
    metavar="C",
    help="Fit only evaluations up to this compute; keep the rest to score against.",
)
@posterior_options
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    metavar="auto|hierarchical|particle",
    help="hierarchical: all runs together. particle: each by itself, in seconds. auto: particle for one run.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the sampler.")
@click.option(
    "--force",
    is_flag=True,
    help="Also fit runs that are flat, collapsed or too short; outputs carry the warning.",
)
@reading_options
def fit(
    paths: tuple[Path, ...],
    directory: Path,
    overwrite: bool,
    start: float | None,
    upto: float | None,
    prior: str,
    pool: str,
    floor: str | float,
    engine: str,
    seed: int,
    force: bool,
    **reading: Any,
) -> None:
    """Fit a Bayesian sigmoid to run logs and save the posterior in DIR.

    RUNS is a runs.toml (see inspect --write-spec), log files or folders, or a saved run table.

    Exit codes: 0 done; 1 no forecast can be given, as no run shows a rise or the sampler's diagnostics failed;
    2 bad input.

    \b
    rlforecast fit runs.toml -o fit --upto 8000
    rlforecast fit points.csv --run series --compute gpu_hours --metric pass_rate \\
        --prompts 1000 --samples 16 -o fit
    """
    from rich.markup import escape

    from forecast.files import check_directory
    from forecast.fits import FILES
    from forecast.runs.receipt import Receipt
    from forecast.terminal import (
        messages,
        output,
        print_parameters,
        print_receipts,
        print_undeclared,
        print_warnings,
        progress_reporter,
    )

    check_directory(directory, overwrite=overwrite, owned=FILES)
    say = messages()
    runs = read(paths, reading)
    receipts: list[Receipt] = list(runs.receipts)
    print_receipts(say, receipts, "fit.json")
    print_undeclared(say, runs)
    from forecast.fits import fit as fit_runs

    with progress_reporter(say) as report:
        result = fit_runs(
            runs,
            start=start,
            upto=upto,
            prior=prior,
            pool=pool,
            floor=floor,
            engine=engine,
            seed=seed,
            force=force,
            report=report,
        )
    result.save(directory, overwrite=overwrite)
    for name, reason in result.refused.items():
        what = "fitted all the same" if force else "no curve for"
        say.print(f"[yellow]{what}[/yellow] {escape(name)}: {escape(reason)}")
    if len(result.refused) > len(runs.names) / 2 and not force:
        say.print(
            f"[yellow]warning:[/yellow] {len(result.observations.runs)} of {len(runs.names)} runs carry a curve: what "
            "holds for the survivors need not hold for the next run"
        )
    result.require_passed()
    table = result.parameters()
    print_parameters(output(), result, table)
    if result.settings.engine == "particle":
        if len(result.observations.runs) > 1:
            say.print("nothing pooled: the particle engine fits each run by itself")
    elif pool == "auto" and len(result.observations.recipes) > 1 and not result.pooled:
        say.print(
            "nothing pooled: the runs declare, or are named after, different base models or tasks (--pool all pools them)"
        )
    if result.pooled:
        say.print(
            f"pooled over {len(result.observations.recipes)} recipes: {', '.join(result.pooled)} (assumes one experiment: same base model and data; --pool none to fit them apart)"
        )
    print_warnings(say, table)
    say.print(f"saved in {directory}; next: rlforecast predict {directory} --to {twice(result):g}")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--at", type=Numbers(), help="Compute to forecast at, in the fit's unit.")
@click.option("--to", type=float, metavar="C", help="Forecast on a log-spaced grid up to C instead.")
@click.option(
    "--level",
    default="run",
    show_default=True,
    help="run, recipe (its mean curve) or new_run (one more seed).",
)
@click.option(
    "--quantity",
    default="curve",
    show_default=True,
    help="curve (true pass rate) or evaluation (what one evaluation would show).",
)
@click.option("--name", "names", multiple=True, help="Only this run or recipe; repeatable.")
@transition_options
@click.option(
    "--force", is_flag=True, help="Answer although diagnostics failed; every row carries the warning."
)
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
def predict(
    directory: Path,
    at: list[float] | None,
    to: float | None,
    level: str,
    quantity: str,
    names: tuple[str, ...],
    moves: str,
    hazard: Any,
    force: bool,
    form: str,
) -> None:
    """Forecast with intervals from a saved fit.

    Intervals are equal-tailed and cover what the sigmoid family, the noise and slow drift allow. With --transitions
    averaged they also allow for other curve families and for a second rise or a collapse, by the evidence of each run
    and the hazard. Least squares is shown beside for comparison.

    Exit codes: 0 done, 1 withheld as the sampler's diagnostics failed, 2 bad input.

    \b
    rlforecast predict fit --at 16000,32000
    rlforecast predict fit --at 64000 --transitions averaged --hazard .1
    rlforecast predict fit --to 100000 --level recipe --format csv > forecast.csv
    """
    from forecast.fits import load
    from forecast.outlook.predict import grid_to
    from forecast.terminal import forecast_table, messages, output, print_records, print_warnings

    if (at is None) == (to is None):
        raise InputError(
            "give either --at or --to",
            found="both" if at is not None else "neither",
            fix="name the compute to forecast at, such as --at 16000",
        )
    if hazard is not None and moves != "averaged":
        raise InputError("--hazard goes with --transitions averaged", found=f"--transitions {moves}")
    result = load(directory)
    table = result.predict(
        at if at is not None else grid_to(result, to),
        level=level,
        quantity=quantity,
        names=names or None,
        transitions=moves,
        hazard=hazard,
        force=force,
    )
    if form == "table":
        output().print(forecast_table(result, table))
    else:
        print_records(table, form)
    print_warnings(messages(), table)


COMMANDS = (inspect, fit, predict, compare, transitions, watch, budget, report, backtest)
