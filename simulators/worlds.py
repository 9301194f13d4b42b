"""Parametric worlds: runs drawn from a known sigmoid with seeds, wandering noise and binomial evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from forecast.curves import sigmoid
from forecast.errors import InputError
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs

Range = tuple[float, float]

# Evaluations reuse one prompt set, so part of the binomial variance (which prompts were drawn) is the same
# each time and belongs to the curve: 0.7 of it is left between evaluations.
FIXED_PROMPTS = 0.7
_CURVE = ("floor", "ceiling", "exponent", "midpoint")


@dataclass(frozen=True)
class World:
    """Simulated runs and what they were drawn from.

    Attributes
    ----------
    runs : Runs
        The evaluations as a user would log them.
    truth : pandas.DataFrame
        One row per run: ``run``, ``recipe``, ``floor``, ``ceiling``, ``exponent``, ``midpoint`` (GPU-hours),
        ``noise_sd`` (stationary sd of the wandering part, pass rate) and ``noise_correlation`` (of that part,
        between neighbouring evaluations).
    """

    runs: Runs
    truth: pd.DataFrame

    def curve(self, run: str, compute: ArrayLike) -> NDArray[np.float64]:
        """Noiseless pass rate of one run at `compute`."""
        row = self.truth[self.truth["run"] == run]
        if row.empty:
            raise InputError("no such run in this world", found=run, expected=" | ".join(self.truth["run"]))
        return sigmoid(compute, *(row[name].item() for name in _CURVE))


def sigmoid_world(
    recipes: int = 4,
    seeds: int = 3,
    points: int = 75,
    horizon: float = 16_000.0,
    *,
    rng: np.random.Generator,
    start: float = 1_500.0,
    spacing: str = "even",
    ceiling: Range = (0.50, 0.75),
    floor_share: Range = (0.15, 0.60),
    same_base: bool = False,
    midpoint_share: Range = (0.05, 0.50),
    noise_sd: Range | None = None,
    noise_correlation: Range = (0.3, 0.9),
    seed_sd: Mapping[str, float] | None = None,
    prompts: int = 1_000,
    samples_per_prompt: int = 16,
    floors: bool = True,
) -> World:
    """Draw an experiment of several recipes, each run with several seeds, that follow the sigmoid exactly.

    Recipe level: ceiling and the floor's share of it uniform, exponent log-normal(log 1.75, 0.3) within
    0.5-4, midpoint log-uniform as a share of the horizon. Seed level: normal around the recipe. Each
    evaluation is the curve plus a first-order autoregressive wander, seen through a binomial with variance
    ``0.7 R (1 - R) / trials``. No evaluation leaves 0-1.

    Parameters
    ----------
    recipes, seeds, points : int
        Number of recipes, runs per recipe, evaluations per run (before `start` takes some away).
    horizon : float
        Compute of the last evaluation, GPU-hours.
    rng : numpy.random.Generator
        Source of all randomness.
    start : float
        Evaluations below this compute (GPU-hours) are not logged; 0 keeps all.
    spacing : {"even", "log"}
        Evaluations evenly spaced from ``horizon / points``, or log-spaced from ``max(start, horizon / 100)``.
    ceiling, floor_share, midpoint_share : tuple of float
        Ranges of the recipe's ceiling, of floor / ceiling and of midpoint / horizon.
    same_base : bool
        Give every recipe the same floor (one base model): `floor_share` of the lowest ceiling.
    noise_sd : tuple of float, optional
        Range (uniform) of the wander's sd per run; by default log-normal(log 0.006, 0.3).
    noise_correlation : tuple of float
        Range (uniform) of the wander's correlation between neighbouring evaluations.
    seed_sd : mapping, optional
        Seed-to-seed sd of ``ceiling`` (pass rate), ``exponent`` and ``midpoint`` (log); missing keys keep the
        defaults 0.015, 0.08, 0.10.
    prompts, samples_per_prompt : int
        Size of one evaluation.
    floors : bool
        Whether the step-0 evaluation was measured and is part of the runs.

    Returns
    -------
    World
        Runs named ``recipe1_s0`` and so on, in the order of `World.truth`.
    """
    if min(recipes, seeds, points) < 1:
        raise InputError("a world needs at least one recipe, seed and point", found=[recipes, seeds, points])
    compute = _evaluations(points, horizon, start, spacing)
    spread = {"ceiling": 0.015, "exponent": 0.08, "midpoint": 0.10} | dict(seed_sd or {})
    trials = prompts * samples_per_prompt

    ceilings = rng.uniform(*ceiling, recipes)
    base = np.full(recipes, ceilings.min()) if same_base else ceilings
    shares = rng.uniform(*floor_share, 1 if same_base else recipes)
    recipe_floor = base * shares
    exponents = np.clip(rng.lognormal(np.log(1.75), 0.3, recipes), 0.5, 4.0)
    low_share, high_share = midpoint_share
    midpoints = horizon * np.exp(rng.uniform(np.log(low_share), np.log(high_share), recipes))

    truth, tables, measured = [], [], {}
    for i in range(recipes):
        for seed in range(seeds):
            name = f"recipe{i + 1:0{len(str(recipes))}d}"
            run = f"{name}_s{seed:0{len(str(seeds - 1))}d}"
            low = float(recipe_floor[i])
            top = float(np.clip(ceilings[i] + rng.normal(0, spread["ceiling"]), low + 0.01, 1.0))
            exponent = float(exponents[i] * np.exp(rng.normal(0, spread["exponent"])))
            midpoint = float(midpoints[i] * np.exp(rng.normal(0, spread["midpoint"])))
            sd = float(rng.lognormal(np.log(0.006), 0.3) if noise_sd is None else rng.uniform(*noise_sd))
            correlation = float(rng.uniform(*noise_correlation))
            level = sigmoid(compute, low, top, exponent, midpoint) + wander(
                len(compute), sd, correlation, rng
            )
            truth.append((run, name, low, top, exponent, midpoint, sd, correlation))
            tables.append(
                pd.DataFrame(
                    {
                        "run": run,
                        "recipe": name,
                        "compute": compute,
                        "value": evaluate(level, trials, rng),
                        "trials": trials,
                        "step": np.arange(1, len(compute) + 1),
                        "seed": seed,
                    }
                )
            )
            measured[run] = Floor(evaluate(np.array([low]), trials, rng).item(), trials)

    table = pd.concat(tables, ignore_index=True)
    return World(
        runs=Runs(
            table=table[table["compute"] >= start],
            metric=Metric("pass_rate", prompts=prompts, samples_per_prompt=samples_per_prompt),
            compute=ComputeAxis("gpu_hours", derivation="simulated"),
            floors=measured if floors else {},
        ),
        truth=pd.DataFrame(truth, columns=["run", "recipe", *_CURVE, "noise_sd", "noise_correlation"]),
    )


def wander(points: int, sd: float, correlation: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Stationary first-order autoregressive series with the given sd and lag-1 correlation."""
    steps = rng.normal(size=points)
    series = np.empty(points)
    series[0] = steps[0]
    for i in range(1, points):
        series[i] = correlation * series[i - 1] + np.sqrt(1 - correlation**2) * steps[i]
    return sd * series


def evaluate(level: ArrayLike, trials: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Measured pass rates of a policy whose true pass rate is `level` (held within 0-1).

    A binomial of ``trials / 0.7`` draws, which has the variance of evaluations on a fixed prompt set.
    """
    draws = max(1, round(trials / FIXED_PROMPTS))
    return rng.binomial(draws, np.clip(np.asarray(level, dtype=float), 0.0, 1.0)) / draws


def _evaluations(points: int, horizon: float, start: float, spacing: str) -> NDArray[np.float64]:
    """Compute of each evaluation, logged or not."""
    if not 0 <= start <= horizon:
        raise InputError("logging must start within the run", found=start, expected=f"0 to {horizon:g}")
    if spacing == "even":
        return horizon * np.arange(1, points + 1) / points
    if spacing == "log":
        first = max(start, horizon / 100)
        # geomspace may round its ends outward, and an evaluation at exactly `start` must be kept.
        return np.clip(np.geomspace(first, horizon, points), first, horizon)
    raise InputError("unknown spacing of evaluations", found=repr(spacing), expected="even | log")
