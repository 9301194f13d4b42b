"""A sigmoid followed by a second one: a run that takes off again."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from forecast.curves.share import Array, broadcast, share, share_gradient
from forecast.curves.sigmoid import sigmoid, sigmoid_gradient


def second_rise(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    rise: ArrayLike,
    second_exponent: ArrayLike,
    second_midpoint: ArrayLike,
) -> Array:
    """Pass rate after some compute, ``sigmoid + h / (1+(C2/C)^B2)``.

    The first term is eq. 1 of Khatri et al. 2025 (arXiv 2510.13786). Within 0-1 if ``ceiling + rise <= 1``.

    Parameters
    ----------
    compute : array_like
        C > 0, cumulative compute in any one unit. All arguments broadcast.
    floor, ceiling, exponent, midpoint : array_like
        The first rise, as in `sigmoid`; `ceiling` is where it alone would end.
    rise : array_like
        h, height of the second rise (pass rate); the curve ends at ``ceiling + rise``.
    second_exponent : array_like
        B2 > 0, its steepness per e-fold of compute (no unit).
    second_midpoint : array_like
        C2 = exp(m2) > 0, compute at which half of it is made, in the unit of `compute`.

    Returns
    -------
    ndarray
        Pass rate, of the broadcast shape.
    """
    done, _ = share(compute, second_exponent, second_midpoint)
    return sigmoid(compute, floor, ceiling, exponent, midpoint) + np.asarray(rise, dtype=float) * done


def second_rise_gradient(
    compute: ArrayLike,
    floor: ArrayLike,
    ceiling: ArrayLike,
    exponent: ArrayLike,
    midpoint: ArrayLike,
    rise: ArrayLike,
    second_exponent: ArrayLike,
    second_midpoint: ArrayLike,
) -> dict[str, Array]:
    """Partial derivatives of `second_rise` with respect to each of its arguments, by name.

    All have the broadcast shape. Units: pass rate per unit of the argument.
    """
    first = sigmoid_gradient(compute, floor, ceiling, exponent, midpoint)
    done, _ = share(compute, second_exponent, second_midpoint)
    height = np.asarray(rise, dtype=float)
    second = {
        name: height * partial
        for name, partial in share_gradient(compute, second_exponent, second_midpoint).items()
    }
    return broadcast(
        first
        | {
            "compute": first["compute"] + second["compute"],
            "rise": done,
            "second_exponent": second["exponent"],
            "second_midpoint": second["midpoint"],
        }
    )
