"""What may happen to a run after its last evaluation: named scenarios whose truth is a formula.

Compute is in units of what the run has used: every scenario leaves the curve as it is up to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecast.errors import InputError
from simulators.ranges import Range, check_number, check_range

NO_MOVE = "none"


@dataclass(frozen=True)
class Course:
    """How a run goes on.

    Attributes
    ----------
    true : ndarray, shape (points,)
        True pass rate.
    seen : ndarray, shape (points,)
        What evaluations measure, but for their noise.
    kind : str
        Of the move that a flag should show: ``rise``, ``collapse`` or ``none``.
    """

    true: NDArray[np.float64]
    seen: NDArray[np.float64]
    kind: str


def progress(compute: ArrayLike, midpoint: float, steepness: float) -> NDArray[np.float64]:
    """Share of a move that is made: 0 up to compute 1, a half at the midpoint, 1 in the end.

    A log-logistic that is shifted and scaled so that nothing of it lies before compute 1.

    Parameters
    ----------
    compute : array_like
        In units of what the run has used.
    midpoint : float
        Above 1.
    steepness : float
        Per e-fold of compute.
    """
    # Beyond 1e30 nothing is left to be made, and powers would overflow.
    power = np.clip(np.asarray(compute, dtype=float), 1.0, 1e30) ** steepness
    return (power - 1) / (power + midpoint**steepness - 2)


def _moved(curve: NDArray[np.float64], move: NDArray[np.float64], kind: str) -> Course:
    true = np.clip(curve + move, 0.0, 1.0)
    return Course(true, true, kind)


MOST_TIMES = 1e6
"""Farthest that a move may lie, in units of what the run has used."""


def _check_move(at: float, steepness: float) -> None:
    if not 1 < at <= MOST_TIMES:
        raise InputError(
            "a move must lie after what the run has used",
            found=f"at {at:g}",
            expected=f"more than 1, at most {MOST_TIMES:g}",
        )
    check_number("steepness", steepness, 0.1, 100.0)


@dataclass(frozen=True)
class Scenario:
    """The run goes on as its curve says; the base of all scenarios.

    Attributes
    ----------
    what : str
        The scenario in a few words.
    """

    what: ClassVar[str] = "nothing happens"

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """What becomes of a curve.

        Parameters
        ----------
        compute : ndarray, shape (points,)
            In units of what the run has used; in any order.
        curve : ndarray, shape (points,)
            Pass rate there if nothing happens.
        ceiling : float
            Of the curve.
        rng : numpy.random.Generator
            Of what is drawn anew for each world.
        """
        return _moved(curve, np.zeros_like(curve), NO_MOVE)

    def noise(self, sd: float, correlation: float, rng: np.random.Generator) -> tuple[float, float]:
        """Sd of the wander around the curve, and its correlation one evaluation apart."""
        return sd, correlation


@dataclass(frozen=True)
class LateRise(Scenario):
    """A second rise.

    Attributes
    ----------
    height : float
        Share of the headroom, ``1 - ceiling``.
    at : float
        Compute at which half of it is made.
    steepness : float
        Per e-fold of compute.
    """

    height: float = 0.4
    at: float = 1.6
    steepness: float = 4.0
    what: ClassVar[str] = "a second rise"

    def __post_init__(self) -> None:
        check_number("height", self.height, 0.0, 1.0)
        _check_move(self.at, self.steepness)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve and the rise."""
        made = progress(compute, self.at, self.steepness)
        return _moved(curve, self.height * (1 - ceiling) * made, "rise")


@dataclass(frozen=True)
class Staircase(Scenario):
    """Several small rises, evenly spaced in the logarithm of compute.

    Attributes
    ----------
    height : float
        Of each, as a share of the headroom ``1 - ceiling``.
    steps : int
    first, last : float
        Compute at which half of the first and of the last rise is made.
    steepness : float
        Per e-fold of compute.
    """

    height: float = 0.12
    steps: int = 3
    first: float = 1.3
    last: float = 3.0
    steepness: float = 12.0
    what: ClassVar[str] = "several small rises"

    def __post_init__(self) -> None:
        check_number("steps", self.steps, 1, 100)
        check_number("height", self.height, 0.0, 1 / self.steps)
        _check_move(self.first, self.steepness)
        check_number("last", self.last, self.first, MOST_TIMES)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve and all rises."""
        at = np.geomspace(self.first, self.last, int(self.steps))
        made = sum((progress(compute, one, self.steepness) for one in at), np.zeros_like(curve))
        return _moved(curve, self.height * (1 - ceiling) * made, "rise")


@dataclass(frozen=True)
class Collapse(Scenario):
    """A fall that does not recover.

    Attributes
    ----------
    depth : float
        Share of the pass rate that is lost.
    at : float
        Compute at which half of it is lost.
    steepness : float
        Per e-fold of compute.
    """

    depth: float = 0.5
    at: float = 1.6
    steepness: float = 4.0
    what: ClassVar[str] = "the pass rate falls and stays low"

    def __post_init__(self) -> None:
        check_number("depth", self.depth, 0.0, 1.0)
        _check_move(self.at, self.steepness)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve less what is lost."""
        return _moved(curve, -self.depth * curve * progress(compute, self.at, self.steepness), "collapse")


