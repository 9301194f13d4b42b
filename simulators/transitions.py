"""Second moves: runs that take off again, and runs that collapse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from forecast.curves import sigmoid
from forecast.errors import InputError
from simulators.ranges import Range, check_choice, check_number, check_range

_SIZES: dict[str, Range] = {"rise": (0.2, 0.7), "collapse": (0.15, 0.7)}


@dataclass(frozen=True)
class Transition:
    """Which runs make a second move, how far and when.

    Attributes
    ----------
    kind : {"rise", "collapse", "either"}
        A second rise, a collapse, or one of the two with equal probability.
    share : float
        Probability that a run (or recipe) has one.
    per : {"run", "recipe"}
        Whether runs move each by itself, or all seeds of a recipe alike.
    size : tuple of float, optional
        Range (uniform): height of a rise as a share of the headroom ``1 - ceiling``, depth of a collapse as a
        share of the ceiling; by default 0.2-0.7 and 0.15-0.7. A collapse is no deeper than keeps the curve
        at or above 0.
    steepness, steepness_sd : float
        Median of ``second_exponent`` (per e-fold of compute) and sd of its logarithm.
    location : tuple of float
        Range (log-uniform) of ``second_midpoint`` in multiples of `reference`.
    reference : float, optional
        Compute (unit of the horizon) that `location` and `done` refer to; by default the horizon.
    done : float, optional
        Share of the move that is made at `reference` (0.005: not begun, 0.3: under way). It takes the place
        of `location`.
    """

    kind: str = "rise"
    share: float = 0.25
    per: str = "run"
    size: Range | None = None
    steepness: float = 3.0
    steepness_sd: float = 0.3
    location: Range = (0.25, 1.0)
    reference: float | None = None
    done: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind of transition", self.kind, ("rise", "collapse", "either"))
        check_choice("unit that a transition belongs to", self.per, ("run", "recipe"))
        check_number("share of transitions", self.share, 0.0, 1.0)
        if self.size is not None:
            check_range("size of a transition", self.size, 0.0, 1.0)
        check_range("location of a transition", self.location, 0.0, np.inf, positive=True)
        check_number("steepness_sd of a transition", self.steepness_sd, 0.0)
        if not self.steepness > 0:
            raise InputError("steepness of a transition must be above 0", found=self.steepness)
        if self.reference is not None and not self.reference > 0:
            raise InputError("reference of a transition must be above 0", found=self.reference)
        if self.done is not None and not 0 < self.done < 1:
            raise InputError("done must lie between 0 and 1", found=self.done)


@dataclass(frozen=True)
class Move:
    """A second move: ``rise`` or ``collapse``, its size as a share, steepness and location (compute)."""

    kind: str
    size: float
    steepness: float
    location: float


def draw_moves(
    transition: Transition, recipes: int, seeds: int, horizon: float, rng: np.random.Generator
) -> list[Move | None]:
    """Draw the move of every run, recipe by recipe."""
    each = seeds if transition.per == "recipe" else 1
    moves = [_draw(transition, horizon, rng) for _ in range(recipes * seeds // each)]
    return [move for move in moves for _ in range(each)]


def _draw(transition: Transition, horizon: float, rng: np.random.Generator) -> Move | None:
    # All is drawn for every run, moving or not: a larger share keeps the moves that a smaller one has.
    chance, which, where = rng.random(3)
    kind = transition.kind if transition.kind != "either" else ("rise" if which < 0.5 else "collapse")
    size = float(rng.uniform(*(transition.size or _SIZES[kind])))
    steepness = float(rng.lognormal(np.log(transition.steepness), transition.steepness_sd))
    low, high = np.log(transition.location)
    away = low + (high - low) * where
    if transition.done is not None:
        away = -np.log(transition.done / (1 - transition.done)) / steepness
    location = float((transition.reference or horizon) * np.exp(away))
    return Move(kind, size, steepness, location) if chance < transition.share else None


def with_move(truth: dict[str, Any], move: Move, horizon: float) -> dict[str, Any]:
    """Parameters of a sigmoid run with its second move added."""
    second = {"second_exponent": move.steepness, "second_midpoint": move.location}
    if move.kind == "rise":
        return truth | second | {"family": "second_rise", "rise": move.size * (1 - truth["ceiling"])}
    drop = min(move.size * truth["ceiling"], _deepest(truth, move, horizon))
    return truth | second | {"family": "collapse", "drop": drop}


def _deepest(truth: dict[str, Any], move: Move, horizon: float) -> float:
    """Return the depth at which the falling curve touches 0, anywhere from a thousandth of the horizon on."""
    compute = np.geomspace(horizon / 1_000, 100 * max(horizon, move.location), 2_000)
    level = sigmoid(compute, truth["floor"], truth["ceiling"], truth["exponent"], truth["midpoint"])
    return float((level / sigmoid(compute, 0.0, 1.0, move.steepness, move.location)).min())
