"""Parametric worlds: experiments of recipes, seeds and models whose true curves are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from forecast.errors import InputError
from forecast.runs.table import ComputeAxis, Floor, Metric, Runs
from simulators.evaluations import Evaluations
from simulators.files import spec
from simulators.noise import Noise, evaluate, wander
from simulators.ranges import Range, check_counts
from simulators.transitions import Transition, draw_moves, with_move
from simulators.truth import PARAMETERS, Curves, draw_recipes, draw_run, numbered, true_curve

_LABELS = ("run", "recipe", "model", "seed")


@dataclass(frozen=True)
class World:
    """Simulated runs and what they were drawn from.

    Attributes
    ----------
    runs : Runs
        The evaluations as a user would have them, restarts resolved.
    truth : pandas.DataFrame
        One row per run: ``run``, ``recipe``, ``model`` (None with one model), ``seed``; ``family`` of the
        curve and its parameters as in `forecast.curves`, NaN where the family has none of that name
        (``floor``, ``ceiling``, ``rise``, ``drop`` in pass rate, ``midpoint`` and ``second_midpoint`` in
        GPU-hours, ``exponent``, ``tail`` and ``second_exponent`` without unit); ``creep`` (pass rate per
        e-fold of compute past the midpoint); ``noise_sd`` (stationary sd of the wandering part, pass rate)
        and ``noise_correlation`` (of that part, between neighbouring evaluations).
    log : pandas.DataFrame
        Every evaluation in the order in which each run logged it: the labels above, ``attempt`` (from 1),
        ``step``, ``compute``, ``value``, ``trials``, ``glitch`` (what went wrong, pass rate) and
        ``superseded`` (whether a later attempt made it again).
    """

    runs: Runs
    truth: pd.DataFrame
    log: pd.DataFrame

    @property
    def curves(self) -> None:
        """The truth is a formula, see `curve`."""

    def logs(self) -> dict[str, list[dict[str, Any]]]:
        """What each run logged, with what restarts repeated; before training is the record of step 0."""
        several = bool(self.truth["model"].notna().any())
        logs = {}
        for run, rows in self.log.groupby("run", sort=False):
            first = rows.iloc[0]
            labels = {"run": run, "recipe": first["recipe"], "seed": int(first["seed"])}
            if several:
                labels["model"] = first["model"]
            records = []
            if (floor := self.runs.floors.get(str(run))) is not None:
                records.append(_record(0, 0.0, floor.value, floor.trials) | labels)
            columns = (rows[name].tolist() for name in ("step", "compute", "value", "trials"))
            records += [_record(*cells) | labels for cells in zip(*columns, strict=True)]
            logs[str(run)] = records
        return logs

    def spec(self) -> str:
        """``runs.toml`` that reads these logs."""
        return spec(self.runs)

    def curve(self, run: str, compute: ArrayLike) -> NDArray[np.float64]:
        """Noiseless pass rate of one run at `compute`, GPU-hours."""
        row = self.truth[self.truth["run"] == run]
        if row.empty:
            raise InputError("no such run in this world", found=run, expected=" | ".join(self.truth["run"]))
        return true_curve({str(name): cell for name, cell in row.iloc[0].items()}, compute)


def _record(step: int, compute: float, value: float, trials: int | None) -> dict[str, Any]:
    return {"step": step, "gpu_hours": compute, "pass_rate": value, "trials": trials}


@dataclass(frozen=True)
class _Drawn:
    """One run before anything goes wrong with it; `path` is its wander around the curve."""

    labels: dict[str, Any]
    truth: dict[str, Any]
    path: NDArray[np.float64]
    value: NDArray[np.float64]
    floor: float


def draw_world(
    recipes: int = 4,
    seeds: int = 3,
    *,
    rng: np.random.Generator,
    models: int = 1,
    curves: Curves | None = None,
    transition: Transition | None = None,
    noise: Noise | None = None,
    evaluations: Evaluations | None = None,
) -> World:
    """Draw an experiment of several recipes, each run with several seeds (on several base models).

    Each evaluation is the run's curve plus a wander, seen through a binomial with variance
    ``0.7 R (1 - R) / trials``. No evaluation leaves 0-1. Glitches, gaps and restarts are drawn last: with the
    same generator they change nothing else.

    Parameters
    ----------
    recipes, seeds : int
        Number of recipes, and of runs per recipe (and model).
    rng : numpy.random.Generator
        Source of all randomness.
    models : int
        Base models that every recipe is run on. Each has one floor, and shifts all ceilings.
    curves : Curves, optional
        Families and ranges of the truth; by default sigmoids.
    transition : Transition, optional
        Second moves that some runs make (of the sigmoid family); by default none.
    noise : Noise, optional
        Wander around the curve.
    evaluations : Evaluations, optional
        What is measured and logged.

    Returns
    -------
    World
        Runs named ``recipe1_s0`` (``model1_recipe1_s0`` with several models) and so on, in the order of
        `World.truth`.
    """
    check_counts(recipes=recipes, seeds=seeds, models=models)
    curves, noise, evaluations = curves or Curves(), noise or Noise(), evaluations or Evaluations()
    if transition is not None and curves.family != "sigmoid":
        raise InputError(
            "only sigmoids make a second move", found=f"family {curves.family}", expected="family sigmoid"
        )
    compute, trials = evaluations.compute(), evaluations.trials
    cohort = draw_recipes(recipes, models, curves, evaluations.horizon, rng)
    moves = (
        [None] * (len(cohort) * seeds)
        if transition is None
        else draw_moves(transition, len(cohort), seeds, evaluations.horizon, rng)
    )

    drawn = []
    for i, recipe in enumerate(cohort):
        for seed in range(seeds):
            run = f"{recipe.name}_{numbered('s', seed, seeds - 1)}"
            labels = dict(zip(_LABELS, (run, recipe.name, recipe.model, seed), strict=True))
            truth = draw_run(recipe, curves, rng)
            move = moves[i * seeds + seed]
            if move is not None:
                truth = with_move(truth, move, evaluations.horizon)
            noise_sd, correlation = noise.draw(rng)
            truth |= {"noise_sd": noise_sd, "noise_correlation": correlation}
            path = wander(evaluations.points, noise_sd, correlation, rng)
            value = evaluate(true_curve(truth, compute) + path, trials, rng)
            floor = evaluate([truth["floor"]], trials, rng).item()
            drawn.append(_Drawn(labels, truth, path, value, floor))

    attempts = [part for run in drawn for part in _log(run, evaluations, compute, rng)]
    log = pd.concat(attempts, ignore_index=True)
    table = log[~log["superseded"]].drop(columns=["attempt", "glitch", "superseded"])
    return World(
        runs=Runs(
            table=table,
            metric=Metric(
                "pass_rate", prompts=evaluations.prompts, samples_per_prompt=evaluations.samples_per_prompt
            ),
            compute=ComputeAxis("gpu_hours", derivation="simulated"),
            floors={run.labels["run"]: Floor(run.floor, trials) for run in drawn if evaluations.floors},
        ),
        truth=pd.DataFrame(
            [run.labels | run.truth for run in drawn],
            columns=[*_LABELS, "family", *PARAMETERS, "noise_sd", "noise_correlation"],
        ),
        log=log,
    )


def _log(
    run: _Drawn, evaluations: Evaluations, compute: NDArray[np.float64], rng: np.random.Generator
) -> list[pd.DataFrame]:
    """Return what one run logged: of each attempt what was kept, then what was lost."""
    glitch = evaluations.draw_glitches(rng) if evaluations.glitches else np.zeros(evaluations.points)
    gone = compute < evaluations.start
    if evaluations.missing:
        gone = gone | evaluations.draw_gaps(rng)
    repeats = evaluations.draw_repeats(rng) if evaluations.restarts else []
    value = np.clip(run.value + glitch, 0.0, 1.0)
    none = np.zeros(evaluations.points)
    parts, begin = [], 0
    # The last attempt comes to the end, and nothing of it is repeated.
    for attempt, (first, end) in enumerate([*repeats, (evaluations.points, evaluations.points)], start=1):
        parts.append((attempt, np.arange(begin, first), value, glitch, False))
        if first < end:
            lost = np.arange(first, end)
            again = none.copy()
            again[lost] = _repeated(run, lost, compute, evaluations.trials, rng)
            parts.append((attempt, lost, again, none, True))
        begin = first
    step = evaluations.steps()
    return [
        pd.DataFrame(
            {
                **run.labels,
                "attempt": attempt,
                "step": step[logged],
                "compute": compute[logged],
                "value": values[logged],
                "trials": evaluations.trials,
                "glitch": off[logged],
                "superseded": superseded,
            }
        )
        for attempt, at, values, off, superseded in parts
        for logged in [at[~gone[at]]]
    ]


def _repeated(
    run: _Drawn, at: NDArray[np.int_], compute: NDArray[np.float64], trials: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Evaluations that were lost in a crash: they left the run's path at its last checkpoint."""
    after = run.path[at[0] - 1] if at[0] else None
    path = wander(len(at), run.truth["noise_sd"], run.truth["noise_correlation"], rng, after=after)
    return evaluate(true_curve(run.truth, compute[at]) + path, trials, rng)


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
    """`draw_world` of sigmoids on one base model, with nothing going wrong.

    Parameters
    ----------
    recipes, seeds : int
        Number of recipes, and of runs per recipe.
    points, horizon, start, spacing, prompts, samples_per_prompt, floors
        As in `Evaluations`.
    rng : numpy.random.Generator
        Source of all randomness.
    ceiling, floor_share, same_base, midpoint_share, seed_sd
        As in `Curves`.
    noise_sd, noise_correlation
        As in `Noise`.

    Returns
    -------
    World
    """
    return draw_world(
        recipes,
        seeds,
        rng=rng,
        curves=Curves(
            ceiling=ceiling,
            floor_share=floor_share,
            same_base=same_base,
            midpoint_share=midpoint_share,
            seed_sd=seed_sd,
        ),
        noise=Noise(noise_sd, noise_correlation),
        evaluations=Evaluations(
            points=points,
            horizon=horizon,
            start=start,
            spacing=spacing,
            prompts=prompts,
            samples_per_prompt=samples_per_prompt,
            floors=floors,
        ),
    )
