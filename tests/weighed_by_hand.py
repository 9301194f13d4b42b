"""Families with evidence and draws that are written down, runs with curves that are, and a sampler in a hurry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import ArrayLike

from forecast.curves import sigmoid
from forecast.inference import weighing
from forecast.inference.particle import INTERVALS, Particles
from forecast.inference.run_prior import FAMILIES
from forecast.inference.weighing import Weighed
from forecast.outlook import readings
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

UPTO = 1_000.0
CEILINGS = dict(zip(FAMILIES, (0.50, 0.54, 0.58, 0.62, 0.66), strict=True))
"""Draws of each family have a ceiling of their own, by which they can be told."""

TRIALS = 16_000
GRID = np.linspace(1_000.0, 12_000.0, 12)


def hand_particles(
    family: str,
    log_evidences: ArrayLike = (0.0,),
    *,
    size: int = 200,
    shift: float = 0.0,
    begins: float = 0.5,
) -> Particles:
    """Draws around one curve; a move begins (a tenth is made) at `begins` times `UPTO`."""
    log_evidences = np.atleast_1d(np.asarray(log_evidences, dtype=float))
    shape = (len(log_evidences), size)
    rng = np.random.default_rng(FAMILIES.index(family))

    def about(value: float, sd: float = 0.01) -> np.ndarray:
        return value * np.exp(sd * rng.standard_normal(shape))

    draws = {
        "floor": about(0.3),
        "ceiling": CEILINGS[family] + shift + np.zeros(shape),
        "exponent": about(1.5),
        "midpoint": about(0.2 * UPTO),
        "noise": about(0.005),
        "persistence": np.full(shape, 0.5),
    }
    if family == "burr":
        draws["tail"] = about(0.7)
    if family in ("second_rise", "collapse"):
        draws["rise" if family == "second_rise" else "drop"] = about(0.2)
        draws["second_exponent"] = np.full(shape, 4.0)
        draws["second_midpoint"] = np.full(shape, begins * UPTO * 9.0**0.25)
    return Particles(family, draws, log_evidences, 10, 0.3, 0.3)


def hand_weighed(
    evidence: Mapping[str, ArrayLike] | None = None, *, shift: float = 0.0, begins: float = 0.5
) -> Weighed:
    """Weighed families; log evidence 0 where `evidence` says nothing."""
    evidence = evidence or {}
    return Weighed(
        {
            name: hand_particles(name, evidence.get(name, 0.0), shift=shift, begins=begins)
            for name in FAMILIES
        },
        UPTO,
    )


def curve_runs(
    values: Mapping[str, ArrayLike],
    *,
    compute: ArrayLike = GRID,
    recipes: Mapping[str, str] | None = None,
    floor: float | None = 0.3,
    sd: float = 0.003,
    seed: int = 0,
) -> Runs:
    """Evaluations of 16,000 trials around given curves, one per run; a curve may be shorter than `compute`."""
    compute = np.asarray(compute, dtype=float)
    parts = []
    for number, (run, value) in enumerate(values.items()):
        rng = np.random.default_rng([seed, number])
        curve = np.asarray(value, dtype=float)
        parts.append(
            pd.DataFrame(
                {
                    "run": run,
                    "recipe": (recipes or {}).get(run, run),
                    "compute": compute[: len(curve)],
                    "value": np.clip(curve + sd * rng.standard_normal(len(curve)), 0, 1),
                    "trials": TRIALS,
                }
            )
        )
    return Runs(
        pd.concat(parts),
        Metric("pass_rate", prompts=1_000, samples_per_prompt=16),
        ComputeAxis("gpu_hours"),
        floors={} if floor is None else dict.fromkeys(values, Floor(floor, TRIALS)),
    )


def smooth(compute: ArrayLike = GRID, ceiling: float = 0.6) -> np.ndarray:
    """A sigmoid that has nearly levelled off where `GRID` ends."""
    return np.asarray(sigmoid(compute, 0.3, ceiling, 1.8, 2_500.0))


def moved(size: float, at: float, compute: ArrayLike = GRID, steepness: float = 9.0) -> np.ndarray:
    """`smooth` with a second move."""
    return smooth(compute) + np.asarray(sigmoid(compute, 0.0, size, steepness, at))


def changed(runs: Runs, run: str, values: Sequence[float], last: int) -> Runs:
    """The same with the last evaluations of a run replaced."""
    table = runs.table.copy()
    at = table.index[table["run"] == run][-last:]
    table.loc[at, "value"] = values
    return replace(runs, table=table)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few particles, where it matters what is read when and not how exactly."""
    few = replace(INTERVALS, particles=120, moves=2, keep=0.3)
    monkeypatch.setattr(weighing, "INTERVALS", few)
    monkeypatch.setattr(readings, "INTERVALS", few)
    monkeypatch.setattr(weighing, "MOST_REPEATS", 4)
