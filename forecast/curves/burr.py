"""The Burr curve: a sigmoid whose upper tail may be slower or faster than its rise."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from forecast.curves.share import LIMIT, Array, broadcast, exp_or_limit, log_odds, softplus


def burr(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    tail: ArrayLike,
) -> Array:
    """Pass rate after some compute, ``A - (A-R0) (1+(C/Cmid)^B)^-nu``.

    With ``tail = 1`` it is the sigmoid of Khatri et al. 2025 (arXiv 2510.13786, eq. 1). With a small tail it
    rises fast and then creeps, which a sigmoid mistakes for a second rise.

    Parameters
    ----------
    compute : array_like
        C > 0, cumulative compute in any one unit. All arguments broadcast.
    floor, ceiling : array_like
        R0 and A, the pass rates (0-1) before any RL compute and after unlimited compute.
    exponent : array_like
        B > 0, steepness of the rise per e-fold of compute (no unit).
    midpoint : array_like
        Cmid > 0, in the unit of `compute`; the share of the gain left there is ``2^-tail``.
    tail : array_like
        nu > 0 (no unit); far out the gap to the ceiling falls as ``compute^(-exponent * tail)``.

    Returns
    -------
    ndarray
        Pass rate, of the broadcast shape.
    """
    log_remaining = _log_remaining(log_odds(compute, exponent, midpoint), tail)
    done = -np.expm1(log_remaining)
    return np.asarray(floor, dtype=float) * np.exp(log_remaining) + np.asarray(ceiling, dtype=float) * done


def burr_gradient(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    tail: ArrayLike,
) -> dict[str, Array]:
    """Partial derivatives of `burr` with respect to each of its arguments, by name.

    All have the broadcast shape. Units: pass rate per unit of the argument.
    """
    compute, floor, ceiling, exponent, midpoint, tail = (
        np.asarray(x, dtype=float) for x in (compute, floor, ceiling, exponent, midpoint, tail)
    )
    odds = log_odds(compute, exponent, midpoint)
    log_remaining = _log_remaining(odds, tail)
    remaining = np.exp(log_remaining)
    # d(remaining)/d(odds) = -tail * remaining / (1 + exp(-odds)), in logs: two tiny factors would underflow.
    log_slope = np.maximum(log_remaining - softplus(-odds), -LIMIT)
    slope = (ceiling - floor) * tail * np.exp(log_slope)
    return broadcast(
        {
            "floor": remaining,
            "ceiling": -np.expm1(log_remaining),
            "compute": slope * exponent / compute,
            "exponent": slope * (np.log(compute) - np.log(midpoint)),
            "midpoint": -slope * exponent / midpoint,
            "tail": (ceiling - floor) * remaining * softplus(odds),
        }
    )


def burr_compute_to(
    value: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    tail: ArrayLike,
) -> Array:
    """Compute at which the Burr curve reaches `value`, in the unit of `midpoint`.

    Zero where the value does not exceed the floor, ``inf`` where it is never reached (from the ceiling up).
    Broadcasts like `burr`; needs ``floor < ceiling``.
    """
    value, floor, ceiling, exponent, midpoint, tail = np.broadcast_arrays(
        *(np.asarray(x, dtype=float) for x in (value, floor, ceiling, exponent, midpoint, tail))
    )
    reached, never = value <= floor, value >= ceiling
    between = ~(reached | never)
    # remaining^(-1/nu) = 1 + (C/Cmid)^B
    gap = np.where(between, ceiling - value, 1.0)
    gain = np.where(between, ceiling - floor, np.e)
    # log1p keeps the digits of a value just above the floor, where gap / gain rounds to 1.
    log_power = -np.log1p(-np.where(between, value - floor, 0.5) / gain) / tail
    log_power = np.where(gap < 0.5 * gain, (np.log(gain) - np.log(gap)) / tail, log_power)
    # log(exp(p) - 1) = p + log(1 - exp(-p))
    odds = log_power + np.log(-np.expm1(-np.maximum(log_power, 1e-300)))
    compute = exp_or_limit(np.log(midpoint) + odds / exponent)
    return np.where(reached, 0.0, np.where(never, np.inf, compute))


def _log_remaining(odds: Array, tail: ArrayLike) -> Array:
    """Log of the share of the gain still to come, ``-tail * log(1 + exp(odds))``."""
    return np.maximum(-np.asarray(tail, dtype=float) * softplus(odds), -LIMIT)
