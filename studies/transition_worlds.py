"""Worlds of the transition study: runs that keep to a sigmoid, and runs that rise again or collapse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from forecast.runs.table import Runs
    from simulators.worlds import World

NOW = 16_000.0
"""Compute of the last evaluation that is fitted, GPU-hours."""

SLOW = (0.9, 0.97)
"""Correlation of slow noise between neighbouring evaluations."""

PROMPTS, SAMPLES = 1_000, 16
_BASE = 0.005  # pass rate of the hard class before it moves
_CLASS_NOISE, _CLASS_CORRELATION = 0.2, 0.6  # sd on the logit scale


def draw(
    rng: np.random.Generator,
    *,
    points: int,
    ahead: float = 1.0,
    slow: bool = False,
    kind: str = "",
    done: float | None = None,
    location: tuple[float, float] = (0.25, 4.0),
) -> World:
    """Draw one run.

    Parameters
    ----------
    rng : numpy.random.Generator
    points : int
        Evaluations up to `NOW`; the first rise lies well before it.
    ahead : float
        Where the run ends, in units of `NOW`.
    slow : bool
        Noise wanders slowly.
    kind : str
        ``rise``, ``collapse``, ``either``, or empty for none.
    done : float, optional
        Share of the move that is made by `NOW`.
    location : tuple of float
        Else, range (log-uniform) of the compute where half of it is made, in units of `NOW`.
    """
    from simulators.evaluations import Evaluations
    from simulators.noise import Noise
    from simulators.transitions import Transition
    from simulators.truth import Curves
    from simulators.worlds import draw_world

    transition = None
    if kind:
        transition = Transition(kind=kind, share=1.0, location=location, reference=NOW, done=done)
    return draw_world(
        1,
        1,
        rng=rng,
        curves=Curves(midpoint_share=(0.05 / ahead, 0.25 / ahead)),
        noise=Noise(correlation=SLOW) if slow else Noise(),
        evaluations=Evaluations(
            horizon=ahead * NOW, points=round(ahead * points), prompts=PROMPTS, samples_per_prompt=SAMPLES
        ),
        transition=transition,
    )


def with_classes(world: World, rng: np.random.Generator) -> Runs:
    """Add a class of prompts that carries the whole second rise (all but never solved before), and the rest.

    This is the best case for prompt classes: nothing of the move shows anywhere else.
    """
    import pandas as pd

    from simulators.noise import evaluate, wander

    run = world.runs.names[0]
    overall = world.runs.overall()
    compute = overall["compute"].to_numpy()
    row = world.truth.iloc[0]
    rise = float(row["rise"]) if "rise" in world.truth and pd.notna(row["rise"]) else 0.0
    share = max(0.25, rise / 0.9)
    level = world.curve(run, compute)
    done = np.zeros(len(compute))
    if rise:
        done = 1 / (1 + (row["second_midpoint"] / compute) ** row["second_exponent"])
    hard = _BASE + rise / share * done
    rest = np.clip((level - share * hard) / (1 - share), 0.0, 1.0)
    odds = np.log(hard / (1 - hard)) + wander(len(hard), _CLASS_NOISE, _CLASS_CORRELATION, rng)
    tables = [overall]
    for name, rate, part in (("hard", 1 / (1 + np.exp(-odds)), share), ("rest", rest, 1 - share)):
        trials = round(part * PROMPTS) * SAMPLES
        tables.append(overall.assign(stratum=name, value=evaluate(rate, trials, rng), trials=trials))
    return replace(world.runs, table=pd.concat(tables, ignore_index=True))


def tenth(world: World) -> float:
    """Compute at which a tenth of the second move is made; NaN without one."""
    row = world.truth.iloc[0]
    middle, steepness = row.get("second_midpoint", np.nan), row.get("second_exponent", np.nan)
    return float(middle * np.exp(-np.log(9.0) / steepness))
