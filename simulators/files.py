"""Worlds on disk: logs as a trainer would have written them, the run table, and the truth beside them."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from forecast.files import replacing_directory
from simulators.worlds import World

OWNED = ("logs", "runs.toml", "runs.parquet", "truth.csv", "world.json")
"""What `save_world` writes into its folder."""


def save_world(
    world: World, folder: str | Path, *, settings: dict[str, Any], seed: int, overwrite: bool = False
) -> None:
    """Write `OWNED` into a folder, all or nothing.

    Parameters
    ----------
    world : World
    folder : path
    settings : dict
        What the world was drawn with, for ``world.json``; values that JSON can hold.
    seed : int
        Seed of the generator it was drawn with.
    overwrite : bool
        Replace a world that is already there.

    Raises
    ------
    InputError
        If the folder exists and may not be replaced, or cannot be written.
    """
    versions = {name: version(name) for name in ("rlforecast", "numpy")}
    about = {
        "seed": seed,
        "settings": settings,
        "versions": versions | {"python": platform.python_version()},
        "runs_sha256": world.runs.hash(),
    }
    with replacing_directory(folder, overwrite=overwrite, owned=OWNED) as temporary:
        write_logs(world, temporary)
        world.runs.save(temporary / "runs.parquet")
        world.truth.to_csv(temporary / "truth.csv", index=False)
        (temporary / "world.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def write_logs(world: World, folder: Path) -> None:
    """Write ``logs/RUN.jsonl`` for every run, with what restarts repeated, and a ``runs.toml`` that reads them.

    The evaluation before training is the record of step 0.
    """
    logs = folder / "logs"
    logs.mkdir()
    several = bool(world.truth["model"].notna().any())
    for run, rows in world.log.groupby("run", sort=False):
        first = rows.iloc[0]
        labels = {"run": run, "recipe": first["recipe"], "seed": int(first["seed"])}
        if several:
            labels["model"] = first["model"]
        records = []
        if (floor := world.runs.floors.get(str(run))) is not None:
            records.append(_record(0, 0.0, floor.value, floor.trials) | labels)
        columns = (rows[name].tolist() for name in ("step", "compute", "value", "trials"))
        records += [_record(*cells) | labels for cells in zip(*columns, strict=True)]
        text = "".join(json.dumps(record) + "\n" for record in records)
        (logs / f"{run}.jsonl").write_text(text, encoding="utf-8")
    (folder / "runs.toml").write_text(_spec(world, several), encoding="utf-8")


def _record(step: int, compute: float, value: float, trials: int | None) -> dict[str, Any]:
    return {"step": step, "gpu_hours": compute, "pass_rate": value, "trials": trials}


def _spec(world: World, several_models: bool) -> str:
    metric = world.runs.metric
    lines = [
        "[metric]",
        f'column = "{metric.name}"',
        f"prompts = {metric.prompts}",
        f"samples_per_prompt = {metric.samples_per_prompt}",
        "",
        "[compute]",
        'column = "gpu_hours"',
        f'unit = "{world.runs.compute.unit}"',
        "",
        "[[run]]",
        'path = "logs/*.jsonl"   # one run per file',
        'recipe = {column = "recipe"}',
        'seed = {column = "seed"}',
        *(['model = {column = "model"}'] if several_models else []),
    ]
    return "\n".join(lines) + "\n"
