"""Two recipes against each other: which ends higher, and which only gets there sooner."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from forecast.curves.sigmoid import sigmoid_compute_to
from forecast.errors import InputError
from forecast.outlook.draws import CurveDraws
from forecast.outlook.fitted_curves import curve_draws, curve_names, members, model_of
from forecast.outlook.reliability import WARNING_SEPARATOR, left_out, run_warnings

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

_TIE = 1e-3
"""Difference of two curves that makes none the leader."""

_BEYOND = 10.0
_GRID = 240
_ALIKE, _REACH, _TOP, _SLOPE_GRID = 0.2, 3.0, 0.97, 121
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
        One row per pair: ``first, second`` and their base models ``first_model, second_model`` (empty if not
        declared); ``difference_q05, _q50, _q95`` of the ceilings of their sigmoids, second
        less first, on the metric's scale (without the drift that forecasts allow for beyond the data: recipes of one
        experiment would have to creep apart for it to matter here); ``p_higher``,
        ``p_within`` (probability that the second ceiling is higher; that it is within `margin`), ``margin``; ``speed_q05, _q50,
        _q95``: compute that the first needs over compute that the second needs to gain `SHARE` of what the lower of
        both ceilings allows (above 1: the second is faster; exponents cannot be compared where ceilings differ);
        ``p_faster``; ``efficiency_q05, _q50, _q95`` and ``p_efficient``: exponent of the second over that of the
        first, after both curves were fitted again with the mean of their ceilings as the ceiling of both (ScaleRL,
        section 3, there done once, here in every draw); speed and efficiency are of the draws in which curves can be
        compared so, and NaN where those are fewer than half; ``midpoint_q05, _q50, _q95``: midpoint of the first over that
        of the second; ``p_crossing`` and ``crossing`` (median compute, in the fit's unit) of the last crossing of both
        sigmoids up to ten times the fitted compute, differences below .001 left aside; ``verdict`` of the second: ``raises the ceiling``, ``lowers the
        ceiling``, ``only faster``, ``only slower`` or ``not decided``; ``warning`` (why neither it nor the numbers can be
        relied on) and ``left_out`` (runs of the two recipes that were refused).

    Raises
    ------
    Withheld
        If the sampler's diagnostics failed and `force` is false.
    InputError
        If there is nothing to compare.
    """
    if not force:
        fit.require_passed()
    if not 0 < margin <= 1:
        raise InputError(
            "margin must be a fraction of the scale", found=margin, expected="above 0, at most 1"
        )
    if level not in ("recipe", "run"):
        raise InputError("unknown level", found=repr(level), expected="recipe | run")
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
        efficiency = efficiency_ratio(one, other)
        crossing = _crossing(grid, paths[first], paths[second])
        higher, within = _share_above(difference, 0), float(np.mean(np.abs(difference) < margin))
        faster = _share_above(speed, 1)
        rows.append(
            {
                "first": first,
                "second": second,
                "first_model": model_of(fit, members(fit, level, first)),
                "second_model": model_of(fit, members(fit, level, second)),
                **_quantiles("difference", difference * scale),
                "p_higher": higher,
                "p_within": within,
                "margin": margin,
                **_quantiles("speed", speed),
                "p_faster": faster,
                **_quantiles("efficiency", efficiency),
                "p_efficient": _share_above(efficiency, 1),
                **_quantiles("midpoint", one.midpoint / other.midpoint),
                "p_crossing": float(np.isfinite(crossing).mean()),
                "crossing": float(np.nanmedian(crossing)) if np.isfinite(crossing).any() else np.nan,
                "verdict": verdict(higher, within, faster),
                "warning": WARNING_SEPARATOR.join(
                    text
                    for name in (first, second)
                    for text in run_warnings(fit, level, name)
                    if text.startswith("NOT RELIABLE")
                ),
                "left_out": WARNING_SEPARATOR.join(
                    filter(None, (left_out(fit, level, name) for name in (first, second)))
                ),
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
    """Compute that `one` needs over what `other` needs to reach a level that both reach, shape (S,).

    NaN in draws in which one ends below where the other begins.
    """
    floor = np.maximum(one.floor, other.floor)
    gain = np.minimum(one.ceiling, other.ceiling) - floor
    level = floor + SHARE * np.where(gain > 0, gain, np.nan)
    needed = [
        sigmoid_compute_to(level, each.floor, each.ceiling, each.exponent, each.midpoint)
        for each in (one, other)
    ]
    return needed[0] / needed[1]


def efficiency_ratio(one: CurveDraws, other: CurveDraws) -> NDArray[np.float64]:
    """Exponent of `other` over that of `one` at the mean of their ceilings, shape (S,).

    Exponent and ceiling trade off against each other, so exponents are compared with the ceiling held equal: each
    curve is fitted again by the sigmoid with the common ceiling, by least squares on a grid of log compute that spans
    its rise. NaN in draws whose ceilings lie further apart than a fifth of the gain: no common ceiling describes both.

    Parameters
    ----------
    one, other : CurveDraws
    """
    ceiling = (one.ceiling + other.ceiling) / 2
    gain = ceiling - np.maximum(one.floor, other.floor)
    alike = np.abs(one.ceiling - other.ceiling) <= _ALIKE * gain
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = _exponent_at(other, ceiling) / _exponent_at(one, ceiling)
    return np.where(alike & np.isfinite(ratio), ratio, np.nan)


def _exponent_at(curve: CurveDraws, ceiling: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exponent of the sigmoid with that ceiling which is nearest to each draw's curve, shape (S,).

    In logits of the share gained the sigmoid is a line in log compute; weights turn errors of logits into errors of the
    pass rate.
    """
    own = np.linspace(-_REACH, _REACH, _SLOPE_GRID)  # logit of the share of its own gain
    x = own / curve.exponent[:, None]
    share = expit(own) * ((curve.ceiling - curve.floor) / (ceiling - curve.floor))[:, None]
    used = share < _TOP
    share = np.where(used, share, 0.5)
    weight = used * (share * (1 - share)) ** 2
    logit = np.log(share) - np.log1p(-share)
    total = weight.sum(axis=1)
    away = x - ((weight * x).sum(axis=1) / total)[:, None]
    return (weight * away * logit).sum(axis=1) / (weight * away**2).sum(axis=1)


def _known(draws: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draws that are known; none where they are fewer than half: what a few say holds for them alone."""
    known = draws[np.isfinite(draws)]
    return known if 2 * len(known) >= len(draws) else known[:0]


def _share_above(draws: NDArray[np.float64], value: float) -> float:
    """Share of the draws that are known which lie above a value; a tie is half."""
    known = _known(draws)
    return float(np.mean((known > value) + 0.5 * (known == value))) if len(known) else float("nan")


def _thinned(curve: CurveDraws) -> CurveDraws:
    """Every so many draws, `_PATHS` at most, without the drift beyond the data."""
    every = -(-len(curve.ceiling) // _PATHS)
    draws: dict[str, Any] = {}
    for field in fields(curve):
        value = getattr(curve, field.name)
        if isinstance(value, np.ndarray):
            draws[field.name] = value[::every]
    return replace(curve, **draws | {"drift": np.zeros_like(draws["drift"])})


def _crossing(
    grid: NDArray[np.float64], one: NDArray[np.float64], other: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute of the last crossing of two curves [S, points], shape (S,); NaN in draws without one."""
    gap = other - one
    sign = np.where(np.abs(gap) < _TIE, 0, np.sign(gap))
    # Where the curves are as good as equal, who led before still leads.
    led = np.maximum.accumulate(np.where(sign == 0, 0, np.arange(len(grid))), axis=1)
    leader = np.take_along_axis(sign, led, axis=1)
    crossed = leader[:, 1:] * leader[:, :-1] < 0
    last = crossed.shape[1] - 1 - crossed[:, ::-1].argmax(1)
    return np.where(crossed.any(1), np.sqrt(grid[last] * grid[last + 1]), np.nan)


def _quantiles(name: str, draws: NDArray[np.float64]) -> dict[str, float]:
    known = _known(draws)
    return {
        f"{name}_q{q:02d}": float(np.quantile(known, q / 100)) if len(known) else np.nan for q in (5, 50, 95)
    }
