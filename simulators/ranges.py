"""Checks of the settings that worlds are drawn from: each problem is one `InputError`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index

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
    """Refuse what is no finite number or lies outside ``low``-``high``, ends included."""
    limits = f"{low:g} to {high:g}" if math.isfinite(high) else f"{low:g} or more"
    try:
        inside = math.isfinite(value) and low <= value <= high
        found = f"{value:g}"
    except OverflowError:
        inside, found = False, "more than any float"
    except (TypeError, ValueError):
        inside, found = False, repr(value)
    if not inside:
        raise InputError(f"{what} is out of range", found=found, expected=f"{limits}{unit}")


def check_choice(what: str, value: str, allowed: Sequence[str]) -> None:
    """Refuse a word that is not one of `allowed`."""
    if value not in allowed:
        raise InputError(f"unknown {what}", found=repr(value), expected=" | ".join(allowed))


def whole_numbers(what: str, values: Iterable[int], low: int) -> list[int]:
    """Return the values, sorted and each once; refuse what is no whole number of `low` or more."""
    try:
        found = sorted({index(value) for value in values})
    except TypeError as error:
        raise InputError(
            f"{what} are no whole numbers", found=repr(values), expected=f"{low} or more"
        ) from error
    if not found or found[0] < low:
        raise InputError(f"{what} are out of range", found=found[:1] or "none", expected=f"{low} or more")
    return found


def check_counts(**counts: int) -> None:
    """Refuse a world without anything in it."""
    for what, count in counts.items():
        if count < 1:
            raise InputError(f"a world needs at least one of its {what}", found=count)
