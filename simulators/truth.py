"""The curves behind a world: families, and how the parameters of recipes and runs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecast.curves import burr, collapse, power_law, second_rise, sigmoid
from simulators.ranges import Range, check_choice, check_number, check_range

SMOOTH = ("sigmoid", "burr", "power_law")
"""Families without a second move."""

_RISE = ("floor", "ceiling", "exponent", "midpoint")
_SECOND = ("second_exponent", "second_midpoint")
_FAMILIES: dict[str, tuple[Callable[..., NDArray[np.float64]], tuple[str, ...]]] = {
    "sigmoid": (sigmoid, _RISE),
    "burr": (burr, (*_RISE, "tail")),
    "power_law": (power_law, _RISE),
    "second_rise": (second_rise, (*_RISE, "rise", *_SECOND)),
    "collapse": (collapse, (*_RISE, "drop", *_SECOND)),
}
PARAMETERS = (*_RISE, "tail", "rise", "drop", *_SECOND, "creep")

_SEED_SD = {"ceiling": 0.015, "exponent": 0.08, "midpoint": 0.10}
_EXPONENTS: Range = (0.5, 4.0)


@dataclass(frozen=True)
class Curves:
    """What the curves of an experiment are drawn from.

    Recipe level: ceiling and the floor's share of it uniform, exponent log-normal within 0.5-4, midpoint
    log-uniform as a share of the horizon. Seed level: normal around the recipe.

    Attributes
    ----------
    family : {"sigmoid", "burr", "power_law"}
        Curve of every run without a transition; names and parameters are those of `forecast.curves`.
    ceiling : tuple of float
        Range of the recipe's ceiling, pass rate.
    floor_share : tuple of float
        Range of floor / ceiling.
    same_base : bool
        Give every recipe of a model the same floor: `floor_share` of the model's lowest ceiling. With
        several models it is always so.
    exponent, exponent_sd : float
        Median of the recipe's exponent (per e-fold of compute) and sd of its logarithm.
    midpoint_share : tuple of float
        Range of the recipe's midpoint / horizon.
    tail : tuple of float
        Range (log-uniform) of the recipe's ``tail`` in the Burr family; 1 is the sigmoid.
    model_shift : tuple of float
        Range (uniform) of what a model adds to every ceiling, pass rate; nothing with one model.
    seed_sd : mapping, optional
        Seed-to-seed sd of ``ceiling`` (pass rate), ``exponent`` and ``midpoint`` (log); missing keys keep the
        defaults 0.015, 0.08, 0.10.
    creep_sd : float
        Sd over runs of the slow drift that is added to the curve, pass rate per e-fold of compute past the
        midpoint: ``creep log(1 + C/Cmid)``.
    """

    family: str = "sigmoid"
    ceiling: Range = (0.50, 0.75)
    floor_share: Range = (0.15, 0.60)
    same_base: bool = False
    exponent: float = 1.75
    exponent_sd: float = 0.3
    midpoint_share: Range = (0.05, 0.50)
    tail: Range = (0.25, 1.0)
    model_shift: Range = (-0.15, 0.15)
    seed_sd: Mapping[str, float] | None = None
    creep_sd: float = 0.0

    def __post_init__(self) -> None:
        check_choice("family", self.family, SMOOTH)
        check_range("ceiling", self.ceiling, 0.0, 1.0, positive=True)
        check_range("floor_share", self.floor_share, 0.0, 1.0)
        check_number("exponent", self.exponent, *_EXPONENTS)
        check_number("exponent_sd", self.exponent_sd, 0.0)
        check_range("midpoint_share", self.midpoint_share, 0.0, np.inf, positive=True)
        check_range("tail", self.tail, 0.0, np.inf, positive=True)
        check_range("model_shift", self.model_shift, -1.0, 1.0)
        check_number("creep_sd", self.creep_sd, 0.0)
        for name, sd in (self.seed_sd or {}).items():
            check_choice("parameter in seed_sd", name, tuple(_SEED_SD))
            check_number(f"seed_sd of {name}", sd, 0.0)


@dataclass(frozen=True)
class Recipe:
    """Parameters of one recipe on one model, in the units of `Curves` and of the horizon."""

    name: str
    model: str | None
    floor: float
    ceiling: float
    exponent: float
    midpoint: float
    tail: float


def draw_recipes(
    count: int, models: int, curves: Curves, horizon: float, rng: np.random.Generator
) -> list[Recipe]:
    """Draw `count` recipes and put each on every one of `models` base models.

    A recipe keeps its exponent and midpoint (in the unit of `horizon`) from model to model.
    """
    ceilings = rng.uniform(*curves.ceiling, count)
    one_floor = curves.same_base or models > 1
    shares = rng.uniform(*curves.floor_share, models if one_floor else count)
    exponents = np.clip(rng.lognormal(np.log(curves.exponent), curves.exponent_sd, count), *_EXPONENTS)
    midpoints = horizon * _log_uniform(curves.midpoint_share, count, rng)
    tails = _log_uniform(curves.tail, count, rng) if curves.family == "burr" else np.full(count, np.nan)
    shifts = rng.uniform(*curves.model_shift, models) if models > 1 else np.zeros(1)

    recipes = []
    for k in range(models):
        # A shift leaves room for a floor below and ends at 1.
        tops = np.clip(ceilings + shifts[k], np.minimum(ceilings, 0.05), 1.0)
        floors = np.full(count, tops.min() * shares[k]) if one_floor else tops * shares
        model = numbered("model", k + 1, models) if models > 1 else None
        for i in range(count):
            name = numbered("recipe", i + 1, count)
            recipes.append(
                Recipe(
                    name=name if model is None else f"{model}_{name}",
                    model=model,
                    floor=float(floors[i]),
                    ceiling=float(tops[i]),
                    exponent=float(exponents[i]),
                    midpoint=float(midpoints[i]),
                    tail=float(tails[i]),
                )
            )
    return recipes


def draw_run(recipe: Recipe, curves: Curves, rng: np.random.Generator) -> dict[str, Any]:
    """Draw one seed of a recipe: ``family`` and `PARAMETERS`, NaN where the family has no such parameter."""
    sd = _SEED_SD | dict(curves.seed_sd or {})
    ceiling = float(np.clip(recipe.ceiling + rng.normal(0, sd["ceiling"]), recipe.floor + 0.01, 1.0))
    exponent = float(recipe.exponent * np.exp(rng.normal(0, sd["exponent"])))
    midpoint = float(recipe.midpoint * np.exp(rng.normal(0, sd["midpoint"])))
    creep = float(rng.normal(0, curves.creep_sd)) if curves.creep_sd else 0.0
    return dict.fromkeys(PARAMETERS, np.nan) | {
        "family": curves.family,
        "floor": recipe.floor,
        "ceiling": ceiling,
        "exponent": exponent,
        "midpoint": midpoint,
        "tail": recipe.tail,
        "creep": creep,
    }


def true_curve(truth: Mapping[str, Any], compute: ArrayLike) -> NDArray[np.float64]:
    """Noiseless pass rate at `compute` of the run whose ``family`` and `PARAMETERS` are given."""
    family, names = _FAMILIES[truth["family"]]
    level = family(compute, *(float(truth[name]) for name in names))
    if not truth["creep"]:
        return level
    done = np.log1p(np.asarray(compute, dtype=float) / float(truth["midpoint"]))
    return np.clip(level + float(truth["creep"]) * done, 0.0, 1.0)


def numbered(word: str, number: int, highest: int) -> str:
    """``recipe07``: zeros in front keep the order of names that of numbers."""
    return f"{word}{number:0{len(str(highest))}d}"


def _log_uniform(limits: Range, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    low, high = limits
    return np.exp(rng.uniform(np.log(low), np.log(high), count))
