"""``rlforecast simulate --world skills``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from forecast.errors import InputError
from forecast.files import check_directory
from forecast.terminal import messages
from simulators.cli_words import check_name, pairs
from simulators.files import OWNED, save_world
from simulators.skills.experiment import SkillsWorld, draw_experiment, draw_recipes
from simulators.skills.overrides import override
from simulators.skills.presets import preset
from simulators.skills.settings import Recipe, Settings


def simulate_skills(
    directory: Path,
    *,
    overwrite: bool,
    preset_name: str,
    changes: Sequence[str],
    own_recipes: Sequence[str],
    recipes: int,
    seeds: int,
    points: int,
    spacing: str,
    samples: int,
    unit: str,
    seed: int,
) -> None:
    """Train the experiment that the options ask for and write it to `directory`."""
    check_directory(directory, overwrite=overwrite, owned=OWNED)
    settings = override(preset(preset_name), pairs(changes, "--set"))
    # The world does not depend on how many recipes are drawn.
    of_recipes, of_world = np.random.default_rng(seed).spawn(2)
    if own_recipes:
        trained = _recipes(own_recipes, settings.recipe)
    else:
        trained = draw_recipes(settings.recipe, recipes, of_recipes)
    measured: dict[str, Any] = {"points": points, "spacing": spacing, "samples": samples, "unit": unit}
    try:
        world = _train(settings, trained, seeds, of_world, measured)
    except MemoryError as error:
        raise InputError(
            "world does not fit into memory", found=error, fix="fewer prompts, a lower rank or no features"
        ) from error
    about = {
        "world": "skills",
        "preset": preset_name,
        **measured,
        "seeds": seeds,
        "settings": asdict(settings),
        "recipes": {name: asdict(recipe) for name, recipe in trained.items()},
    }
    save_world(world, directory, settings=about, seed=seed, overwrite=overwrite)
    _report(world, directory, points)


def _train(
    settings: Settings,
    recipes: dict[str, Recipe],
    seeds: int,
    rng: np.random.Generator,
    measured: dict[str, Any],
) -> SkillsWorld:
    console = messages()
    total = sum(recipe.steps for recipe in recipes.values())
    before = dict(zip(recipes, np.cumsum([0, *(r.steps for r in recipes.values())]), strict=False))
    console.print(f"training {len(recipes)} recipes x {seeds} seeds, {total:,} steps", markup=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} steps"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=total)

        def progress(name: str, step: int) -> None:
            bars.update(bar, completed=before[name] + step, description=name)

        return draw_experiment(settings, recipes, seeds, rng, progress=progress, **measured)


def _report(world: SkillsWorld, directory: Path, points: int) -> None:
    console = messages()
    whole = world.runs.overall()
    each = whole.groupby("run").size().max()
    fewer = f" ({points} were asked for; steps are whole numbers)" if each < points else ""
    console.print(
        f"wrote {directory}: {len(world.runs.names)} runs, {len(whole)} evaluations, up to {each} of a run{fewer}, and of"
        f" {world.runs.table['stratum'].nunique()} classes of prompts each; exact curves are in curves.csv",
        markup=False,
    )
    shortest = whole.groupby("run")["compute"].max().min()
    console.print(
        f"next: rlforecast fit {directory / 'runs.toml'} -o fit --upto {shortest / 2:.3g}", markup=False
    )


def _recipes(texts: Sequence[str], base: Recipe) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        expected = "NAME or NAME:KEY=VALUE,... with a name of letters, digits, _, - and ."
        check_name(name, recipes, text, expected)
        recipes[name] = override(base, pairs([part for part in rest.split(",") if part], f"--recipe {name}"))
    return recipes
