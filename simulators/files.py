"""Worlds on disk: logs as a trainer would have written them, the run table, and the truth beside them."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from forecast.files import replacing_directory
from forecast.runs.table import Runs

OWNED = ("logs", "runs.toml", "runs.parquet", "truth.csv", "curves.csv", "world.json")
"""What `save_world` writes into its folder."""

Records = Sequence[Mapping[str, Any]]
"""Of one log, in the order in which they were logged; values that JSON can hold."""


class Simulated(Protocol):
    """Runs with a known truth."""

    @property
    def runs(self) -> Runs:
        """The run table."""

    @property
    def truth(self) -> pd.DataFrame:
        """One row per run."""

    @property
    def curves(self) -> pd.DataFrame | None:
        """Noiseless values at every evaluation, where the truth is not a formula."""

    def logs(self) -> Mapping[str, Records]:
        """What each run logged, by name."""

    def spec(self) -> str:
        """``runs.toml`` that reads these logs."""


def save_world(
    world: Simulated, folder: str | Path, *, settings: dict[str, Any], seed: int, overwrite: bool = False
) -> None:
    """Write `OWNED` into a folder, all or nothing.

    Parameters
    ----------
    world : Simulated
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
        if world.curves is not None:
            world.curves.to_csv(temporary / "curves.csv", index=False)
        text = json.dumps(_plain(about), indent=2, allow_nan=False)
        (temporary / "world.json").write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return settings as strict JSON has them: no infinity, no NumPy numbers."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def write_logs(world: Simulated, folder: Path) -> None:
    """Write ``logs/RUN.jsonl`` for every run, and a ``runs.toml`` that reads them."""
    logs = folder / "logs"
    logs.mkdir()
    for run, records in world.logs().items():
        text = "".join(json.dumps(record) + "\n" for record in records)
        (logs / f"{run}.jsonl").write_text(text, encoding="utf-8")
    (folder / "runs.toml").write_text(world.spec(), encoding="utf-8")


def spec(runs: Runs, *, strata: bool = False) -> str:
    """``runs.toml`` for logs whose columns are named as in the run table, one run per file.

    Parameters
    ----------
    runs : Runs
        What was logged.
    strata : bool
        Whether some rows belong to a class of prompts, named in the column ``stratum``.
    """
    metric, unit = runs.metric, runs.compute.unit
    # Classes of prompts differ in size: their rows say what they are worth.
    sizes = [f"prompts = {metric.prompts}", f"samples_per_prompt = {metric.samples_per_prompt}"]
    several = bool(runs.table["model"].notna().any())
    lines = [
        "[metric]",
        f'column = "{metric.name}"',
        *(['stratum = "stratum"', 'trials = "trials"'] if strata else sizes),
        "",
        "[compute]",
        f'column = "{unit if unit != "steps" else "step"}"',
        f'unit = "{unit}"',
        "",
        "[[run]]",
        'path = "logs/*.jsonl"   # one run per file',
        'recipe = {column = "recipe"}',
        'seed = {column = "seed"}',
        *(['model = {column = "model"}'] if several else []),
    ]
    return "\n".join(lines) + "\n"
