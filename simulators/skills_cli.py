"""``rlforecast simulate --world skills``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from forecast.errors import InputError
from forecast.files import check_directory
from forecast.terminal import messages
from simulators.files import OWNED, save_world
from simulators.skills.experiment import draw_experiment, draw_recipes
from simulators.skills.overrides import override
from simulators.skills.presets import preset
from simulators.skills.settings import Recipe


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
    settings = override(preset(preset_name), _pairs(changes, "--set"))
    rng = np.random.default_rng(seed)
    if own_recipes:
        trained = _recipes(own_recipes, settings.recipe)
    else:
        trained = draw_recipes(settings.recipe, recipes, rng)
    console = messages()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} steps"),
    )
    quiet = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=quiet) as bars:
        bar = bars.add_task("training", total=sum(recipe.steps for recipe in trained.values()))
        before = dict(zip(trained, np.cumsum([0, *(r.steps for r in trained.values())]), strict=False))
        world = draw_experiment(
            settings,
            trained,
            seeds,
            rng,
            points=points,
            spacing=spacing,
            samples=samples,
            unit=unit,
            progress=lambda name, step: bars.update(
                bar, completed=before[name] + step, description=f"training {name}"
            ),
        )
    about = {
        "world": "skills",
        "preset": preset_name,
        **{"points": points, "spacing": spacing, "samples": samples, "unit": unit, "seeds": seeds},
        "settings": asdict(settings),
        "recipes": {name: asdict(recipe) for name, recipe in trained.items()},
    }
    save_world(world, directory, settings=about, seed=seed, overwrite=overwrite)
    last = world.runs.table["compute"].max()
    evaluations = int(world.runs.table["stratum"].isna().sum())
    console.print(
        f"wrote {directory}: {len(world.runs.names)} runs, {evaluations} evaluations of all prompts and of"
        f" {world.runs.table['stratum'].nunique()} classes each; the exact curves are in curves.csv",
        markup=False,
    )
    console.print(
        f"next: rlforecast fit {directory / 'runs.toml'} -o fit --upto {last / 2:.3g}", markup=False
    )


def _pairs(texts: Sequence[str], where: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (equals and name.strip()):
            raise InputError("is no setting", where=where, found=repr(text), expected="NAME=VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _recipes(texts: Sequence[str], base: Recipe) -> dict[str, Recipe]:
    recipes: dict[str, Recipe] = {}
    for text in texts:
        name, _, rest = text.partition(":")
        if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise InputError(
                "is no recipe", where="--recipe", found=repr(text), expected="NAME or NAME:KEY=VALUE,..."
            )
        if name in recipes:
            raise InputError("two recipes of one name", where="--recipe", found=name)
        recipes[name] = override(base, _pairs([part for part in rest.split(",") if part], "--recipe"))
    return recipes
