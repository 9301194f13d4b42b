"""Two recipes against each other: which ends higher, and which only gets there sooner."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecast.curves.sigmoid import sigmoid_compute_to
from forecast.errors import InputError
from forecast.outlook.draws import CurveDraws
from forecast.outlook.fitted_curves import curve_draws, curve_names

if TYPE_CHECKING:
    from forecast.fits import Fit

MARGIN = 0.02
"""Ceilings closer than this are as good as equal: repeats of one run differ by as much (ScaleRL, appendix A.5)."""

SURE = 0.95
"""Probability from which a direction is called decided."""

LIKELY = 0.8
"""Probability from which ceilings are called as good as equal."""

SHARE = 0.5
"""Of the gain to the lower of two ceilings, at which speeds are compared."""

_BEYOND = 10.0
_GRID = 240
_PATHS = 2000
"""Draws whose whole curve is looked at for crossings: the standard error of a probability is .011 at most."""


def compare(fit: Fit, *, level: str = "recipe", margin: float = MARGIN, force: bool = False) -> pd.DataFrame:
    """Compare all pairs of recipes, or of runs, draw by draw of the joint posterior.

    Parameters
    ----------
    fit : Fit
    level : {"recipe", "run"}
    margin : float
        Difference of ceilings, as a fraction, that does not matter.
    force : bool
        Compare even where the sampler's diagnostics failed.

    Returns
    -------
    pandas.DataFrame
        One row per pair: ``first, second``; ``difference_q05, _q50, _q95`` of the ceilings of their sigmoids, second
        less first, on the metric's scale (without the drift that forecasts allow for beyond the data: recipes of one
        experiment would have to creep apart for it to matter here); ``p_higher``,
        ``p_within`` (probability that the second ceiling is higher; that it is within `margin`); ``speed_q05, _q50,
        _q95``: compute that the first needs over compute that the second needs to gain `SHARE` of what the lower of
        both ceilings allows (above 1: the second is faster; exponents cannot be compared where ceilings differ);
        ``p_faster``; ``p_crossing`` and ``crossing`` (median compute, in the fit's unit) of the last crossing of both
        curves up to ten times the fitted compute; ``verdict`` of the second: ``raises the ceiling``, ``lowers the
        ceiling``, ``only faster``, ``only slower`` or ``not decided``.

    Raises
    ------
    Withheld
        If the sampler's diagnostics failed and `force` is false.
    InputError
        If there is nothing to compare.
    """
    if not force:
        fit.require_passed()
    names = curve_names(fit, level)
    if len(names) < 2:
        raise InputError(f"one {level} is nothing to compare", found=", ".join(names), expected="two or more")
    curves = {name: curve_draws(fit, level, name) for name in names}
    upto = float(fit.observations.fitted_upto.max())
    grid = np.geomspace(upto / 1000, upto * _BEYOND, _GRID)
    paths = {name: _thinned(curve).curve(grid) for name, curve in curves.items() if curve is not None}
    metric = fit.runs.metric
    scale = metric.scale[1] - metric.scale[0]
    rows = []
    for first, second in combinations(names, 2):
        one, other = curves[first], curves[second]
        assert one is not None
        assert other is not None
        difference = other.ceiling - one.ceiling
        speed = _speed(one, other)
        crossing = _crossing(grid, paths[first], paths[second])
        higher, within = float(np.mean(difference > 0)), float(np.mean(np.abs(difference) < margin))
        faster = float(np.mean(speed > 1))
        rows.append(
            {
                "first": first,
                "second": second,
                **_quantiles("difference", difference * scale),
                "p_higher": higher,
                "p_within": within,
                **_quantiles("speed", speed),
                "p_faster": faster,
                "p_crossing": float(np.isfinite(crossing).mean()),
                "crossing": float(np.nanmedian(crossing)) if np.isfinite(crossing).any() else np.nan,
                "verdict": verdict(higher, within, faster),
            }
        )
    return pd.DataFrame(rows)


def verdict(higher: float, within: float, faster: float) -> str:
    """Say in words what three probabilities say.

    Parameters
    ----------
    higher, within, faster : float
        That the ceiling is higher, that it is as good as equal, that the way there is faster.
    """
    if within >= LIKELY:
        if max(faster, 1 - faster) >= SURE:
            return "only faster" if faster >= SURE else "only slower"
    elif within < 1 - LIKELY and max(higher, 1 - higher) >= SURE:
        return "raises the ceiling" if higher >= SURE else "lowers the ceiling"
    return "not decided"


def _speed(one: CurveDraws, other: CurveDraws) -> NDArray[np.float64]:
    """Compute that `one` needs over what `other` needs to reach a level that both reach, shape (S,)."""
    floor = np.maximum(one.floor, other.floor)
    level = floor + SHARE * (np.minimum(one.ceiling, other.ceiling) - floor)
    needed = [
        sigmoid_compute_to(level, each.floor, each.ceiling, each.exponent, each.midpoint)
        for each in (one, other)
    ]
    return needed[0] / needed[1]


def _thinned(curve: CurveDraws) -> CurveDraws:
    """Every so many draws, `_PATHS` at most."""
    every = -(-len(curve.ceiling) // _PATHS)
    draws: dict[str, Any] = {}
    for field in fields(curve):
        value = getattr(curve, field.name)
        if isinstance(value, np.ndarray):
            draws[field.name] = value[::every]
    return replace(curve, **draws)


def _crossing(
    grid: NDArray[np.float64], one: NDArray[np.float64], other: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute of the last crossing of two curves [S, points], shape (S,); NaN in draws without one."""
    ahead = other > one
    crossed = ahead[:, 1:] != ahead[:, :-1]
    last = crossed.shape[1] - 1 - crossed[:, ::-1].argmax(1)
    return np.where(crossed.any(1), np.sqrt(grid[last] * grid[last + 1]), np.nan)


def _quantiles(name: str, draws: NDArray[np.float64]) -> dict[str, float]:
    return {f"{name}_q{q:02d}": float(np.nanquantile(draws, q / 100)) for q in (5, 50, 95)}
