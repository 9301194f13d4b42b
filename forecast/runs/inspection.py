"""What is in these files? Candidate axes, runs, and what reading them would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from forecast.errors import InputError, printable
from forecast.runs import axes, columns
from forecast.runs.assemble import assemble
from forecast.runs.read import logs_of
from forecast.runs.readers import RawLog, is_run_table, read_log
from forecast.runs.series import MixedRows
from forecast.runs.spec import Spec, load_spec, make_spec
from forecast.runs.table import Runs


@dataclass
class CandidateY:
    """A column that may be the metric; `why_not` is empty for a held-out pass rate."""

    name: str
    kind: str
    split: str | None
    scale: tuple[float, float] | None
    values: int
    low: float
    high: float
    first: float
    last: float
    why_not: str = ""


@dataclass
class CandidateX:
    """A column that may be the compute axis or the step.

    `nature` is ``cumulative``, ``resets``, ``per step``, ``constant`` or ``unknown``.
    """

    name: str
    unit: str | None
    nature: str
    values: int
    low: float
    high: float


@dataclass
class RunFound:
    """A run as it would be read."""

    name: str
    evaluations: int
    floor: float | None
    compute: tuple[float, float]
    first: float
    last: float


@dataclass
class SourceView:
    """One log: what was found, and what reading it with the best candidate does.

    Attributes
    ----------
    source, format, name : str
        File, reader and the name of the run it holds.
    receipt : dict
        Receipt of reading (`forecast.runs.receipt.Receipt`), with restarts and the rule that resolved them.
    step : str or None
        Column of the training step.
    y, x : list
        Candidate columns.
    metric : str or None
        Candidate used to tell the runs.
    split_by, stratum : list of str, str or None
        Columns that were needed to tell the rows apart.
    wide : list of str
        Columns that are one run each.
    unit : str or None
        Unit of the compute axis used for that.
    runs : list of RunFound
        Runs that reading it with `metric` gives.
    problem : str
        Why it cannot be read without being told more; empty if it can.
    warnings : list of str
        What to look at before trusting the candidates.
    """

    source: str
    format: str
    name: str
    receipt: dict[str, Any]
    step: str | None = None
    y: list[CandidateY] = field(default_factory=list)
    x: list[CandidateX] = field(default_factory=list)
    metric: str | None = None
    split_by: list[str] = field(default_factory=list)
    stratum: str | None = None
    wide: list[str] = field(default_factory=list)
    unit: str | None = None
    runs: list[RunFound] = field(default_factory=list)
    problem: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass
class Inspection:
    """All sources, and the files that are no logs with the reason."""

    sources: list[SourceView]
    skipped: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def inspect_paths(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> Inspection:
    """Look into log files, folders, run tables or the files named by a ``runs.toml``.

    Parameters
    ----------
    paths : path or iterable of paths
        What to look into.

    Returns
    -------
    Inspection
        One entry per log.

    Raises
    ------
    InputError
        If nothing can be read.
    """
    several = [paths] if isinstance(paths, str | PathLike) else list(paths)
    sources: list[SourceView] = []
    logs: list[RawLog] = []
    skipped: dict[str, str] = {}
    errors: list[InputError] = []
    for path in map(Path, several):
        try:
            if path.is_file() and is_run_table(path):
                sources.append(_view_table(path))
                continue
            logs += _logs(path)
        except InputError as error:
            errors.append(error)
            skipped[str(path)] = str(error)
    views = [judge(log) for log in logs]
    # Logs of one experiment share their metric: the candidate that most of them hold goes first.
    holders = Counter(y.name for view in views for y in view.y)
    for view, log in zip(views, logs, strict=True):
        view.y.sort(key=lambda y: _rank(y, holders[y.name]))
        _try(view, log)
        view.warnings = _warnings(view)
    sources += views
    if not sources:
        raise errors[0] if errors else InputError("no path given", fix="name log files or a folder")
    return Inspection(sources, skipped)


def _logs(path: Path) -> list[RawLog]:
    if path.suffix != ".toml":
        return read_log(path)
    spec = load_spec(path)
    return [log for run in spec.run for log in logs_of(run, spec.folder)]


def judge(log: RawLog) -> SourceView:
    """Judge the columns of one log."""
    records = log.records
    view = SourceView(str(log.source), log.format, log.name, log.receipt.to_dict())
    view.step = columns.step_column(records, log, None)
    order = None
    if view.step is not None and _numeric(records, view.step):
        order = columns.numbers(records, view.step, log.source)
    for column in map(str, records.columns):
        if column in columns.BOOKKEEPING or not _numeric(records, column):
            continue
        values = records[column].to_numpy(dtype=float, na_value=np.nan)
        judged = columns.outcome(column, values)
        finite = values[np.isfinite(values)]
        if judged is not None:
            scale = _scale(column, finite)
            ends = (float(finite.min()), float(finite.max()), float(finite[0]), float(finite[-1]))
            view.y.append(
                CandidateY(
                    column, judged.kind, judged.split, scale, len(finite), *ends, why_not=judged.why_not
                )
            )
        elif len(finite) and _may_be_x(column, view.step):
            unit = "steps" if column == view.step else columns.unit_of(column)
            nature = axes.nature(values, order)
            view.x.append(
                CandidateX(column, unit, nature, len(finite), float(finite.min()), float(finite.max()))
            )
    return view


def _numeric(records: pd.DataFrame, column: str) -> bool:
    return pd.api.types.is_numeric_dtype(records[column])


def _may_be_x(column: str, step: str | None) -> bool:
    known = (
        column == step or columns.unit_of(column) or columns.is_clock(column) or columns.is_per_step(column)
    )
    return bool(known) or columns.leaf(column).startswith("cumulative_")


def _scale(column: str, finite: np.ndarray) -> tuple[float, float] | None:
    low, high = finite.min(), finite.max()
    if low < 0:
        return (-1.0, 1.0) if low >= -1 and high <= 1 else None
    if high <= 1:
        return (0.0, 1.0)
    return (0.0, 100.0) if columns.looks_like_percent(column, finite) else None


def _rank(candidate: CandidateY, holders: int) -> tuple[bool | int, ...]:
    """Held-out rates first, then those of an unnamed split, then what must be declared; short names first."""
    held_out = candidate.split in ("validation", "test")
    name = (candidate.name.count("/"), len(candidate.name))
    return (
        bool(candidate.why_not),
        not held_out,
        candidate.scale is None,
        -holders,
        -candidate.values,
        *name,
    )


def declared(candidate: CandidateY) -> dict[str, Any]:
    """Return the ``[metric]`` section that reads a candidate as what it is."""
    scale = candidate.scale or (float(np.floor(candidate.low)), float(np.ceil(candidate.high)))
    return {
        "column": candidate.name,
        "kind": candidate.kind if candidate.scale else "reward",
        "split": candidate.split or "validation",
        "scale": scale,
    }


def trial_spec(view: SourceView, candidate: CandidateY) -> Spec:
    """Return the spec with which one source is tried."""
    run = {"path": [printable(view.source)], "split_by": view.split_by}
    compute: dict[str, Any] = {}
    cumulative = [x for x in view.x if x.unit not in (None, "steps") and x.nature in ("cumulative", "resets")]
    if len(cumulative) > 1:
        compute = {"column": [cumulative[0].name]}
    elif not cumulative and view.step is None:
        compute = {"column": [axes.RECORD], "unit": "steps"}
    return make_spec(
        {
            "metric": declared(candidate) | {"stratum": view.stratum, "wide": view.wide or False},
            "compute": compute,
            "run": [run],
        },
        where=view.source,
    )


def _try(view: SourceView, log: RawLog) -> None:
    """Read the log with its best candidate, naming runs or prompt classes apart where that is needed."""
    if not view.y:
        _try_wide(view, log)
    if not view.y:
        view.problem = "no column looks like an outcome; name one with --metric COLUMN"
        return
    view.metric = view.y[0].name
    for _ in range(3):
        spec = trial_spec(view, view.y[0])
        try:
            _fill(view, assemble([(spec.run[0], [log])], spec))
        except MixedRows as error:
            label = error.labels[0]
            prompts = {"index", "problem", "prompt", "dataset", "benchmark", "difficulty", "level"}
            if prompts & set(columns.words(label)) and view.stratum is None:
                view.stratum = label
            else:
                view.split_by = [*view.split_by, label]
            view.problem = str(error)
        except InputError as error:
            view.problem = str(error)
            return
        else:
            view.problem = ""
            return


def _try_wide(view: SourceView, log: RawLog) -> None:
    """Take the columns beside the step as runs when all of them are fractions or percent."""
    rest = [c for c in map(str, log.records) if c not in (view.step, *columns.BOOKKEEPING)]
    if log.run is not None or view.step is None or len(rest) < 2:
        return
    if not all(_numeric(log.records, c) for c in rest):
        return
    values = log.records[rest].to_numpy(dtype=float).ravel()
    values = values[np.isfinite(values)]
    if not len(values) or (scale := _scale("", values)) not in ((0.0, 1.0), (0.0, 100.0)):
        return
    view.wide = rest
    ends = (float(values.min()), float(values.max()), float(values[0]), float(values[-1]))
    view.y = [CandidateY("value", "pass_rate", None, scale, len(values), *ends)]


def _fill(view: SourceView, runs: Runs) -> None:
    if runs.receipts:  # none for a run table that was simulated
        view.receipt = runs.receipts[0].to_dict()
    view.unit = runs.compute.unit
    for name in runs.names:
        rows = runs.overall()
        rows = rows[rows["run"] == name]
        if rows.empty:
            rows = runs.table[runs.table["run"] == name]
        floor = runs.floors.get(name)
        compute, value = rows["compute"].to_numpy(), rows["value"].to_numpy()
        ends = (float(compute[0]), float(compute[-1]))
        view.runs.append(
            RunFound(
                name,
                len(rows),
                None if floor is None else floor.value,
                ends,
                float(value[0]),
                float(value[-1]),
            )
        )


def _warnings(view: SourceView) -> list[str]:
    found = []
    for y in view.y:
        if y.scale == (0.0, 100.0):
            found.append(f"{y.name!r} looks like percent: declare scale = [0, 100]")
        if y.name == view.metric and y.low == y.high == 0:
            found.append(f"{y.name!r} is zero throughout: the run has not started to learn, or is dead")
        # Half the questions right and never more or less is what guessing at yes or no looks like.
        elif (
            y.name == view.metric and y.values >= 5 and y.low > 0.2 and y.high < 0.8 and y.high - y.low < 0.15
        ):
            found.append(
                f"{y.name!r} stays at {y.low:.2f}-{y.high:.2f}: if guessing scores that, declare chance"
            )
    for x in view.x:
        if x.nature == "resets" and x.unit != "steps" and not view.split_by:
            found.append(f"{x.name!r} starts anew within the log: its segments will be chained")
    restarted = [note for note in view.receipt["notes"] if " attempts, " in note]
    found += [f"restarts: {note}" for note in restarted]
    return found


def _view_table(path: Path) -> SourceView:
    """View a run table that was saved: its axes are declared already."""
    runs = Runs.load(path)
    receipt = {"source": str(path), "format": "run table", "rows_read": len(runs.table), "dropped": {}}
    receipt |= {"runs": runs.names, "notes": [], "rows_kept": len(runs.table)}
    view = SourceView(str(path), "run table", path.stem, receipt, metric=runs.metric.name)
    _fill(view, runs)
    view.receipt = receipt
    value, compute = runs.table["value"].to_numpy(), runs.table["compute"].to_numpy()
    ends = (float(value.min()), float(value.max()), float(value[0]), float(value[-1]))
    metric = runs.metric
    view.y = [CandidateY(metric.name, metric.kind, metric.split, metric.scale, len(value), *ends)]
    view.x = [
        CandidateX("compute", runs.compute.unit, "cumulative", len(compute), compute.min(), compute.max())
    ]
    return view
