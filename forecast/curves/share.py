"""How far a rise has come: the logistic function of log compute that every family is built from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

Array = NDArray[np.float64]

# exp(-500) = 7e-218: beyond it a pass rate no longer changes in any digit, and before it products of the
# share with parameters and with 1/compute stay clear of underflow for compute within 1e-30..1e30.
LIMIT = 500.0


def log_odds(compute: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike) -> Array:
    """``exponent * log(compute / midpoint)``; both computes > 0, in one unit."""
    distance = np.log(np.asarray(compute, dtype=float)) - np.log(np.asarray(midpoint, dtype=float))
    return np.asarray(exponent, dtype=float) * distance


def softplus(odds: Array) -> Array:
    """``log(1 + exp(odds))`` that neither overflows nor underflows."""
    return np.maximum(odds, 0.0) + np.log1p(np.exp(-np.minimum(np.abs(odds), LIMIT)))


def share(compute: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike) -> tuple[Array, Array]:
    """Done and remaining share of a logistic rise, ``1/(1+(midpoint/compute)^exponent)`` and 1 minus it.

    Both are returned because ``1 - done`` loses every digit far past the midpoint.
    """
    odds = np.clip(log_odds(compute, exponent, midpoint), -LIMIT, LIMIT)
    return expit(odds), expit(-odds)


def share_gradient(compute: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike) -> dict[str, Array]:
    """Partial derivatives of the done share with respect to ``compute``, ``exponent`` and ``midpoint``."""
    compute, exponent, midpoint = (np.asarray(x, dtype=float) for x in (compute, exponent, midpoint))
    done, remaining = share(compute, exponent, midpoint)
    slope = done * remaining
    return {
        "compute": slope * exponent / compute,
        "exponent": slope * (np.log(compute) - np.log(midpoint)),
        "midpoint": -slope * exponent / midpoint,
    }


def broadcast(partials: dict[str, Array]) -> dict[str, Array]:
    """Give every partial derivative the shape that the curve itself has."""
    return dict(zip(partials, np.broadcast_arrays(*partials.values()), strict=True))


def exp_or_limit(log_compute: ArrayLike) -> Array:
    """``exp`` that answers 0 or inf outside the range of a float, without a warning."""
    log_compute = np.asarray(log_compute, dtype=float)
    inside = np.exp(np.clip(log_compute, -700.0, 700.0))
    return np.where(log_compute > 700.0, np.inf, np.where(log_compute < -700.0, 0.0, inside))
