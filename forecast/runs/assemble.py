"""Logs and a spec in, run table out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.runs import axes, checks, columns, series, signals
from forecast.runs.accounts import LOG, SOURCE, Accounts
from forecast.runs.evaluations import finish
from forecast.runs.pieces import Piece, by_run, cut, in_order, text
from forecast.runs.readers.base import RawLog
from forecast.runs.spec import Column, MetricSpec, RunSpec, Spec
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs


def assemble(sources: Sequence[tuple[RunSpec, Sequence[RawLog]]], spec: Spec) -> Runs:
    """Make the run table.

    Parameters
    ----------
    sources : sequence of (RunSpec, sequence of RawLog)
        What was declared about some files, and what they hold.
    spec : Spec
        The declared axes.

    Returns
    -------
    Runs
        With one receipt per log; every record is in the table, a floor, or under a reason in a receipt.

    Raises
    ------
    InputError
        If the logs are not what was declared, or nothing is left.
    """
    logs = [_melted(log, spec) for _, some in sources for log in some]
    if not logs:
        raise InputError("no logs to read")
    accounts = Accounts(log.receipt for log in logs)
    metric, metric_note = checks.choose_metric(logs, spec.metric)
    pieces, choices = cut(sources, logs, spec, metric, accounts)
    for note in (metric_note, checks.check_name(metric, spec.metric, logs[pieces[0].log].source)):
        accounts.note(pieces[0].records.head(1), note)
    parts: list[pd.DataFrame] = []
    beside: list[pd.DataFrame] = []
    floors: dict[str, Floor] = {}
    for name, mine in by_run(pieces).items():
        for run, (rows, floor, signal) in _read_run(
            name, mine, logs, choices, spec, metric, accounts
        ).items():
            if rows.empty:
                accounts.note(
                    mine[0].records.head(1), f"run {run}: no evaluation after training began, left out"
                )
                continue
            parts.append(rows)
            beside.append(signal)
            if floor is not None:
                floors[run] = floor
    if not parts:
        raise InputError(
            f"no evaluation of {metric!r} is left",
            where=", ".join(sorted({str(log.source) for log in logs})[:3]),
            found="; ".join(f"{n} rows: {r}" for r, n in accounts.dropped().items()) or "no rows",
            fix="see `rlforecast inspect`",
        )
    return Runs(
        table=pd.concat(parts, ignore_index=True),
        metric=_metric(metric, spec.metric),
        compute=_compute(choices, spec),
        floors=floors,
        receipts=tuple(accounts.receipts),
        signals=pd.concat(beside, ignore_index=True),
        domain={key: str(value) for key, value in spec.domain.items()},
    )


def _metric(column: str, declared: MetricSpec) -> Metric:
    fields = declared.model_dump(include={"kind", "split", "chance", "prompts", "samples_per_prompt"})
    return Metric(name=column, scale=declared.limits, **fields)


def _compute(choices: dict[int, axes.Choice], spec: Spec) -> ComputeAxis:
    derivations = list(dict.fromkeys(axes.derivation(c, spec.compute) for c in choices.values()))
    unit = next(iter(choices.values())).unit
    return ComputeAxis(
        unit=unit, derivation="; ".join(derivations), price_per_unit=spec.compute.price_per_unit
    )


def _melted(log: RawLog, spec: Spec) -> RawLog:
    """Make a wide table long where that was declared; its values get the metric's name."""
    if spec.metric.wide is False:
        return log
    from forecast.runs.readers import melt_wide

    x = spec.compute.column[0] if spec.compute.column else columns.step_column(log.records, log, None)
    if x is None and len(found := axes.candidates(log.records)) == 1:
        x = found[0]
    if x is None:
        raise InputError(
            "a wide table needs an x column", where=log.source, fix="name it with --compute COLUMN"
        )
    wide = spec.metric.wide
    if wide is True:
        other = {x, *columns.BOOKKEEPING, *(spec.compute.column or ()), spec.compute.step}
        wide = [
            c
            for c in map(str, log.records)
            if c not in other and pd.api.types.is_numeric_dtype(log.records[c])
        ]
    return melt_wide(log, wide, x, spec.metric.column or "value")


