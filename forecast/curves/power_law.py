"""The saturating power law: steady progress in log-log terms with no take-off."""

from __future__ import annotations

from numpy.typing import ArrayLike

from forecast.curves.burr import burr, burr_compute_to, burr_gradient
from forecast.curves.share import Array


def power_law(
    compute: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> Array:
    """Pass rate after some compute, ``A - (A-R0) (1+C/Cmid)^-B``: the Burr curve that rises with exponent 1.

    The alternative that Khatri et al. 2025 (arXiv 2510.13786) compare the sigmoid with, made finite at C = 0.

    Parameters
    ----------
    compute : array_like
        C > 0, cumulative compute in any one unit. All arguments broadcast.
    floor, ceiling : array_like
        R0 and A, the pass rates (0-1) before any RL compute and after unlimited compute.
    exponent : array_like
        B > 0 (no unit); far out the gap to the ceiling falls as ``compute^-exponent``.
    midpoint : array_like
        Cmid > 0, in the unit of `compute`; the share of the gain left there is ``2^-exponent``.

    Returns
    -------
    ndarray
        Pass rate, of the broadcast shape.
    """
    return burr(compute, floor, ceiling, 1.0, midpoint, tail=exponent)


def power_law_gradient(
    compute: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> dict[str, Array]:
    """Partial derivatives of `power_law` with respect to each of its arguments, by name.

    All have the broadcast shape. Units: pass rate per unit of the argument.
    """
    partials = burr_gradient(compute, floor, ceiling, 1.0, midpoint, tail=exponent)
    return partials | {"exponent": partials.pop("tail")}


def power_law_compute_to(
    value: ArrayLike, floor: ArrayLike, ceiling: ArrayLike, exponent: ArrayLike, midpoint: ArrayLike
) -> Array:
    """Compute at which the power law reaches `value`, in the unit of `midpoint`.

    Zero where the value does not exceed the floor, ``inf`` where it is never reached (from the ceiling up).
    Broadcasts like `power_law`; needs ``floor < ceiling``.
    """
    return burr_compute_to(value, floor, ceiling, 1.0, midpoint, tail=exponent)
