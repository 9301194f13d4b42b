"""``read_runs``: files, folders, a spec or saved run tables in, one run table out."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from forecast.errors import InputError, printable
from forecast.runs.assemble import assemble
from forecast.runs.readers import RawLog, is_run_table, read_log
from forecast.runs.spec import RunSpec, Spec, load_spec, make_spec
from forecast.runs.table import SEVERAL, Runs

_OPTIONS = {"price_per_unit": "--price", "seed": "--seed-column"}
"""Option of a parameter of `read_runs` where it is not called the same."""

_OPTION_OF_KEY = {
    "metric.column": "--metric",
    "metric.samples_per_prompt": "--samples",
    "compute.column": "--compute",
    "compute.unit": "--compute-unit",
    "compute.price_per_unit": "--price",
    "run.split_by": "--run",
    "run.seed": "--seed-column",
    "run.path": "path",
    **{f"metric.{n}": f"--{n}" for n in ("kind", "split", "scale", "prompts", "chance", "stratum", "trials")},
    **{f"compute.{n}": f"--{n}" for n in ("step", "cumulate", "times")},
    **{f"run.{n}": f"--{n}" for n in ("recipe", "model", "where", "attempts")},
    **{f"run.{n}.column": f"--{n}" for n in ("recipe", "model")},
    "run.seed.column": "--seed-column",
    "metric.wide": "--wide",
}

PathLikes = str | PathLike[str] | Iterable[str | PathLike[str]]


def read_runs(
    paths: PathLikes,
    *,
    spec: str | PathLike[str] | Spec | None = None,
    run: str | Sequence[str] | None = None,
    recipe: str | None = None,
    compute: str | Sequence[str] | None = None,
    compute_unit: str | None = None,
    metric: str | None = None,
    kind: str = "pass_rate",
    split: str = "validation",
    scale: tuple[float, float] | None = None,
    prompts: int | None = None,
    samples: int | None = None,
    seed: str | None = None,
    model: str | None = None,
    trials: str | None = None,
    stratum: str | None = None,
    step: str | None = None,
    where: Sequence[str] = (),
    cumulate: bool = False,
    times: float = 1.0,
    price_per_unit: float | None = None,
    chance: float = 0.0,
    wide: bool | Sequence[str] = False,
    attempts: str = "latest",
) -> Runs:
    """Read RL runs from logs.

    Parameters
    ----------
    paths : path or iterable of paths
        Log files or folders; one ``runs.toml``; or run tables saved with `Runs.save`. With `spec`, may be
        empty: the spec names the files.
    spec : path or Spec, optional
        A ``runs.toml`` that declares the axes and the runs.
    run : str or sequence of str, optional
        Columns whose values name the runs in a file; by default one file is one run.
    recipe, seed, model : str, optional
        Columns that hold these properties of a run; the recipe defaults to the run's name.
    compute : str or sequence of str, optional
        Columns of the compute axis (several are added up); ``"#"`` is the number of the evaluation. By
        default the one clear candidate, else the training step.
    compute_unit : {"gpu_hours", "flops", "tokens", "rollouts", "steps"}, optional
        May be left out when the column's name is a unit.
    metric : str, optional
        Column of the values; by default the one clear candidate.
    kind, split : str
        What the values are, and the prompts they were measured on.
    scale : tuple of float, optional
        Logged values that mean 0 and 1, ``(0, 100)`` for percent.
    prompts, samples : int, optional
        Prompts of one evaluation, and samples per prompt.
    trials, stratum, step : str, optional
        Columns of the Bernoulli trials behind a value, of the prompt class, and of the training step.
    where : sequence of str
        ``COLUMN=VALUE`` filters.
    cumulate : bool
        `compute` is logged per step and is summed over the run.
    times : float
        Factor from the column to the unit.
    price_per_unit : float, optional
        Money per unit of compute.
    chance : float
        Fraction that guessing scores.
    wide : bool or sequence of str
        One column per run: all of them, or those listed.
    attempts : {"latest", "longest", "separate"}
        What to do when a run was restarted.

    Returns
    -------
    Runs
        The run table, with receipts that account for every row.

    Raises
    ------
    InputError
        If something cannot be read, or is not what it was declared to be.
    """
    defaults = read_runs.__kwdefaults__ or {}
    given = [n for n, v in locals().items() if n in defaults and n != "spec" and v != defaults[n]]
    files = _paths(paths)
    if spec is None and len(files) == 1 and files[0].suffix == ".toml":
        spec, files = files[0], []
    if files and (spec is not None or any(path.suffix == ".toml" for path in files)):
        raise InputError(
            "give either paths or a spec, not both",
            found=", ".join(map(str, files)),
            fix="name every log in one runs.toml",
        )
    if spec is not None:
        declared = spec if isinstance(spec, Spec) else load_spec(Path(spec))
        _no_options(given, "a runs.toml", "set them in the runs.toml")
        return read_spec(declared)
    if not files:
        raise InputError("no path given", fix="name log files, a folder or a runs.toml")
    tables = [path for path in files if path.is_file() and is_run_table(path)]
    if tables:
        if len(tables) < len(files):
            raise InputError("run tables and logs cannot be read together", found=", ".join(map(str, files)))
        _no_options(given, "saved run tables", "leave them out: the axes are declared in the table")
        return join([Runs.load(path) for path in tables])
    if odd := [path for path in files if printable(str(path)) != str(path)]:
        raise InputError("file name is no UTF-8", where=odd[0], fix="rename it, or give the folder it is in")
    one = {
        "split_by": _names(run),
        "recipe": _column(recipe),
        "seed": _column(seed),
        "model": _column(model),
        "where": list(where),
        "attempts": attempts,
    }
    one = {key: value for key, value in one.items() if value is not None}
    made = make_spec(
        {
            "metric": {
                "column": metric,
                "kind": kind,
                "split": split,
                "scale": None if scale is None else tuple(scale),
                "prompts": prompts,
                "samples_per_prompt": samples,
                "chance": chance,
                "stratum": stratum,
                "trials": trials,
                "wide": wide if isinstance(wide, bool) else list(wide),
            },
            "compute": {
                "column": None if compute is None else _names(compute),
                "step": step,
                "cumulate": cumulate,
                "times": times,
                "unit": compute_unit,
                "price_per_unit": price_per_unit,
            },
            "run": [{"path": [str(path)]} | one for path in files],
        },
        options=_OPTION_OF_KEY,
    )
    return read_spec(made)


def read_spec(spec: Spec) -> Runs:
    """Read what a spec declares.

    Raises
    ------
    InputError
        If a path is missing or a file is not what it was declared to be.
    """
    return assemble([(run, logs_of(run, spec.folder)) for run in spec.run], spec)


def logs_of(run: RunSpec, folder: Path = Path()) -> list[RawLog]:
    """Read the logs of one ``[[run]]``; unreadable files among several are skipped, and noted.

    Raises
    ------
    InputError
        If nothing matches, or a file named outright cannot be read.
    """
    logs: list[RawLog] = []
    for text in run.path:
        path = folder / text
        if path.exists() or not glob.has_magic(text):
            logs += read_log(path)
            continue
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        if not matches:
            raise InputError(
                "no file matches", where=path, fix="check the path; it is relative to the spec file"
            )
        logs += _readable(matches, path)
    return logs


def _readable(matches: list[Path], pattern: Path) -> list[RawLog]:
    logs: list[RawLog] = []
    skipped: list[str] = []
    for match in matches:
        try:
            logs += read_log(match)
        except InputError as error:
            skipped.append(str(error))
    if not logs:
        raise InputError("no file that matches can be read", where=pattern, found=skipped[0])
    for problem in skipped:
        logs[0].receipt.note(f"skipped: {problem}")
    return logs


def join(tables: Sequence[Runs]) -> Runs:
    """Put run tables together that share both axes.

    Raises
    ------
    InputError
        If metric or compute unit differ, or a run is in two tables.
    """
    first = tables[0]
    names: set[str] = set()
    for other in tables:
        if other.metric != first.metric:
            raise InputError(
                "run tables of different metrics",
                found=f"{first.metric.name} ({first.metric.split}) and "
                f"{other.metric.name} ({other.metric.split})",
                expected="the same metric, scale and evaluation size",
            )
        if other.compute.unit != first.compute.unit:
            raise InputError(
                "run tables in different compute units",
                found=f"{first.compute.unit} and {other.compute.unit}",
            )
        if names & set(other.names):
            raise InputError("a run is in two run tables", found=", ".join(sorted(names & set(other.names))))
        names |= set(other.names)
    if len(tables) == 1:
        return first
    floors: dict[str, Any] = {}
    for other in tables:
        floors |= dict(other.floors)
    return replace(
        first,
        table=pd.concat([t.table for t in tables], ignore_index=True),
        floors=floors,
        receipts=tuple(r for t in tables for r in t.receipts),
        signals=pd.concat([t.signals for t in tables], ignore_index=True),
        domain={
            key: SEVERAL.join(dict.fromkeys(t.domain[key] for t in tables if key in t.domain))
            for key in dict.fromkeys(key for t in tables for key in t.domain)
        },
    )


def _no_options(given: Sequence[str], what: str, fix: str) -> None:
    """Refuse options that would have no effect."""
    if given:
        names = [_OPTIONS.get(name, "--" + name.replace("_", "-")) for name in given]
        raise InputError(f"options have no effect on {what}", found=", ".join(names), fix=fix)


def _paths(paths: PathLikes) -> list[Path]:
    if isinstance(paths, str | PathLike):
        return [Path(paths)]
    return [Path(path) for path in paths]


def _names(names: str | Sequence[str] | None) -> list[str]:
    return [] if names is None else [names] if isinstance(names, str) else list(names)


def _column(name: str | None) -> dict[str, str] | None:
    return None if name is None else {"column": name}
