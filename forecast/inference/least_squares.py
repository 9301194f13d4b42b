"""Least squares on a grid, the incumbent: Khatri et al. 2025 (arXiv 2510.13786), appendix A.5."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from forecast.curves import sigmoid
from forecast.errors import InputError

Array = NDArray[np.float64]

STEP = 0.005
# The published grids: ceilings 0.450-0.800, and 100 midpoints over 100-40,000 GPU-hours for fits up to 8,000,
# which without the unit is a multiple of the largest compute fitted.
CEILINGS = np.round(np.arange(0.450, 0.800 + STEP / 2, STEP), 3)
WIDE_CEILINGS = np.round(np.arange(0.005, 0.995 + STEP / 2, STEP), 3)
MIDPOINTS = np.linspace(0.0125, 5.0, 100)
# Exponents searched; the published fits lie within 1-6. Beyond 20 a curve is a step between two evaluations.
EXPONENTS = (0.05, 20.0)

_NODES = np.linspace(np.log(EXPONENTS[0]), np.log(EXPONENTS[1]), 64)
_GOLDEN = (np.sqrt(5.0) - 1) / 2
# Shrinks a bracket of two node spacings to 1e-8, where rounding hides the minimum of a sum of squares.
_SHRINKS = 36
# Numbers held per temporary array: 8 MB.
_BLOCK = 1_000_000


@dataclass(frozen=True)
class LeastSquares:
    """The grid cell with the smallest sum of squares.

    Attributes
    ----------
    floor, ceiling : float
        Pass rates (0-1). The floor is the one given, or the best one for the cell.
    exponent : float
        Steepness per e-fold of compute.
    midpoint : float
        Compute at half of the gain, in the unit of the fitted compute.
    sse : float
        Sum of squared residuals over the fitted points.
    grid_extended : bool
        Whether the ceiling left the published grid and was searched over 0.005-0.995 instead.
    """

    floor: float
    ceiling: float
    exponent: float
    midpoint: float
    sse: float
    grid_extended: bool

    def predict(self, compute: ArrayLike) -> Array:
        """Pass rate (0-1) at `compute`: a point forecast that says nothing about its error."""
        return sigmoid(compute, self.floor, self.ceiling, self.exponent, self.midpoint)


@dataclass(frozen=True)
class Cells:
    """Best exponent, floor and sum of squares of grid cells (one entry per cell)."""

    ceiling: Array
    midpoint: Array
    exponent: Array
    floor: Array
    sse: Array


def least_squares(compute: ArrayLike, fraction: ArrayLike, floor: float | None = None) -> LeastSquares | None:
    """Fit one run: exponent by least squares in every (ceiling, midpoint) cell, smallest sum of squares wins.

    A winner at the edge of the published ceilings is refitted on 0.005-0.995, and the result says so.

    Parameters
    ----------
    compute : array_like, shape (points,)
        Cumulative compute > 0, any unit.
    fraction : array_like, shape (points,)
        Pass rates, 0-1.
    floor : float, optional
        Measured floor (0-1); only ceilings above it are tried. Left out, it is solved for in every cell,
        between 0 and the ceiling. (In a fit that starts far past its midpoint it then means nothing.)

    Returns
    -------
    LeastSquares or None
        None if there are fewer points than free parameters: 4, or 3 with a floor.

    Raises
    ------
    InputError
        If the arrays do not describe a run.
    """
    compute, fraction = _checked(compute, fraction, floor)
    if len(compute) < (4 if floor is None else 3):
        return None
    midpoints = MIDPOINTS * compute.max()
    published = CEILINGS if floor is None else CEILINGS[floor < CEILINGS]
    if len(published):
        winner = _winner(compute, fraction, published, midpoints, floor)
        if CEILINGS[0] < winner.ceiling[0] < CEILINGS[-1]:
            return _result(winner, grid_extended=False)
    wide = WIDE_CEILINGS if floor is None else WIDE_CEILINGS[floor < WIDE_CEILINGS]
    return _result(_winner(compute, fraction, wide, midpoints, floor), grid_extended=True)


def fit_cells(
    compute: ArrayLike,
    fraction: ArrayLike,
    ceilings: ArrayLike,
    midpoints: ArrayLike,
    floor: float | None = None,
    *,
    contenders_only: bool = False,
) -> Cells:
    """Fit the exponent (and the floor, if none is given) of every cell of a grid of ceilings and midpoints.

    Parameters
    ----------
    compute, fraction, floor
        As in `least_squares`.
    ceilings, midpoints : array_like, 1-d
        The grid; midpoints in the unit of `compute`.
    contenders_only : bool
        Leave out cells that cannot have the smallest sum of squares.

    Returns
    -------
    Cells
        In row-major order of (ceiling, midpoint).
    """
    compute, fraction = _checked(compute, fraction, floor)
    ceilings, midpoints = (
        np.atleast_1d(np.asarray(ceilings, float)),
        np.atleast_1d(np.asarray(midpoints, float)),
    )
    distance = np.log(compute) - np.log(midpoints)[:, None]
    sse = _sse_at_nodes(distance, fraction, ceilings, floor)
    best = sse.argmin(axis=2)
    if contenders_only:
        i, j = np.nonzero(_contenders(sse, best))
    else:
        i, j = (index.ravel() for index in np.indices(best.shape))
    nodes = best[i, j]
    low, high = _NODES[np.maximum(nodes - 1, 0)], _NODES[np.minimum(nodes + 1, len(_NODES) - 1)]
    log_exponent, gain, smallest = np.empty(len(i)), np.empty(len(i)), np.empty(len(i))
    block = max(1, _BLOCK // len(compute))
    for start in range(0, len(i), block):
        part = slice(start, start + block)
        log_exponent[part], gain[part], smallest[part] = _golden_section(
            low[part], high[part], distance[j[part]], fraction, ceilings[i[part]], floor
        )
    floors = ceilings[i] - gain if floor is None else np.full(len(i), float(floor))
    return Cells(ceilings[i], midpoints[j], np.exp(log_exponent), floors, smallest)


def _winner(compute: Array, fraction: Array, ceilings: Array, midpoints: Array, floor: float | None) -> Cells:
    cells = fit_cells(compute, fraction, ceilings, midpoints, floor, contenders_only=True)
    k = [int(cells.sse.argmin())]
    return Cells(cells.ceiling[k], cells.midpoint[k], cells.exponent[k], cells.floor[k], cells.sse[k])


def _result(winner: Cells, *, grid_extended: bool) -> LeastSquares:
    return LeastSquares(
        floor=winner.floor.item(),
        ceiling=winner.ceiling.item(),
        exponent=winner.exponent.item(),
        midpoint=winner.midpoint.item(),
        sse=winner.sse.item(),
        grid_extended=grid_extended,
    )


def _sse_at_nodes(distance: Array, fraction: Array, ceilings: Array, floor: float | None) -> Array:
    """Sum of squares on (ceilings, midpoints, exponent nodes).

    With r the share of the gain still to come and G the gain, residuals are ``(A - y) - G r``: three sums
    over the points, which do not involve the ceiling, serve every ceiling.
    """
    exponents = np.exp(_NODES)
    sums = np.empty((3, len(distance), len(exponents)))
    block = max(1, _BLOCK // (len(fraction) * len(exponents)))
    weights = np.stack([np.ones_like(fraction), fraction], axis=1)
    for start in range(0, len(distance), block):
        part = slice(start, start + block)
        remaining = expit(-exponents[:, None] * distance[part, None, :])
        sums[:2, part] = np.moveaxis(remaining @ weights, -1, 0)
        sums[2, part] = np.einsum("mkn,mkn->mk", remaining, remaining)
    total, total_y, squares = sums
    above = ceilings[:, None, None]
    cross = above * total - total_y
    gain = _gain(cross, squares, above, floor)
    constant = ((ceilings[:, None] - fraction) ** 2).sum(axis=1)[:, None, None]
    return constant - gain * (2 * cross - gain * squares)


def _gain(cross: Array, squares: Array, ceiling: Array, floor: float | None) -> Array:
    """Ceiling minus floor: from a given floor, else the least-squares one with the floor in 0-ceiling."""
    if floor is not None:
        return ceiling - floor
    return np.clip(cross / np.maximum(squares, 1e-300), 0.0, ceiling)


def _contenders(sse: Array, best: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Cells that could still have the smallest sum of squares once the exponent is searched between nodes.

    A parabola through three nodes falls below the middle one by at most an eighth of its second difference;
    four times that is granted.
    """
    middle = np.clip(best, 1, len(_NODES) - 2)
    left, centre, right = (
        np.take_along_axis(sse, (middle + k)[:, :, None], axis=2)[:, :, 0] for k in (-1, 0, 1)
    )
    smallest = np.take_along_axis(sse, best[:, :, None], axis=2)[:, :, 0]
    possible = smallest - np.abs(left - 2 * centre + right) / 2
    return possible <= smallest.min()


