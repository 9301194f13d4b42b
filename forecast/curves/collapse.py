"""A sigmoid from which a later fall is taken away: a run that breaks down."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from forecast.curves.second_rise import second_rise, second_rise_gradient
from forecast.curves.share import Array


def collapse(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    drop: ArrayLike,
    second_exponent: ArrayLike,
    second_midpoint: ArrayLike,
) -> Array:
    """Pass rate after some compute, ``sigmoid - d / (1+(C2/C)^B2)``.

    The first term is eq. 1 of Khatri et al. 2025 (arXiv 2510.13786). A run that starts near its ceiling and
    falls has its midpoint far below its first evaluation (or its floor at the ceiling); `drop` may take it
    below the floor. Whoever chooses `drop` keeps the curve above 0: the formula does not.

    Parameters
    ----------
    compute : array_like
        C > 0, cumulative compute in any one unit. All arguments broadcast.
    floor, ceiling, exponent, midpoint : array_like
        The rise, as in `sigmoid`; `ceiling` is where it would end without the fall.
    drop : array_like
        d, depth of the fall (pass rate); the curve ends at ``ceiling - drop``.
    second_exponent : array_like
        B2 > 0, steepness of the fall per e-fold of compute (no unit).
    second_midpoint : array_like
        C2 = exp(m2) > 0, compute at which half of it has happened, in the unit of `compute`.

    Returns
    -------
    ndarray
        Pass rate, of the broadcast shape.
    """
    fall = -np.asarray(drop, dtype=float)
    return second_rise(compute, floor, ceiling, exponent, midpoint, fall, second_exponent, second_midpoint)


def collapse_gradient(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    drop: ArrayLike,
    second_exponent: ArrayLike,
    second_midpoint: ArrayLike,
) -> dict[str, Array]:
    """Partial derivatives of `collapse` with respect to each of its arguments, by name.

    All have the broadcast shape. Units: pass rate per unit of the argument.
    """
    fall = -np.asarray(drop, dtype=float)
    partials = second_rise_gradient(
        compute, floor, ceiling, exponent, midpoint, fall, second_exponent, second_midpoint
    )
    return partials | {"drop": -partials.pop("rise")}