def _read_run(
    name: str,
    mine: list[Piece],
    logs: list[RawLog],
    choices: dict[int, axes.Choice],
    spec: Spec,
    metric: str,
    accounts: Accounts,
) -> dict[str, tuple[pd.DataFrame, Floor | None, pd.DataFrame]]:
    """Read one run (or its attempts as runs of their own): evaluations, floor and signals."""
    mine = in_order(mine, logs, accounts)
    declared, axis = mine[0].declared, choices[mine[0].log]
    frames = []
    steps: list[str | None] = []
    for piece in mine:
        log = logs[piece.log]
        step = columns.step_column(piece.records, log, spec.compute.step)
        steps.append(step)
        frames.append(
            piece.records.assign(
                **{
                    series.VALUE: columns.numbers(piece.records, metric, log.source),
                    series.X: axes.logged(piece.records, choices[piece.log], spec.compute, log.source),
                    series.STEP: np.nan if step is None else columns.finite(piece.records, step, log.source),
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True)
    if spec.metric.trials is not None and spec.metric.trials not in frame:
        raise columns.no_column(spec.metric.trials, frame, frame[SOURCE].iloc[0])
    labels = _labels(name, frame, declared)
    frame = accounts.drop(frame, np.isinf(frame[series.VALUE].to_numpy()), f"{metric!r} is infinite")
    shared = series.Series(
        run=name,
        frame=frame,
        metric=metric,
        axis=axis,
        compute=spec.compute,
        has_step=all(s is not None for s in steps),
        formats={logs[p.log].format for p in mine},
        declared_one=declared.name is not None,
        rule=declared.attempts,
    )
    _check_units(frame, axis, shared.where)
    results, training = _strata(shared, spec, accounts)
    beside, note = signals.logged(training, metric)
    accounts.note(mine[0].records.head(1), note)
    found = {}
    for number, rows in results.groupby("attempt") if declared.attempts == "separate" else [(0, results)]:
        several = declared.attempts == "separate" and results["attempt"].nunique() > 1
        run = f"{name}#{int(str(number)) + 1}" if several else name
        table, floor = finish(
            rows.reset_index(drop=True), replace(shared, run=run), declared.floor, spec.metric, accounts
        )
        own = (training["attempt"] == number).to_numpy() | (declared.attempts != "separate")
        signal = signals.per_evaluation(
            training[own], table, {name: values[own] for name, values in beside.items()}
        )
        found[run] = table.assign(run=run, **labels), floor, signal.assign(run=run)
        for log in rows[LOG].unique():
            accounts.receipts[int(log)].runs.append(run)
    return found


def _check_units(frame: pd.DataFrame, axis: axes.Choice, where: str) -> None:
    """Refuse a table whose own unit column says something else, or several things."""
    for column in ("unit", "compute_unit"):
        if column in frame:
            units = sorted({str(u) for u in frame[column].dropna()})
            if len(units) > 1 or (units and units[0] != axis.unit):
                raise InputError(
                    "compute units disagree",
                    where=f"{where}, column {column}",
                    found=", ".join(units),
                    expected=axis.unit,
                )


def _labels(name: str, frame: pd.DataFrame, declared: RunSpec) -> dict[str, Any]:
    """Return recipe, seed, model and task of a run."""
    labels: dict[str, Any] = {"recipe": name}
    for key in ("recipe", "seed", "model", "task"):
        given = getattr(declared, key)
        if not isinstance(given, Column):
            labels |= {key: given} if given is not None else {}
            continue
        if given.column not in frame:
            raise columns.no_column(given.column, frame, frame[SOURCE].iloc[0])
        values = frame[given.column].dropna()
        if values.nunique() > 1:
            raise InputError(
                f"run {name!r} has several values of {key}",
                where=f"{frame[SOURCE].iloc[0]}, column {given.column}",
                found=", ".join(map(text, values.unique()[:6])),
                expected=f"one {key} per run",
                fix=f"name the runs apart: --run {given.column} (split_by)",
            )
        if len(values) and key == "seed":
            number = pd.to_numeric(values.iloc[:1], errors="coerce").iloc[0]
            if not float(number).is_integer():
                raise InputError("seed is no whole number", where=f"run {name}", found=text(values.iloc[0]))
            labels[key] = int(number)
        elif len(values):
            labels[key] = text(values.iloc[0])
    return labels


def _strata(shared: series.Series, spec: Spec, accounts: Accounts) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the whole-set rows of a run and the rows of each prompt class, each a series of its own.

    Returned are all evaluations, and the records (with or without one) that belong to no class.
    """
    frame, stratum = shared.frame, spec.metric.stratum
    if stratum is None:
        classes: list[tuple[str | None, pd.DataFrame]] = [(None, frame)]
    else:
        if stratum not in frame:
            raise columns.no_column(stratum, frame, shared.where)
        blank = frame[stratum].isna()
        classes = [(None, frame[blank])] if blank.any() else []
        named = frame[~blank]
        classes += [(str(c), part) for c, part in named.groupby(named[stratum].map(text), sort=False)]
    done, clock, training = [], None, frame.head(0).assign(attempt=[], compute=[])
    for label, part in classes:
        one = replace(shared, frame=part.reset_index(drop=True))
        if label is not None and clock is not None and part[series.X].isna().all():
            # The counter was logged beside the whole-set rows only: it is read off by step.
            x = np.interp(one.frame[series.STEP], *clock, left=np.nan, right=np.nan)
            one = replace(one, frame=one.frame.assign(**{series.X: x}))
            one = replace(
                one, compute=spec.compute.model_copy(update={"cumulate": False, "times": 1.0, "offset": 0.0})
            )
        rows = series.clean(one, accounts)
        training = rows if label is None else training
        if label is None and shared.has_step and rows["compute"].notna().any():
            known = rows[rows["compute"].notna()]
            clock = (known[series.STEP].to_numpy(dtype=float), known["compute"].to_numpy(dtype=float))
        done.append(series.evaluations(one, rows, accounts).assign(stratum=label))
    return pd.concat(done, ignore_index=True), training