def _golden_section(
    low: Array, high: Array, distance: Array, fraction: Array, ceiling: Array, floor: float | None
) -> tuple[Array, Array, Array]:
    """Minimise over the log exponent in [low, high], all cells at once.

    Returns the log exponent, the gain and the sum of squares of each cell.
    """
    above = ceiling[:, None] - fraction

    def evaluate(log_exponent: Array) -> tuple[Array, Array]:
        remaining = expit(-np.exp(log_exponent)[:, None] * distance)
        cross = np.einsum("cn,cn->c", above, remaining)
        gain = _gain(cross, np.einsum("cn,cn->c", remaining, remaining), ceiling, floor)
        residual = above - gain[:, None] * remaining
        return np.einsum("cn,cn->c", residual, residual), gain

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = evaluate(left)[0], evaluate(right)[0]
    for _ in range(_SHRINKS):
        smaller = at_left < at_right
        low, high = np.where(smaller, low, left), np.where(smaller, right, high)
        fresh = np.where(smaller, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
        at_fresh = evaluate(fresh)[0]
        left, right = np.where(smaller, fresh, right), np.where(smaller, left, fresh)
        at_left, at_right = np.where(smaller, at_fresh, at_right), np.where(smaller, at_left, at_fresh)
    middle = (low + high) / 2
    sse, gain = evaluate(middle)
    return middle, gain, sse


def _checked(compute: ArrayLike, fraction: ArrayLike, floor: float | None) -> tuple[Array, Array]:
    compute, fraction = np.asarray(compute, dtype=float), np.asarray(fraction, dtype=float)
    if compute.ndim != 1 or compute.shape != fraction.shape:
        raise InputError(
            "least squares needs one pass rate per compute", found=[compute.shape, fraction.shape]
        )
    bad = ~(np.isfinite(compute) & (compute > 0))
    if bad.any():
        raise InputError("compute must be a positive number", found=compute[bad][0])
    bad = ~((fraction >= 0) & (fraction <= 1))
    if bad.any():
        raise InputError("pass rates must be fractions", found=fraction[bad][0], expected="0 to 1")
    if floor is not None and not 0 <= floor < WIDE_CEILINGS[-1]:
        raise InputError(
            "floor leaves no room for a ceiling", found=floor, expected=f"0 <= floor < {WIDE_CEILINGS[-1]}"
        )
    return compute, fraction
