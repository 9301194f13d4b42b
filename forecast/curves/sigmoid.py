"""The sigmoid of compute (Khatri et al. 2025, arXiv 2510.13786, eq. 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from forecast.curves.share import Array, broadcast, exp_or_limit, share, share_gradient


def sigmoid(
    compute: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> Array:
    """Pass rate after some compute, ``R0 + (A-R0)/(1+(Cmid/C)^B)``.

    Arguments broadcast against each other: parameters of shape (draws, 1) and compute of shape (points,) give
    (draws, points).

    Parameters
    ----------
    compute : array_like
        C > 0, cumulative compute in any one unit.
    floor, ceiling : array_like
        R0 and A, the pass rates (0-1) before any RL compute and after unlimited compute.
    exponent : array_like
        B > 0, steepness per e-fold of compute (no unit).
    midpoint : array_like
        Cmid > 0, compute at which half of the gain is made, in the unit of `compute`.

    Returns
    -------
    ndarray
        Pass rate, of the broadcast shape.
    """
    done, remaining = share(compute, exponent, midpoint)
    # A weighted mean, not floor + gain * done: exact at both ends.
    return np.asarray(floor, dtype=float) * remaining + np.asarray(ceiling, dtype=float) * done


def sigmoid_gradient(
    compute: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> dict[str, Array]:
    """Partial derivatives of `sigmoid` with respect to each of its arguments, by name.

    All have the broadcast shape. Units: pass rate per unit of the argument.
    """
    floor, ceiling = np.asarray(floor, dtype=float), np.asarray(ceiling, dtype=float)
    done, remaining = share(compute, exponent, midpoint)
    gain = ceiling - floor
    inner = {name: gain * partial for name, partial in share_gradient(compute, exponent, midpoint).items()}
    return broadcast({"floor": remaining, "ceiling": done, **inner})


def sigmoid_compute_to(
    value: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> Array:
    """Compute at which the sigmoid reaches `value`, in the unit of `midpoint`.

    Zero where the value does not exceed the floor, ``inf`` where it is never reached (from the ceiling up).
    Broadcasts like `sigmoid`; needs ``floor < ceiling``.
    """
    value, floor, ceiling = np.broadcast_arrays(
        *(np.asarray(x, dtype=float) for x in (value, floor, ceiling))
    )
    reached, never = value <= floor, value >= ceiling
    between = ~(reached | never)
    odds = np.log(np.where(between, value - floor, 1.0)) - np.log(np.where(between, ceiling - value, 1.0))
    compute = exp_or_limit(
        np.log(np.asarray(midpoint, dtype=float)) + odds / np.asarray(exponent, dtype=float)
    )
    return np.where(reached, 0.0, np.where(never, np.inf, compute))
