"""Refits of cut runs by either engine, scored run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forecast.inference.diagnostics import failures
from forecast.inference.observations import Observations, observe
from forecast.inference.priors import Priors, drift_sd
from forecast.inference.screening import screen
from forecast.outlook.contenders import score_run
from forecast.outlook.cuts import Cut, CutRun, cut_runs, folds, split_runs
from forecast.outlook.draws import CurveDraws, drift_draws
from forecast.runs.table import Runs
from forecast.threads import in_threads

if TYPE_CHECKING:
    from forecast.inference.sampling import Report

Rows = list[dict[str, Any]]
"""As `score_run` returns them."""

Scored = Iterator[tuple[Cut, Rows, dict[str, str]]]
"""Cut, rows of forecasts, and run -> why it could not be scored."""


def refit_alone(
    runs: Runs,
    cuts: Sequence[Cut],
    priors: Priors,
    floor: str | float,
    seed: int,
    workers: int,
    report: Report,
) -> Scored:
    """Fit every cut run by itself, spread over threads."""
    tasks: list[tuple[Cut, CutRun, Observations, int]] = []
    for cut in cuts:
        observations, usable, skipped = _usable(runs, cut, runs.names, cut_runs(runs, cut.ends), floor)
        if observations is not None:
            tasks += [(cut, run, observations, observations.runs.index(run.name)) for run in usable]
        yield cut, [], skipped

    def fit_and_score(task: tuple[Cut, CutRun, Observations, int]) -> tuple[Cut, Rows]:
        cut, run, observations, j = task
        curve = _particle_curve(run, observations, j, priors, seed, cut.number)
        return cut, score_run(run, curve, runs.metric, seed, cut.number)

    for done, (cut, rows) in enumerate(in_threads(fit_and_score, tasks, workers), start=1):
        report("refitting", done, len(tasks))
        yield cut, rows, {}


def _particle_curve(
    run: CutRun, observations: Observations, j: int, priors: Priors, seed: int, cut: int
) -> CurveDraws:
    from forecast.inference.particle import INTERVALS, sample_run
    from forecast.inference.run_prior import run_prior

    seeds = [seed, run.number, cut]
    particles = sample_run(
        observations, j, run_prior(priors, observations, j), family="sigmoid", seed=seeds, effort=INTERVALS
    )
    values = {
        name: particles.draws[name].ravel() for name in ("floor", "ceiling", "exponent", "midpoint", "noise")
    }
    drift = drift_draws(drift_sd(run.trials), len(values["floor"]), np.random.default_rng([*seeds, 9]))
    return CurveDraws(**values, drift=drift, fitted_upto=run.fitted_upto)


def refit_together(runs: Runs, cuts: Sequence[Cut], siblings: str, options: Mapping[str, Any]) -> Scored:
    """Fit all runs of a cut, or of a fold of it, in one go; `options` are those of `forecast.fits.fit`."""
    fits = [(cut, fold) for cut in cuts for fold in (folds(runs) if siblings == "whole" else [runs.names])]
    for k, (cut, fold) in enumerate(fits, start=1):
        report: Report = options["report"]

        def numbered(
            stage: str, done: int, total: int, k: int = k, report: Report = report, n: int = len(fits)
        ) -> None:
            report(f"fit {k} of {n}: {stage}", done, total)

        yield cut, *_fit_fold(runs, cut, fold, {**options, "report": numbered})


def _fit_fold(
    runs: Runs, cut: Cut, names: Sequence[str], options: Mapping[str, Any]
) -> tuple[Rows, dict[str, str]]:
    from forecast.fits import fit
    from forecast.outlook.fitted_curves import curve_draws

    early = cut_runs(runs, {name: cut.ends[name] for name in names if name in cut.ends})
    _, usable, skipped = _usable(runs, cut, names, early, options["floor"])
    if not usable:
        return [], skipped
    fitted = fit(early, engine="hierarchical", **options)
    if not fitted.passed:
        reason = f"the sampler's diagnostics failed: {failures(fitted.checks)}"
        return [], skipped | {run.name: reason for run in usable}
    rows: Rows = []
    for run in usable:
        curve = curve_draws(fitted, "run", run.name)
        assert curve is not None
        rows += score_run(run, curve, runs.metric, options["seed"], cut.number)
    return rows, skipped


def _usable(
    runs: Runs, cut: Cut, names: Sequence[str], early: Runs, floor: str | float
) -> tuple[Observations | None, list[CutRun], dict[str, str]]:
    """Observations up to the cut, the runs that can be fitted and scored, and why the others cannot."""
    observations = None if early.overall().empty else observe(early, floor)
    split, skipped = split_runs(runs, cut, names, observations)
    refused = {} if observations is None else screen(observations, runs.metric)
    skipped |= {run.name: refused[run.name] for run in split if run.name in refused}
    return observations, [run for run in split if run.name not in refused], skipped
