"""Commands that make runs with a known truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from forecast.errors import InputError
from simulators.minirun_cli import minirun

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
@click.option(
    "--world",
    "kind_of_world",
    type=click.Choice(["parametric", "skills"]),
    default="parametric",
    show_default=True,
    help="Curves drawn from a family, or policies trained on prompts that are chains of skills.",
)
@click.option("--recipes", type=click.IntRange(min=1), default=4, show_default=True)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each recipe."
)
@click.option(
    "--models",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Parametric: base models that every recipe is run on.",
)
@click.option(
    "--points", type=click.IntRange(min=1), default=75, show_default=True, help="Evaluations of each run."
)
@click.option(
    "--horizon",
    type=float,
    default=16_000.0,
    show_default="16000",
    help="Parametric: GPU-hours of the last evaluation.",
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
    help="Parametric: prompts in one evaluation.",
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=16, show_default=True, help="Samples per prompt."
)
@click.option(
    "--family",
    type=click.Choice(["sigmoid", "burr", "power_law"]),
    default="sigmoid",
    show_default=True,
    help="Parametric: shape of the true curves.",
)
@click.option(
    "--ceiling",
    type=Pair(),
    default="0.5,0.75",
    show_default=True,
    help="Parametric: range of the recipes' ceilings, pass rate.",
)
@click.option(
    "--transition",
    "kind",
    type=click.Choice(["rise", "collapse", "either"]),
    help="Parametric: give some runs a second rise or a collapse.",
)
@click.option(
    "--transition-share",
    type=float,
    help=f"Parametric: probability that a run has one.  [default: {TRANSITION_SHARE}]",
)
@click.option(
    "--noise-correlation",
    type=Pair(),
    default="0.3,0.9",
    show_default=True,
    help="Parametric: range of the noise's correlation between neighbouring evaluations; .9,.97 is slow.",
)
@click.option(
    "--glitches",
    type=float,
    default=0.0,
    show_default="0",
    help="Parametric: probability that an evaluation comes out .05 to .3 too low.",
)
@click.option(
    "--missing",
    type=float,
    default=0.0,
    show_default="0",
    help="Parametric: probability that an evaluation is not logged.",
)
@click.option(
    "--restarts",
    type=float,
    default=0.0,
    show_default="0",
    help="Parametric: mean number of crashes per run; what followed the last checkpoint is repeated.",
)
@click.option("--no-floors", is_flag=True, help="Parametric: leave out the evaluation before training.")
@click.option(
    "--preset",
    metavar="NAME",
    help="Skills: smooth, gated, hidden-gate, gap, hacked, reward-model, noisy-verifier, overfit or interference."
    "  [default: smooth]",
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="GROUP.NAME=VALUE",
    help="Skills: change a setting of the preset, such as prompts.train=64 or recipe.steps=1000 (docs/skills.md).",
)
@click.option(
    "--recipe",
    "own_recipes",
    multiple=True,
    metavar="NAME:KEY=VALUE,...",
    help="Skills: train this recipe, in place of the preset's and variations of it.",
)
@click.option(
    "--unit",
    type=click.Choice(["gpu_hours", "flops", "tokens", "rollouts", "steps"]),
    help="Skills: compute axis of the run table.  [default: gpu_hours]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the world.")
@click.pass_context
def simulate(
    context: click.Context,
    directory: Path,
    overwrite: bool,
    kind_of_world: str,
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
    preset: str | None,
    changes: tuple[str, ...],
    own_recipes: tuple[str, ...],
    unit: str | None,
    seed: int,
) -> None:
    """Simulate an experiment whose true curves are known, and write its logs.

    DIR gets logs/*.jsonl with a runs.toml that reads them, runs.parquet (the run table, restarts resolved),
    truth.csv (the truth about every run), world.json (settings, seed, versions) and, for skills, curves.csv (exact
    pass rates).

    Exit codes: 0 done, 2 bad input.

    \b
    rlforecast simulate -o world
    rlforecast simulate --transition rise --restarts 1 -o world
    rlforecast simulate --world skills --preset gated -o world
    rlforecast fit world/runs.toml -o fit --upto 8000
    """
    _check_options(context, kind_of_world)
    if kind_of_world == "skills":
        from simulators.skills_cli import simulate_skills

        simulate_skills(
            directory,
            overwrite=overwrite,
            preset_name="smooth" if preset is None else preset,
            changes=changes,
            own_recipes=own_recipes,
            recipes=recipes,
            seeds=seeds,
            points=points,
            spacing=spacing,
            samples=samples,
            unit=unit or "gpu_hours",
            seed=seed,
        )
        return
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


def _check_options(context: click.Context, kind_of_world: str) -> None:
    """Refuse options that the other kind of world has."""
    default = click.core.ParameterSource.DEFAULT
    given = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name and context.get_parameter_source(parameter.name) is not default
    }
    if "own_recipes" in given and "recipes" in given:
        raise InputError(
            "--recipes draws recipes, --recipe names them", fix="keep one of the two", found="both"
        )
    foreign = [name for name in given if name in (_SKILLS if kind_of_world == "parametric" else _PARAMETRIC)]
    if foreign:
        other = "skills" if kind_of_world == "parametric" else "parametric"
        fix = _REPLACED.get(foreign[0], "leave it out") if other == "parametric" else "leave it out"
        raise InputError(
            f"{given[foreign[0]]} belongs to --world {other}",
            found=f"--world {kind_of_world}",
            fix=f"{fix}, or add --world {other}",
        )


_REPLACED = {
    "prompts": "say --set prompts.held_out=N",
    "horizon": "say --set recipe.steps=N",
    "transition_share": "say --set prompts.gate_share=SHARE",
}
"""What takes an option's place in skills worlds."""
_SKILLS = ("preset", "changes", "own_recipes", "unit")
_PARAMETRIC = (
    *("models", "horizon", "prompts", "family", "ceiling", "kind", "transition_share"),
    *("noise_correlation", "glitches", "missing", "restarts", "no_floors"),
)

COMMANDS = (simulate, minirun)
