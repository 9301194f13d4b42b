"""Checks of the settings that worlds are drawn from: each problem is one `InputError`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from forecast.errors import InputError

Range = tuple[float, float]
"""Lowest and highest value."""


def check_range(
    what: str, value: Sequence[float], low: float, high: float, *, positive: bool = False
) -> None:
    """Refuse a range that is no pair of numbers in order, or leaves ``low``-``high``.

    Parameters
    ----------
    what : str
        Name of the setting.
    value : sequence of float
        Lowest and highest value.
    low, high : float
        What both must lie between, ends included.
    positive : bool
        Refuse 0 as well: the range is drawn from by logarithm.
    """
    pair = len(value) == 2 and all(math.isfinite(number) for number in value)
    if pair and low <= value[0] <= value[1] <= high and not (positive and value[0] <= 0):
        return
    limits = f"within {low:g} to {high:g}" if math.isfinite(high) else f"from {low:g} on"
    raise InputError(
        f"{what} is not a range",
        found=", ".join(f"{number:g}" for number in value),
        expected=f"lowest and highest value {limits}{', above 0' if positive else ''}",
    )


def check_number(what: str, value: float, low: float, high: float = math.inf, *, unit: str = "") -> None:
    """Refuse a number that is not finite or lies outside ``low``-``high``, ends included."""
    if math.isfinite(value) and low <= value <= high:
        return
    limits = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
    raise InputError(f"{what} is out of range", found=f"{value:g}", expected=f"{limits}{unit}")


def check_choice(what: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a word that is not one of `allowed`."""
    if value not in allowed:
        raise InputError(f"unknown {what}", found=repr(value), expected=" | ".join(allowed))


def check_counts(**counts: int) -> None:
    """Refuse a world without anything in it."""
    for what, count in counts.items():
        if count < 1:
            raise InputError(f"a world needs at least one of its {what}", found=count)
