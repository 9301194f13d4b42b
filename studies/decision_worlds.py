"""Worlds of the study of decisions: recipes whose ceilings differ by little, somewhat or much, seen early or late."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from simulators.truth import Curves, Recipe
    from simulators.worlds import World

NOW = 8_000.0
"""Compute of the last evaluation that is seen, GPU-hours."""

POINTS = 30
"""Evaluations up to there, of which those below 1,500 GPU-hours are not logged."""

START, FACTOR = (1.0, 3.0), 2.0
"""What is seen / midpoint of the recipes of one world is log-uniform, from a start drawn from this range to so many
times that: speeds are alike."""

SPREAD = (1.0, 6.0)
"""The same range for all worlds whose speeds are far apart."""

CREEP = 0.005
"""Sd of the slow drift, pass rate per e-fold of compute: half of what forecasts allow for."""

BANDS = {"alike": (0.0, 0.02), "near": (0.02, 0.06), "apart": (0.06, 1.0)}
"""Range of the distance between two ceilings; pairs take turns."""

_NO_SPREAD = {"ceiling": 0.0, "exponent": 0.0, "midpoint": 0.0}


def draw_pair(stream: list[int], k: int, seeds: int) -> tuple[World, list[Recipe]]:
    """Draw two recipes whose ceilings are as far apart as the band of pair `k` says, and their runs.

    Parameters
    ----------
    stream : list of int
        Seed of the pairs.
    k : int
        Number of the pair.
    seeds : int
        Runs per recipe; a single one is the recipe itself.
    """
    from simulators.truth import draw_recipes

    low, high = list(BANDS.values())[k % len(BANDS)]
    curves = _curves(stream, k, seeds)
    for attempt in count(1):
        # `draw_world` draws its recipes first: the same generator gives the same ones.
        recipes = draw_recipes(2, 1, curves, NOW, np.random.default_rng([*stream, k, attempt]))
        if low <= abs(recipes[1].ceiling - recipes[0].ceiling) < high:
            break
    return _draw(2, seeds, curves, np.random.default_rng([*stream, k, attempt])), recipes


def draw_choice(stream: list[int], k: int, *, spread: bool) -> World:
    """Draw three to five recipes of one run each, of which one is to be continued; with `spread`, of any speed."""
    return _draw(3 + k % 3, 1, _curves(stream, k, 1, spread=spread), np.random.default_rng([*stream, k, 1]))


def evaluation(world: World, run: str, compute: float, rng: np.random.Generator) -> float:
    """One more evaluation of a run, at `compute`."""
    from simulators.evaluations import Evaluations
    from simulators.noise import evaluate

    row = world.truth.set_index("run").loc[run]
    level = world.curve(run, [compute]) + row["noise_sd"] * rng.standard_normal(1)
    return float(evaluate(level, Evaluations().trials, rng)[0])


def _curves(stream: list[int], k: int, seeds: int, *, spread: bool = False) -> Curves:
    from simulators.truth import Curves

    # NumPy pads seeds with zeros: every longer seed of this study ends in another number.
    start = float(np.random.default_rng([*stream, k]).uniform(*START))
    first, last = SPREAD if spread else (start, FACTOR * start)
    return Curves(
        same_base=True,
        midpoint_share=(1 / last, 1 / first),
        seed_sd=_NO_SPREAD if seeds == 1 else None,
        creep_sd=CREEP,
    )


def _draw(recipes: int, seeds: int, curves: Curves, rng: np.random.Generator) -> World:
    from simulators.evaluations import Evaluations
    from simulators.worlds import draw_world

    evaluations = Evaluations(horizon=NOW, points=POINTS)
    return draw_world(recipes, seeds, rng=rng, curves=curves, evaluations=evaluations)
