"""Nonlinear least squares with a covariance, the textbook forecast: a sigmoid or a power law through one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecast.curves import power_law, power_law_gradient, sigmoid, sigmoid_gradient
from forecast.errors import InputError
from forecast.inference.least_squares import EXPONENTS

Array = NDArray[np.float64]

COORDINATES = ("floor", "ceiling", "log_exponent", "log_midpoint")
"""What is estimated, and what the covariance is of."""

_FAMILIES = {"sigmoid": (sigmoid, sigmoid_gradient), "power_law": (power_law, power_law_gradient)}
_MIDPOINT_REACH = np.log(100.0)  # midpoints are searched this far (in logs) before and beyond the data
_START_EXPONENTS = np.geomspace(0.3, 8.0, 9)
_START_MIDPOINTS = 20
_STARTS = 3
_FIRST_ITERATIONS, _ITERATIONS = 5, 60
_CONVERGED = 1e-7  # relative fall of the sum of squares
_DAMPING = (1e-9, 1e9)
_LEAST_SD = 1e-6  # of an evaluation, where a curve passes through every point


@dataclass(frozen=True, eq=False)
class CurveFit:
    """The curve with the smallest sum of squares and the usual linearised uncertainty.

    Attributes
    ----------
    family : str
        ``sigmoid`` or ``power_law``.
    floor, ceiling, exponent, midpoint : float
        Pass rates (0-1), no unit, and the unit of the fitted compute.
    sse : float
        Sum of squared residuals.
    residual_sd : float
        ``sqrt(sse / (points - estimated parameters))``, the sd of one evaluation around the curve.
    root : ndarray, shape (4, rank)
        Square root of `covariance`.
    bounds : ndarray, shape (2, 4)
        Where `COORDINATES` were searched.
    """

    family: str
    floor: float
    ceiling: float
    exponent: float
    midpoint: float
    sse: float
    residual_sd: float
    root: Array
    bounds: Array

    @property
    def covariance(self) -> Array:
        """Of `COORDINATES`, shape (4, 4); zero for a floor that was given and for what lies on a bound."""
        return self.root @ self.root.T

    def predict(self, compute: ArrayLike) -> Array:
        """Pass rate (0-1) of the fitted curve."""
        curve, _ = _FAMILIES[self.family]
        return curve(compute, self.floor, self.ceiling, self.exponent, self.midpoint)

    def draws(self, compute: ArrayLike, size: int, rng: np.random.Generator) -> Array:
        """Pass rates of curves drawn from the estimated covariance, shape (size, points).

        Drawn parameters that leave the range of the fit are moved onto its end. The noise of an evaluation is not
        included, see `residual_sd`.
        """
        centre = np.array([self.floor, self.ceiling, np.log(self.exponent), np.log(self.midpoint)])
        drawn = centre + rng.standard_normal((size, self.root.shape[1])) @ self.root.T
        floor, ceiling, log_exponent, log_midpoint = np.clip(drawn, *self.bounds).T[:, :, None]
        curve, _ = _FAMILIES[self.family]
        compute = np.asarray(compute, dtype=float)
        return np.clip(curve(compute, floor, ceiling, np.exp(log_exponent), np.exp(log_midpoint)), 0.0, 1.0)


def fit_curve(
    family: str, compute: ArrayLike, fraction: ArrayLike, floor: float | None = None
) -> CurveFit | None:
    """Fit one run by bounded Levenberg-Marquardt from the best few cells of a coarse grid.

    Parameters
    ----------
    family : {"sigmoid", "power_law"}
    compute : array_like, shape (points,)
        Cumulative compute, any unit and order.
    fraction : array_like, shape (points,)
        Pass rates, 0-1.
    floor : float, optional
        Measured floor (0-1), taken as exact; left out, it is estimated too.

    Returns
    -------
    CurveFit or None
        None where there is nothing to fit: not more points than parameters, all values alike, or numbers that
        are no compute or no pass rates.
    """
    if family not in _FAMILIES:
        raise InputError("unknown family", found=repr(family), expected=" | ".join(_FAMILIES))
    compute, fraction = np.asarray(compute, dtype=float), np.asarray(fraction, dtype=float)
    parameters = 4 if floor is None else 3
    if compute.shape != fraction.shape or len(compute) <= parameters or not _sound(compute, fraction, floor):
        return None
    unit = compute.max()
    curve, gradient = _FAMILIES[family]
    log_compute = np.log(compute / unit)
    x = np.exp(log_compute)
    bounds = np.array(
        [
            [0.0, floor or 0.0, np.log(EXPONENTS[0]), log_compute.min() - _MIDPOINT_REACH],
            [1.0, 1.0, np.log(EXPONENTS[1]), _MIDPOINT_REACH],
        ]
    )
    if floor is not None:
        bounds[:, 0] = floor

    def residual(z: Array) -> Array:
        return curve(x, z[0], z[1], np.exp(z[2]), np.exp(z[3])) - fraction

    def jacobian(z: Array) -> Array:
        exponent, midpoint = np.exp(z[2]), np.exp(z[3])
        partials = gradient(x, z[0], z[1], exponent, midpoint)
        columns = (partials["floor"], partials["ceiling"], partials["exponent"] * exponent)
        return np.stack([*columns, partials["midpoint"] * midpoint], axis=1)

    starts = _starts(curve, x, fraction, floor, bounds)
    begun = [_descend(residual, jacobian, start, bounds, _FIRST_ITERATIONS) for start in starts]
    best, sse = _descend(residual, jacobian, min(begun, key=lambda end: end[1])[0], bounds, _ITERATIONS)
    residual_sd = max(float(np.sqrt(sse / (len(x) - parameters))), _LEAST_SD)
    inside = (best > bounds[0]) & (best < bounds[1])
    return CurveFit(
        family=family,
        floor=float(best[0]),
        ceiling=float(best[1]),
        exponent=float(np.exp(best[2])),
        midpoint=float(np.exp(best[3]) * unit),
        sse=sse,
        residual_sd=residual_sd,
        root=residual_sd * _inverse_root(jacobian(best), inside),
        bounds=bounds + np.array([0.0, 0.0, 0.0, np.log(unit)]),
    )


def _sound(compute: Array, fraction: Array, floor: float | None) -> bool:
    return bool(
        np.isfinite(compute).all()
        and compute.min() > 0
        and compute.max() < 1e30 * compute.min()
        and ((fraction >= 0) & (fraction <= 1)).all()
        and np.ptp(fraction) > 0
        and (floor is None or 0 <= floor < 1)
    )


def _starts(
    curve: Callable[..., Array], x: Array, fraction: Array, floor: float | None, bounds: Array
) -> list[Array]:
    """Coordinates of the best few cells of a grid of exponents and midpoints, not next to each other."""
    low, high = np.log(x.min()) - 1.0, 1.0 + _MIDPOINT_REACH / 2
    log_exponents, midpoints = np.log(_START_EXPONENTS), np.linspace(low, high, _START_MIDPOINTS)
    shape = (len(log_exponents), len(midpoints))
    done = curve(x, 0.0, 1.0, np.exp(log_exponents)[:, None, None], np.exp(midpoints)[:, None])
    if floor is None:
        centred = done - done.mean(axis=2, keepdims=True)
        spread = np.maximum((centred**2).sum(axis=2), 1e-300)
        slope = (centred @ (fraction - fraction.mean())) / spread
        floors = np.clip(fraction.mean() - slope * done.mean(axis=2), 0.0, 1.0)
        ceilings = np.clip(floors + slope, 0.0, 1.0)
    else:
        floors = np.full(shape, floor)
        squares = np.maximum((done**2).sum(axis=2), 1e-300)
        ceilings = np.clip(floor + (done @ (fraction - floor)) / squares, floor, 1.0)
    values = floors[:, :, None] + (ceilings - floors)[:, :, None] * done
    sse = ((values - fraction) ** 2).sum(axis=2)
    starts: list[Array] = []
    rows, columns = np.indices(shape)
    while len(starts) < _STARTS:
        i, k = np.unravel_index(int(sse.argmin()), shape)
        at = np.array([floors[i, k], ceilings[i, k], log_exponents[i], midpoints[k]])
        starts.append(np.clip(at, *bounds))
        sse = np.where((abs(rows - i) <= 2) & (abs(columns - k) <= 3), np.inf, sse)
    return starts


def _descend(
    residual: Callable[[Array], Array],
    jacobian: Callable[[Array], Array],
    z: Array,
    bounds: Array,
    iterations: int,
) -> tuple[Array, float]:
    """Levenberg-Marquardt on the parameters that no bound holds; returns where it ends and its sum of squares."""
    r = residual(z)
    sse = float(r @ r)
    damping = 1e-3
    for _ in range(iterations):
        slopes = jacobian(z)
        gradient = slopes.T @ r
        held = ((z <= bounds[0]) & (gradient >= 0)) | ((z >= bounds[1]) & (gradient <= 0))
        length = np.sqrt((slopes**2).sum(axis=0))
        free = np.flatnonzero(~held & (length > 1e-150))
        if not len(free):
            break
        columns = slopes[:, free] / length[free]
        normal, target = columns.T @ columns, -gradient[free] / length[free]
        improved = 0.0
        while damping <= _DAMPING[1]:
            step = np.linalg.solve(normal + damping * np.eye(len(free)), target)
            trial = z.copy()
            trial[free] += step / length[free]
            trial = np.clip(trial, *bounds)
            r_trial = residual(trial)
            sse_trial = float(r_trial @ r_trial)
            if sse_trial < sse:
                improved = sse - sse_trial
                z, r, sse = trial, r_trial, sse_trial
                damping = max(damping / 8, _DAMPING[0])
                break
            damping *= 6
        if improved <= _CONVERGED * sse:
            break
    return z, sse


def _inverse_root(slopes: Array, inside: NDArray[np.bool_]) -> Array:
    """R of shape (4, rank) with ``R R' = pinv(J' J)`` over the parameters inside their bounds, as curve_fit has it."""
    length = np.sqrt((slopes**2).sum(axis=0))
    free = np.flatnonzero(inside & (length > 1e-150))
    root = np.zeros((slopes.shape[1], len(free)))
    if not len(free):
        return root
    _, singular, directions = np.linalg.svd(slopes[:, free] / length[free], full_matrices=False)
    kept = singular > np.finfo(float).eps * max(slopes.shape) * singular[0]
    root[free] = np.where(kept, (directions / np.where(kept, singular, 1.0)[:, None]).T, 0.0)
    root[free] /= length[free][:, None]
    return root
