"""Commands for the budget meeting: recipes against each other, and what a budget buys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forecast.cli_options import FORMATS, budget_options, transition_options


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--level", default="recipe", show_default=True, help="recipe (its mean curve) or run: what is compared."
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=0.02,
    show_default=True,
    help="Difference of ceilings, as a fraction of the scale, that does not matter.",
)
@click.option("--force", is_flag=True, help="Compare although diagnostics failed.")
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
def compare(directory: Path, level: str, margin: float, force: bool, form: str) -> None:
    """Which recipe raises the ceiling, and which only gets there faster?

    Every pair of recipes of a saved fit, draw by draw of the joint posterior: ceilings, compute needed for half of the
    gain, exponents at a common ceiling, crossing. Verdicts: raises the ceiling, lowers the ceiling, only faster, only
    slower (ceilings within the margin with probability .8), not decided.

    Exit codes: 0 done, 1 withheld as the sampler's diagnostics failed, 2 bad input.

    \b
    rlforecast compare fit
    rlforecast compare fit --level run --format csv > pairs.csv
    """
    from forecast.budget_tables import print_comparison
    from forecast.fits import load
    from forecast.outlook.comparison import compare as compare_pairs
    from forecast.terminal import output, print_records

    result = load(directory)
    table = compare_pairs(result, level=level, margin=margin, force=force)
    if form == "table":
        print_comparison(output(), result, table)
    else:
        print_records(table, form)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@budget_options
@click.option("--name", "names", multiple=True, help="Only this run or recipe; repeatable.")
@transition_options
@click.option(
    "--no-experiments",
    "experiments",
    flag_value=False,
    default=True,
    help="Do not work out whether to look before choosing.",
)
@click.option("--force", is_flag=True, help="Answer although diagnostics failed.")
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
def budget(
    directory: Path,
    at: list[float] | None,
    spend: list[float] | None,
    money: list[float] | None,
    target: float | None,
    price: Any,
    worth: float | None,
    domain: dict[str, str] | None,
    names: tuple[str, ...],
    moves: str,
    hazard: Any,
    experiments: bool,
    force: bool,
    form: str,
) -> None:
    """What does a budget buy: continue a run, start a new run of a recipe, or stop?

    For each budget: value and gain of every option with 90 % equal-tailed intervals, the probability that it reaches the
    target and that it is the best, what choosing it loses on average (regret), and whether running some options a
    little further first would change the choice. --format csv prints the options, json everything.

    Exit codes: 0 done, 1 withheld as the sampler's diagnostics failed, 2 bad input.

    \b
    rlforecast budget fit --spend 8000,32000 --target .65 --price 2.5
    rlforecast budget fit --at 100000 --transitions averaged --hazard .1
    rlforecast budget fit --money 50000 --price qwen-7b=9,qwen-1b=2.5 --worth 4000
    """
    import json

    from forecast.budget_tables import print_decision
    from forecast.fits import load
    from forecast.outlook.budget import budget as decide
    from forecast.outlook.domain import outside_map
    from forecast.report.sentences import decision_sentences
    from forecast.terminal import messages, output, print_records

    result = load(directory)
    decision = decide(
        result,
        at,
        spend=spend,
        money=money,
        target=target,
        price=price,
        worth=worth,
        names=names or None,
        transitions=moves,
        hazard=hazard,
        experiments=experiments,
        force=force,
    )
    outside = outside_map(result, domain, float(decision.options["compute"].max()))
    if form == "csv":
        print_records(decision.options, form)
    elif form == "json":
        said = [{"headline": head, "details": rest} for head, rest in decision_sentences(decision)]
        click.echo(json.dumps(decision.to_dict() | {"sentences": said, "outside_map": outside}, indent=2))
    else:
        print_decision(output(), decision)
    for sentence in outside:
        messages().print(f"outside the map: {sentence}", markup=False)


COMMANDS = (compare, budget)
