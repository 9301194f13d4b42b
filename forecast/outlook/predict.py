"""What to expect at a given compute, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.outlook.averaged import averaged_draws
from forecast.outlook.draws import LEVELS, CurveDraws
from forecast.outlook.fitted_curves import (
    curve_draws,
    curve_names,
    incumbents,
    members,
    trials_per_evaluation,
)
from forecast.outlook.hazard import Hazard
from forecast.outlook.reliability import WARNING_SEPARATOR, run_warnings

if TYPE_CHECKING:
    from forecast.fits import Fit

QUANTITIES = ("curve", "evaluation")
TRANSITIONS = ("excluded", "averaged")
QUANTILES = (0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95)
GRID_POINTS = 9
_ROUNDING = 1e-9  # relative; the fitted end goes through a logarithm and back
FAR = 10
POOLING_GAP = 0.01
"""Pooled and independent forecasts further apart than this are flagged."""


def predict(
    fit: Fit,
    at: Sequence[float],
    *,
    level: str = "run",
    quantity: str = "curve",
    names: Sequence[str] | None = None,
    transitions: str = "excluded",
    hazard: Hazard | None = None,
    force: bool = False,
) -> pd.DataFrame:
    """Forecast at some compute.

    Parameters
    ----------
    fit : Fit
    at : sequence of float
        Cumulative compute, in the fit's unit.
    level : {"run", "recipe", "new_run"}
        A fitted run, a recipe's mean curve, or a run of the recipe that has not been started.
    quantity : {"curve", "evaluation"}
        The true pass rate, or what one evaluation of the usual size would show.
    names : sequence of str, optional
        Runs (or recipes); default all.
    transitions : {"excluded", "averaged"}
        Whether the curve keeps to one sigmoid, or also may rise again, collapse or level off in another way:
        families are averaged by their evidence and the hazard, see `forecast.outlook.averaged`.
    hazard : Hazard, optional
        Expected transitions per decade of compute; used with ``averaged``.
    force : bool
        Answer although diagnostics failed; every row then carries the warning.

    Returns
    -------
    pandas.DataFrame
        One row per name and compute: ``level, name, compute, unit, quantity, mean, sd, q05 ... q95`` (equal-tailed
        quantiles, on the metric's scale), ``region`` (interpolation or extrapolation), ``times_fitted``
        (compute / largest fitted compute), ``times_midpoint`` (compute / median midpoint), ``transitions``
        and ``hazard`` (as asked), ``least_squares`` (the
        incumbent's point forecast), ``independent`` (mean forecast when recipes learn nothing from each other;
        NaN when nothing is pooled) and ``warning``.

    Raises
    ------
    InputError
        If a compute is not positive, or a level, quantity or name is unknown.
    Withheld
        If the sampler's diagnostics failed and `force` is false.
    """
    compute = _checked_compute(at)
    for what, value, allowed in (
        ("level", level, LEVELS),
        ("quantity", quantity, QUANTITIES),
        ("transitions", transitions, TRANSITIONS),
    ):
        if value not in allowed:
            raise InputError(f"unknown {what}", found=repr(value), expected=" | ".join(allowed))
    expected = Hazard.given(hazard)
    if hazard is not None and transitions == "excluded":
        raise InputError(
            "a hazard has no effect where transitions are excluded", fix="ask for transitions averaged"
        )
    known = curve_names(fit, level)
    if names is not None and (missing := [name for name in names if name not in known]):
        if missing[0] in fit.refused:
            raise InputError(f"no forecast for run {missing[0]!r}", found=fit.refused[missing[0]])
        recipe = level == "run" and missing[0] in fit.observations.recipes
        raise InputError(
            f"no such {level}",
            found=missing[0],
            expected=" | ".join(known),
            fix="it is a recipe: ask for level recipe or new_run" if recipe else "",
        )
    if not force:
        fit.require_passed()
    rows = []
    for name in names or known:
        single = curve_draws(fit, level, name)
        assert single is not None
        averaged = transitions == "averaged"
        curve = averaged_draws(fit, level, name, expected) if averaged else single
        apart = curve_draws(fit, level, name, independent=True)
        # Ends in a 1: NumPy pads seeds with zeros, so a shorter list would repeat the stream of `curve_draws`.
        rng = np.random.default_rng([fit.settings.seed, LEVELS.index(level), known.index(name), 1])
        draws = values(fit, curve, members(fit, level, name), compute, quantity, rng)
        summary = _summary(draws)
        metric = fit.runs.metric
        summary["independent"] = (
            np.nan if apart is None else metric.from_fraction(apart.curve(compute).mean(axis=0))
        )
        incumbent = incumbents(fit, level, name)
        summary["least_squares"] = (
            np.nan if incumbent is None else metric.from_fraction(incumbent.predict(compute))
        )
        own_warnings = run_warnings(fit, level, name)
        summary["warning"] = [
            WARNING_SEPARATOR.join(part for part in (*own_warnings, far, gap) if part)
            for far, gap in zip(_far(curve, compute), _pooling_gap(fit, single, apart, compute), strict=True)
        ]
        rows.append(
            summary.assign(
                level=level,
                name=name,
                compute=compute,
                unit=fit.runs.compute.unit,
                quantity=quantity,
                region=np.where(
                    compute > curve.fitted_upto * (1 + _ROUNDING), "extrapolation", "interpolation"
                ),
                times_fitted=compute / curve.fitted_upto,
                times_midpoint=compute / np.median(single.midpoint),
                transitions=transitions,
                hazard=str(expected) if averaged else "",
            )
        )
    first = [
        "level",
        "name",
        "compute",
        "unit",
        "quantity",
        "mean",
        "sd",
        *(f"q{q * 100:02.0f}" for q in QUANTILES),
    ]
    rest = [
        "region",
        "times_fitted",
        "times_midpoint",
        "transitions",
        "hazard",
        "least_squares",
        "independent",
        "warning",
    ]
    return pd.concat(rows, ignore_index=True)[first + rest]


def grid_to(fit: Fit, to: float | None) -> list[float]:
    """Log-spaced compute from the first fitted evaluation to `to`.

    Raises
    ------
    InputError
        If `to` does not lie beyond the first fitted evaluation.
    """
    first = float(fit.fitted.table["compute"].min())
    if to is None or not np.isfinite(to) or to <= first:
        raise InputError(
            "--to must lie beyond the first fitted evaluation",
            found=to,
            expected=f"more than {first:g} {fit.runs.compute.unit}",
        )
    return [*(float(f"{c:.4g}") for c in np.geomspace(first, to, GRID_POINTS)[:-1]), float(to)]


def values(
    fit: Fit,
    curve: CurveDraws,
    runs: Sequence[str],
    compute: NDArray[np.float64],
    quantity: str,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """Draws of the curve or of evaluations as large as those of `runs`, on the metric's scale, shape (S, points)."""
    if quantity == "curve":
        fractions = curve.curve(compute)
    else:
        fractions = curve.evaluation(compute, trials_per_evaluation(fit, runs), rng)
    return fit.runs.metric.from_fraction(fractions)


def _summary(draws: NDArray[np.float64]) -> pd.DataFrame:
    table = pd.DataFrame({"mean": draws.mean(axis=0), "sd": draws.std(axis=0)})
    for q, row in zip(QUANTILES, np.quantile(draws, QUANTILES, axis=0), strict=True):
        table[f"q{q * 100:02.0f}"] = row
    return table


def _pooling_gap(
    fit: Fit, pooled: CurveDraws, apart: CurveDraws | None, compute: NDArray[np.float64]
) -> list[str]:
    if apart is None:
        text = "the forecast without pooling did not converge and is not shown" if fit.pooled else ""
        return [text] * len(compute)
    gap = pooled.curve(compute).mean(axis=0) - apart.curve(compute).mean(axis=0)
    zero, one = fit.runs.metric.scale
    return [
        f"pooling with sibling recipes moves this by {g * (one - zero):+.3g}" if abs(g) > POOLING_GAP else ""
        for g in gap
    ]


def _far(curve: CurveDraws, compute: NDArray[np.float64]) -> list[str]:
    far = compute > FAR * curve.fitted_upto
    return [
        f"more than {FAR} times the fitted compute: nothing here was tested that far out" if f else ""
        for f in far
    ]


def _checked_compute(at: Sequence[float]) -> NDArray[np.float64]:
    compute = np.atleast_1d(np.asarray(at, dtype=float))
    bad = ~(np.isfinite(compute) & (compute > 0))
    if bad.any() or not len(compute):
        raise InputError(
            "compute to forecast at must be positive",
            found=", ".join(f"{c:g}" for c in compute) or "none",
            expected="finite numbers above 0, such as --at 16000",
        )
    return compute