@dataclass(frozen=True)
class RewardHacking(Scenario):
    """The policy learns to please what is logged: the true pass rate falls slowly, the log keeps its course.

    Attributes
    ----------
    depth : float
        Share of the pass rate that is lost.
    at : float
        Compute at which half of it is lost.
    steepness : float
        Per e-fold of compute.
    """

    depth: float = 0.4
    at: float = 2.0
    steepness: float = 2.0
    what: ClassVar[str] = "the truth falls, what is logged does not"

    def __post_init__(self) -> None:
        check_number("depth", self.depth, 0.0, 1.0)
        _check_move(self.at, self.steepness)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve for the log, the curve less what is lost for the truth."""
        fallen = curve * (1 - self.depth * progress(compute, self.at, self.steepness))
        return Course(fallen, curve, NO_MOVE)


@dataclass(frozen=True)
class SlowDrift(Scenario):
    """The policy wanders further and more slowly around the same curve.

    Attributes
    ----------
    times : float
        Sd of the wander in units of what it was.
    correlation : tuple of float
        Range (uniform) of the correlation between neighbouring evaluations.
    """

    times: float = 3.0
    correlation: Range = (0.9, 0.97)
    what: ClassVar[str] = "evaluations wander slowly and further"

    def __post_init__(self) -> None:
        check_number("times", self.times, 0.0, 1_000.0)
        check_range("correlation", self.correlation, 0.0, 0.999)

    def noise(self, sd: float, correlation: float, rng: np.random.Generator) -> tuple[float, float]:
        """A larger sd, and a correlation drawn from the range."""
        return self.times * sd, float(rng.uniform(*self.correlation))


@dataclass(frozen=True)
class CeilingCreep(Scenario):
    """The curve does not level off.

    Attributes
    ----------
    creep : float
        Pass rate per e-fold of compute, on top of the curve.
    """

    creep: float = 0.03
    what: ClassVar[str] = "the ceiling keeps rising a little"

    def __post_init__(self) -> None:
        check_number("creep", self.creep, -1.0, 1.0)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve and its creep."""
        return _moved(curve, self.creep * np.log(np.maximum(compute, 1.0)), NO_MOVE)


@dataclass(frozen=True)
class RecipeChange(Scenario):
    """Somebody changes the recipe: from there on the run turns to another ceiling at another pace.

    Attributes
    ----------
    gain : tuple of float
        Range (uniform) of the change, up or down with equal chance: up a share of the headroom ``1 - ceiling``, down
        a share of the pass rate.
    at : float
        Compute at which the recipe is changed.
    pace : tuple of float
        Range (log-uniform) of the exponent with which the rest of the way shrinks.
    """

    gain: Range = (0.1, 0.4)
    at: float = 1.3
    pace: Range = (1.0, 3.0)
    what: ClassVar[str] = "another ceiling from there on, up or down"

    def __post_init__(self) -> None:
        check_range("gain", self.gain, 0.0, 1.0)
        check_number("at", self.at, 1.0)
        check_range("pace", self.pace, 0.0, 100.0, positive=True)

    def course(
        self,
        compute: NDArray[np.float64],
        curve: NDArray[np.float64],
        ceiling: float,
        rng: np.random.Generator,
    ) -> Course:
        """The curve on its way to the new ceiling."""
        up, gain = rng.random() < 0.5, rng.uniform(*self.gain)
        pace = np.exp(rng.uniform(*np.log(self.pace)))
        turned = 1 - np.maximum(compute / self.at, 1.0) ** -pace
        return _moved(
            curve, (gain * (1 - ceiling) if up else -gain * curve) * turned, "rise" if up else "collapse"
        )


SCENARIOS: dict[str, Scenario] = {
    "smooth": Scenario(),
    "late_rise": LateRise(),
    "staircase": Staircase(),
    "collapse": Collapse(),
    "reward_hacking": RewardHacking(),
    "slow_drift": SlowDrift(),
    "ceiling_creep": CeilingCreep(),
    "recipe_change": RecipeChange(),
}


def parse_scenario(text: str) -> tuple[str, Scenario]:
    """Read ``NAME`` or ``NAME:SIZE=VALUE,...`` such as ``late_rise:height=.3,at=2``.

    Raises
    ------
    InputError
        If there is no such scenario or size, or a value is no number or out of range.
    """
    name, _, sizes = text.partition(":")
    if name not in SCENARIOS:
        raise InputError("unknown scenario", found=repr(name), expected=" | ".join(SCENARIOS))
    scenario = SCENARIOS[name]
    known = {field.name: getattr(scenario, field.name) for field in fields(scenario)}
    numbers = [size for size, value in known.items() if not isinstance(value, tuple)]
    given: dict[str, float] = {}
    for part in filter(None, sizes.split(",")):
        size, _, value = (piece.strip() for piece in part.partition("="))
        if size not in numbers:
            expected = " | ".join(f"{one}=NUMBER" for one in numbers) or "no sizes"
            raise InputError(f"unknown size of scenario {name}", found=repr(part), expected=expected)
        try:
            given[size] = type(known[size])(value)
        except ValueError as error:
            raise InputError(f"{size} of scenario {name} is no number", found=repr(value)) from error
    return name, replace(scenario, **given)


def parse_scenarios(texts: Sequence[str]) -> dict[str, Scenario]:
    """Scenarios by name, each once; all of them when none is named.

    Raises
    ------
    InputError
        As `parse_scenario`, or if one is named twice.
    """
    found: dict[str, Scenario] = {}
    for text in texts:
        name, scenario = parse_scenario(text)
        if name in found:
            raise InputError("scenario named twice", found=name)
        found[name] = scenario
    return found or dict(SCENARIOS)
