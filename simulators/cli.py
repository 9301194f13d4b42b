"""Commands that make runs with a known truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forecast.errors import InputError

TRANSITION_SHARE = 0.25
"""Probability that a run has a transition, where transitions are asked for."""


class Pair(click.ParamType):
    """Two numbers, lowest and highest."""

    name = "LOW,HIGH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Parse, or fail with what was found."""
        if isinstance(value, tuple):
            return value
        try:
            low, high = (float(part) for part in str(value).split(","))
        except ValueError:
            self.fail(f"found {value!r}, expected two numbers, such as 0.5,0.75", param, ctx)
        return low, high


@click.command()
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("rlforecast-world"),
    show_default=True,
    metavar="DIR",
)
@click.option("--overwrite", is_flag=True, help="Replace an earlier world in DIR.")
@click.option("--recipes", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each recipe."
)
@click.option(
    "--models",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Base models that every recipe is run on.",
)
@click.option(
    "--points", type=click.IntRange(min=1), default=75, show_default=True, help="Evaluations of each run."
)
@click.option(
    "--horizon",
    type=float,
    default=16_000.0,
    show_default="16000",
    help="GPU-hours of the last evaluation.",
)
@click.option(
    "--spacing",
    type=click.Choice(["even", "log"]),
    default="even",
    show_default=True,
    help="Of the evaluations, in compute.",
)
@click.option(
    "--prompts",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Prompts in one evaluation.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=16, show_default=True, help="Samples per prompt."
)
@click.option(
    "--family",
    type=click.Choice(["sigmoid", "burr", "power_law"]),
    default="sigmoid",
    show_default=True,
    help="Shape of the true curves.",
)
@click.option(
    "--ceiling",
    type=Pair(),
    default="0.5,0.75",
    show_default=True,
    help="Range of the recipes' ceilings, pass rate.",
)
@click.option(
    "--transition",
    "kind",
    type=click.Choice(["rise", "collapse", "either"]),
    help="Give some runs a second rise or a collapse.",
)
@click.option(
    "--transition-share",
    type=float,
    help=f"Probability that a run has one.  [default: {TRANSITION_SHARE}]",
)
@click.option(
    "--noise-correlation",
    type=Pair(),
    default="0.3,0.9",
    show_default=True,
    help="Range of the noise's correlation between neighbouring evaluations; .9,.97 is slow.",
)
@click.option(
    "--glitches",
    type=float,
    default=0.0,
    show_default="0",
    help="Probability that an evaluation comes out .05 to .3 too low.",
)
@click.option(
    "--missing",
    type=float,
    default=0.0,
    show_default="0",
    help="Probability that an evaluation is not logged.",
)
@click.option(
    "--restarts",
    type=float,
    default=0.0,
    show_default="0",
    help="Mean number of crashes per run; what followed the last checkpoint is repeated.",
)
@click.option("--no-floors", is_flag=True, help="Leave out the evaluation before training.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the world.")
def simulate(
    directory: Path,
    overwrite: bool,
    recipes: int,
    seeds: int,
    models: int,
    points: int,
    horizon: float,
    spacing: str,
    prompts: int,
    samples: int,
    family: str,
    ceiling: tuple[float, float],
    kind: str | None,
    transition_share: float | None,
    noise_correlation: tuple[float, float],
    glitches: float,
    missing: float,
    restarts: float,
    no_floors: bool,
    seed: int,
) -> None:
    """Simulate an experiment whose true curves are known, and write its logs.

    DIR gets logs/*.jsonl with a runs.toml that reads them, runs.parquet (the run table, restarts resolved),
    truth.csv (the parameters of every run's curve and noise) and world.json (settings, seed, versions).

    Exit codes: 0 done, 2 bad input.

    \b
    rlforecast simulate -o world
    rlforecast simulate --transition rise --restarts 1 -o world
    rlforecast fit world/runs.toml -o fit --upto 8000
    """
    from dataclasses import asdict

    import numpy as np

    from simulators.evaluations import Evaluations
    from simulators.files import save_world
    from simulators.noise import Noise
    from simulators.transitions import Transition
    from simulators.truth import Curves
    from simulators.worlds import draw_world

    if kind is None and transition_share is not None:
        raise InputError(
            "--transition-share has no effect without a transition",
            found=f"{transition_share:g}",
            fix="add --transition rise, collapse or either",
        )
    share = TRANSITION_SHARE if transition_share is None else transition_share
    groups: dict[str, Any] = {
        "curves": Curves(family=family, ceiling=ceiling),
        "transition": None if kind is None else Transition(kind, share),
        "noise": Noise(correlation=noise_correlation),
        "evaluations": Evaluations(
            points=points,
            horizon=horizon,
            start=0.0,
            spacing=spacing,
            prompts=prompts,
            samples_per_prompt=samples,
            floors=not no_floors,
            glitches=glitches,
            missing=missing,
            restarts=restarts,
        ),
    }
    counts: dict[str, Any] = {"recipes": recipes, "seeds": seeds, "models": models}
    world = draw_world(rng=np.random.default_rng(seed), **counts, **groups)
    settings = counts | {name: None if group is None else asdict(group) for name, group in groups.items()}
    save_world(world, directory, settings=settings, seed=seed, overwrite=overwrite)

    moved = int(world.truth["family"].isin(["second_rise", "collapse"]).sum())
    repeated = int(world.log["superseded"].sum())
    counted = [f"{len(world.runs.names)} runs", f"{len(world.runs.table)} evaluations"]
    counted += [f"{moved} runs with a transition"] if kind is not None else []
    counted += [f"{repeated} evaluations lost in crashes and repeated"] if restarts else []
    click.echo(f"wrote {directory}: {', '.join(counted)}; the truth is in truth.csv", err=True)
    click.echo(
        f"next: rlforecast fit {directory / 'runs.toml'} -o fit --upto {horizon / 2:g}",
        err=True,
    )


COMMANDS = (simulate,)
