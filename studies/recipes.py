"""Which knobs of RL training raise the ceiling, which only the speed, and which cannot be told apart?

``rlforecast study recipes``: published methods, and the default recipe with one knob turned, train the same tiny
transformer from one checkpoint, three seeds each. All runs are fitted together up to the same compute, and every
recipe is compared with the default one, and with every other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from studies.conduct import Where, conduct
from studies.executor import Task
from studies.study_cli import study_options

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from simulators.minirun.settings import Recipe

NAME = "recipes"
TASK = "addmul"
POINTS = 40
POOL = 8192

KEPT = (
    *("recipe", "seed", "step", "stratum", "pass_rate", "trials", "gen_flops", "train_flops", "flops"),
    *("device_seconds", "zero_variance", "entropy", "ratio_mean", "ratio_max", "clipped", "lag"),
)
"""Columns of the logs that the result keeps."""

PUBLISHED = ("scalerl", "magistral", "minimax", "dapo", "grpo", "dr_grpo", "gspo", "ppo", "rloo")
"""Named recipes, as their papers describe them (`simulators.minirun.recipes`)."""

TURNED: dict[str, dict[str, Any]] = {
    "on-policy": {"staleness": 0},
    "PPO-off-policy-8": {"staleness_style": "alternate"},
    "DAPO clip": {"objective": "clipped", "clip_high": 0.28},
    "token mean": {"aggregation": "token"},
    "batch sd": {"scale": "batch"},
    "filter": {"zero_variance": "drop"},
    "no easy prompts": {"easy": 0.9},
    "bfloat16 head": {"generator_head": "bfloat16"},
    "learning rate / 3": {"learning_rate": 1e-4},
}
"""The default recipe with one knob turned."""


def compared() -> dict[str, Recipe]:
    """Everything that is compared, the default first."""
    from simulators.minirun.recipes import recipe

    base = recipe("base")
    turned = {name: replace(base, **changes) for name, changes in TURNED.items()}
    return {"base": base, **{name: recipe(name) for name in PUBLISHED}, **turned}


def work(task: Task) -> pd.DataFrame:
    """Train one run; its log, one row per evaluation and class of prompts."""
    import pandas as pd
    import torch

    from simulators.minirun.settings import RunSettings
    from simulators.minirun.tasks.registry import task as named
    from simulators.minirun.training import train
    from simulators.minirun.warm_start import cached

    torch.set_num_threads(1)
    settings = RunSettings(
        TASK,
        task["recipe"],
        compared()[task["recipe"]],
        seed=task["seed"],
        steps=task["steps"],
        points=POINTS,
        pool=POOL,
    )
    weights, _ = cached(named(TASK), settings.size, settings.warm_seed)
    return pd.DataFrame(train(settings, weights))[list(KEPT)]


def tasks(seeds: int, steps: int, seed: int) -> list[Task]:
    """All runs."""
    return [
        Task(f"{name}/{run}", {"recipe": name, "seed": seed + run, "steps": steps})
        for name in compared()
        for run in range(seeds)
    ]


@click.command(NAME)
@click.option(
    "--runs", type=click.IntRange(min=2), default=3, show_default=True, help="Seeds of each recipe."
)
@click.option(
    "--steps", type=click.IntRange(min=10), default=1500, show_default=True, help="Updates of a run."
)
@study_options
def recipes(runs: int, steps: int, where: Where) -> None:
    """Which recipes raise the ceiling of a mini-run, which are only faster, and which cannot be told apart?

    Needs the extra torch. About an hour on two cores.
    """
    from importlib.util import find_spec

    from forecast.errors import InputError
    from studies.recipe_verdicts import NOTES, analyse, figure, markdown

    if find_spec("torch") is None:
        raise InputError("mini-runs need torch", fix="pip install 'rlforecast[torch]'")

    def report(rows: pd.DataFrame) -> tuple[Figure, str]:
        found = analyse(rows, TASK, where.seed)
        return figure(found), f"{markdown(found)}\n\n{NOTES}"

    conduct(
        NAME,
        work,
        tasks(runs, steps, where.seed),
        report,
        where,
        title="Recipes of mini-runs against each other",
        options={"runs": runs, "steps": steps},
    )
