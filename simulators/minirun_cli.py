"""``rlforecast minirun``: real RL on a tiny transformer, written as logs that ``rlforecast fit`` reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forecast.errors import InputError
from simulators.cli_words import check_name, pairs

if TYPE_CHECKING:
    from simulators.minirun.settings import Recipe, RunSettings


@click.command()
@click.argument("task", required=False)
@click.option(
    "--recipe",
    "recipes",
    multiple=True,
    metavar="NAME[=BASE:KEY=VALUE,...]",
    help="A named recipe, or one of your own: slow=grpo:learning_rate=1e-4. May be repeated.  [default: base]",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each recipe."
)
@click.option("--steps", type=click.IntRange(min=1), default=400, show_default=True, help="Updates of a run.")
@click.option(
    "--points",
    type=click.IntRange(min=2),
    default=28,
    show_default=True,
    help="Evaluations, log-spaced; one more before training.",
)
@click.option(
    "--prompts", type=click.IntRange(min=8), default=256, show_default=True, help="Held-out prompts."
)
@click.option(
    "--samples", type=click.IntRange(min=1), default=4, show_default=True, help="Rollouts of each of them."
)
@click.option(
    "--pool",
    type=click.IntRange(min=1),
    default=16384,
    show_default=True,
    help="Training prompts; fewer are repeated.",
)
@click.option(
    "--verifier",
    metavar="KEY=VALUE,...",
    default="",
    help="Reward what is not true: false_positive=.05, false_negative=.1, exploit=prefix|unfinished.",
)
@click.option(
    "--size",
    default="64x2x4",
    show_default=True,
    metavar="WIDTHxLAYERSxHEADS",
    help="Of the transformer.",
)
@click.option(
    "--warm-seed",
    type=click.IntRange(min=0, max=2**63 - 1),
    default=0,
    show_default=True,
    help="Of the checkpoint that all runs start from.",
)
@click.option(
    "--device", default="auto", show_default=True, help="auto (a GPU where there is one), cpu, cuda."
)
@click.option(
    "--trunk",
    type=click.Choice(["float32", "bfloat16"]),
    help="Precision of all but the head.  [default: bfloat16 on a GPU, else float32]",
)
@click.option("--compile", "compiled", is_flag=True, help="torch.compile the training pass.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Runs at a time.  [default: one per core, or per GPU]"
)
@click.option(
    "-o",
    "--output",
    "directory",
    type=click.Path(path_type=Path),
    default=Path("rlforecast-minirun"),
    show_default=True,
    metavar="DIR",
)
@click.option("--overwrite", is_flag=True, help="Begin runs anew that DIR holds already.")
@click.option("--list", "listing", is_flag=True, help="Show tasks and recipes, and stop.")
@click.pass_context
def minirun(
    ctx: click.Context,
    task: str | None,
    recipes: Sequence[str],
    seeds: int,
    steps: int,
    points: int,
    prompts: int,
    samples: int,
    pool: int,
    verifier: str,
    size: str,
    warm_seed: int,
    device: str,
    trunk: str | None,
    compiled: bool,
    jobs: int | None,
    directory: Path,
    overwrite: bool,
    listing: bool,
) -> None:
    """Train a tiny transformer on TASK with reinforcement learning and a verifier, and log held-out pass rates.

    Writes DIR/RECIPE-sSEED/log.jsonl for every run, its settings and a checkpoint, and DIR/runs.toml that reads all
    logs. The same command goes on where it was interrupted. All runs of a task start from one checkpoint, which is
    trained when it is first needed (20 seconds on a CPU) and kept in the user's cache folder.

    Exit codes: 0 done, 1 a run failed, 2 bad input, 130 interrupted.

    \b
    rlforecast minirun addmul --recipe grpo --recipe scalerl --seeds 3 -o sweep
    rlforecast fit sweep/runs.toml -o fit
    """
    from simulators.minirun.settings import Recipe, RunSettings, Verifier, changed

    if listing:
        _list()
        return
    if task is None:
        raise InputError("no task", fix="name one; rlforecast minirun --list shows them")
    if find_spec("torch") is None:
        raise InputError("mini-runs need torch", fix="pip install 'rlforecast[torch]'")
    from simulators.minirun.tasks.registry import task as named

    named(task)
    chosen = _recipes(recipes or ("base",))
    base = RunSettings(
        task=task,
        steps=steps,
        points=points,
        heldout=prompts,
        samples=samples,
        verifier=changed(Verifier(), pairs(_parts(verifier), "--verifier")),
        size=_size(size),
        warm_seed=warm_seed,
        compiled=compiled,
        pool=max(pool, Recipe().prompts),
    )
    placed, gpus = _placed(device)
    base = replace(base, device=placed, trunk=trunk or ("bfloat16" if gpus else "float32"))
    runs = [
        replace(base, name=name, recipe=recipe, pool=pool, seed=seed)
        for name, recipe in chosen.items()
        for seed in range(seeds)
    ]
    _sweep(ctx, runs, directory, jobs=jobs, gpus=gpus, overwrite=overwrite)


def _sweep(
    ctx: click.Context,
    runs: Sequence[RunSettings],
    directory: Path,
    *,
    jobs: int | None,
    gpus: Sequence[str],
    overwrite: bool,
) -> None:
    from forecast.terminal import messages
    from simulators.minirun.sweep import sweep

    console = messages()
    jobs = jobs or (len(gpus) if gpus else len(os.sched_getaffinity(0)))
    where = f"{len(gpus)} GPUs" if len(gpus) > 1 else "a GPU" if gpus else _cores(min(jobs, len(runs)))
    console.print(f"{len(runs)} runs of {runs[0].steps:,} updates on {where}", markup=False)
    try:
        with _progress(console, len(runs) * runs[0].steps) as report:
            sweep(runs, directory, jobs=jobs, devices=gpus, overwrite=overwrite, report=report)
    except KeyboardInterrupt:
        console.print("rlforecast: interrupted. Run the same command to go on", markup=False)
        ctx.exit(130)
    console.print(f"wrote {directory}: {len(runs)} runs, read by {directory / 'runs.toml'}", markup=False)
    console.print(f"next: rlforecast fit {directory / 'runs.toml'} -o fit", markup=False)


def _cores(count: int) -> str:
    return "a CPU core" if count == 1 else f"{count} CPU cores"


@contextmanager
def _progress(console: Any, total: int) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Show a bar for all updates, and a line for each run that ends."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} updates"),
        TimeRemainingColumn(),
    )
    done: dict[str, int] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("", total=total)

        def report(run: str, words: dict[str, Any]) -> None:
            if words["stage"] != "run":
                text = f"warm start, {words['done']} of {words['total']} steps"
                bars.update(bar, description=text)
                return
            done[run] = words["done"]
            bars.update(bar, completed=sum(done.values()), description=run)
            if words["done"] == words["total"]:
                text = f"{run}: {words['done']:,} updates, held-out pass rate {words['pass_rate']:.3f}"
                console.print(text, markup=False, highlight=False)

        yield report


def _placed(device: str) -> tuple[str, list[str]]:
    """Device as torch names it, and the GPUs to share out."""
    import torch

    from simulators.minirun.sweep import visible_gpus

    if device not in ("auto", "cpu", "cuda"):
        raise InputError("unknown device", where="--device", found=device, expected="auto | cpu | cuda")
    found = torch.cuda.device_count() if device != "cpu" and torch.cuda.is_available() else 0
    if device == "cuda" and not found:
        raise InputError("torch sees no GPU", where="--device", found=device, fix="--device cpu")
    return ("cuda", visible_gpus(found)) if found else ("cpu", [])


def _size(text: str) -> Any:
    from simulators.minirun.settings import Size

    try:
        width, layers, heads = (int(part) for part in text.split("x"))
    except ValueError as error:
        raise InputError("is no size", where="--size", found=repr(text), expected="such as 64x2x4") from error
    return Size(width, layers, heads)


def _recipes(texts: Sequence[str]) -> dict[str, Recipe]:
    from simulators.minirun.recipes import recipe
    from simulators.minirun.settings import changed

    chosen: dict[str, Recipe] = {}
    for text in texts:
        name, named, rest = text.partition("=")
        base, _, changes = rest.partition(":") if named and ":" not in name else (text, "", "")
        if ":" in name:
            raise InputError(
                "a changed recipe needs a name of its own",
                where="--recipe",
                found=repr(text),
                fix=f"such as mine={text}",
            )
        expected = "NAME or NAME=BASE:KEY=VALUE,... with a name of letters, digits, _, - and ."
        check_name(name, chosen, text, expected)
        chosen[name] = changed(recipe(base), pairs(_parts(changes), f"--recipe {name}"))
    return chosen


def _parts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _list() -> None:
    """Tables of tasks and recipes."""
    from dataclasses import asdict

    from rich.table import Table

    from forecast.terminal import output
    from simulators.minirun.recipes import RECIPES
    from simulators.minirun.settings import Recipe
    from simulators.minirun.tasks.registry import TASKS

    tasks = Table(title="Tasks", title_justify="left")
    for heading in ("task", "classes of prompts", "ceiling", "what it asks"):
        tasks.add_column(heading)
    for task in TASKS.values():
        tasks.add_row(task.name, " ".join(task.classes), f"{task.ceiling:g}", task.description)
    recipes = Table(title="Recipes: what differs from base", title_justify="left")
    recipes.add_column("recipe")
    recipes.add_column("settings")
    default = asdict(Recipe())
    for name, recipe in RECIPES.items():
        own = {key: value for key, value in asdict(recipe).items() if value != default[key]}
        recipes.add_row(name, " ".join(f"{key}={value}" for key, value in (own or default).items()))
    output().print(tasks)
    output().print(recipes)


COMMANDS = (minirun,)
