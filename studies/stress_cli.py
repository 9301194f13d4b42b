"""``rlforecast stress``: the forecast of a saved fit against what may come after its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forecast.cli_options import FORMATS, HazardChoice

NAME = "stress"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--scenario",
    "texts",
    multiple=True,
    metavar="NAME[:SIZE=VALUE,...]",
    help="smooth, late_rise, staircase, collapse, reward_hacking, slow_drift, ceiling_creep or recipe_change; "
    "repeatable. [default: all]",
)
@click.option(
    "--horizon",
    type=float,
    metavar="C",
    help="Compute that is decided about. [default: four times what each run has used]",
)
@click.option(
    "--hazard",
    type=HazardChoice(),
    help="Transitions expected per decade of compute. [default: rise=.05,collapse=.05]",
)
@click.option(
    "--worth",
    type=float,
    metavar="GAIN",
    help="Gain, on the metric's scale, that justifies the compute. [default: half of the single sigmoid's forecast]",
)
@click.option(
    "--worlds", type=click.IntRange(min=1), default=20, show_default=True, help="Per run and scenario."
)
@click.option(
    "--watched",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    help="Of these, how many are watched for flags: the slow part.",
)
@click.option(
    "--evaluations",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Most simulated evaluations up to the horizon; closer ones are thinned out.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--format", "form", type=FORMATS, default="table", show_default=True)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR2",
    help="Folder for stress.parquet, stress.png and stress.md. [default: DIR-stress]",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier stress test in DIR2.")
def stress(
    directory: Path,
    texts: tuple[str, ...],
    horizon: float | None,
    hazard: Any,
    worth: float | None,
    worlds: int,
    watched: int,
    evaluations: int,
    seed: int,
    form: str,
    folder: Path | None,
    overwrite: bool,
) -> None:
    """What would the forecast of a saved fit have said, shown and cost if something happens next?

    Every world begins with the real log; what follows is a curve of the posterior and what a scenario does to it. Told
    are: how often the printed bands hold, without and with transitions; whether and when a flag shows; and how often
    paying for the compute up to the horizon would have been the wrong decision. Sizes are set as in
    late_rise:height=.3,at=2 (compute in units of what the run has used).

    Exit codes: 0 done, 1 withheld as the sampler's diagnostics failed, 2 bad input.

    \b
    rlforecast stress fit
    rlforecast stress fit --scenario collapse --scenario smooth --horizon 64000 --worth .02
    rlforecast report fit --stress fit-stress -o report.html
    """
    import json
    from dataclasses import asdict

    from forecast.fits import load
    from forecast.outlook.hazard import Hazard
    from forecast.terminal import messages, output, progress_reporter
    from studies.results import check_results, write_results
    from studies.stress import check_arguments, readings_at_most, stress_test
    from studies.stress_figure import stress_figure
    from studies.stress_scenarios import parse_scenarios
    from studies.stress_text import markdown, sentences, stress_table

    scenarios = parse_scenarios(texts)
    folder = folder or _beside(directory)
    check_results(folder, NAME, overwrite=overwrite)
    fit = load(directory)
    fit.require_passed()
    check_arguments(fit, horizon, worth)
    say, hazard = messages(), hazard or Hazard()
    count, seconds = readings_at_most(fit, len(scenarios), min(watched, worlds), evaluations, horizon)
    if count:
        say.print(
            f"at most {count:,} readings of simulated logs, about {_minutes(seconds)} (fewer: --watched)"
        )
    with progress_reporter(say) as report:
        result = stress_test(
            fit,
            scenarios=scenarios,
            horizon=horizon,
            hazard=hazard,
            worlds=worlds,
            watched=watched,
            worth=worth,
            evaluations=evaluations,
            seed=seed,
            report=report,
        )
    given = {
        "horizon": horizon,
        "worth": worth,
        "worlds": worlds,
        "watched": watched,
        "evaluations": evaluations,
    }
    options = "".join(f" --{name} {value}" for name, value in given.items() if value is not None)
    named = "".join(f" --scenario {text}" for text in texts)
    paths = write_results(
        folder,
        NAME,
        result.table,
        stress_figure(result, fit.runs),
        markdown(result, fit.runs),
        {
            **given,
            "hazard": asdict(hazard),
            "scenarios": {name: asdict(scenario) for name, scenario in scenarios.items()},
            "runs": json.loads(result.runs.to_json(orient="records")),
            "sentences": sentences(result, fit.runs),
            "fit": asdict(fit.settings),
        },
        title="A forecast against what may come after its data",
        command=f"rlforecast stress DIR{named}{options} --hazard {hazard} --seed {seed}",
        seed=seed,
        data_sha256=fit.runs.hash(),
    )
    if form == "csv":
        click.echo(result.table.to_csv(index=False), nl=False)
    elif form == "json":
        tables = {"runs": result.runs, "scenarios": result.table}
        told = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
        click.echo(json.dumps(told, indent=2))
    else:
        output().print(stress_table(result, fit.runs))
        for sentence in sentences(result, fit.runs):
            output().print(f"- {sentence}", markup=False, soft_wrap=True)
    for path in paths:
        say.print(f"  {path}", markup=False)


def _beside(directory: Path) -> Path:
    named = directory if directory.name not in ("", "..") else directory.resolve()
    return named.with_name(f"{named.name}-stress")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{max(seconds, 1):.0f} seconds"
