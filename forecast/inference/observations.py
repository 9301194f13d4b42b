"""From a run table to the arrays that the posterior is conditioned on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.inference.priors import noise_prior
from forecast.runs.table import Runs

FLOOR_SE_MINIMUM = 0.004
"""Smallest standard error believed of one step-0 evaluation (other seeds, prompts fixed)."""

DECLARED_FLOOR_SE = 0.02
"""Standard error of a floor that the user states rather than measures."""

_CLOSEST = 0.1  # evaluations nearer than this many typical gaps count as this far apart: keeps 1 - rho^2 > 0


@dataclass(frozen=True)
class Observations:
    """Arrays for J runs in R recipes with n evaluations in all; pass rates are fractions.

    Attributes
    ----------
    runs, recipes : tuple of str
        Names, lengths J and R.
    recipe_of_run : ndarray of int, shape (J,)
    log_reference : ndarray, shape (R,)
        Log of the largest fitted compute of any run of the recipe; midpoints are relative to it.
    run : ndarray of int, shape (n,)
        Run of each evaluation; evaluations of a run are consecutive and in order of compute.
    log_compute : ndarray, shape (n,)
        Log compute minus the recipe's reference.
    fraction : ndarray, shape (n,)
    inverse_trials : ndarray, shape (n,)
        1 / Bernoulli trials behind the evaluation, 0 where unknown.
    first : ndarray of bool, shape (n,)
        First evaluation of its run.
    distance : ndarray, shape (n,)
        Distance from the previous evaluation in typical gaps.
    floor, floor_se, floor_known : ndarray, shape (J,)
        Step-0 pass rate, its standard error, and whether it is known at all.
    floor_group : ndarray of int, shape (R,)
        Recipes with the same number start from the same, latent, floor.
    chance : float
        Pass rate of guessing: a latent floor is not below it.
    noise_median, noise_log_sd : ndarray, shape (J,)
        Prior of the extra evaluation noise.
    """

    runs: tuple[str, ...]
    recipes: tuple[str, ...]
    recipe_of_run: NDArray[np.int64]
    log_reference: NDArray[np.float64]
    run: NDArray[np.int64]
    log_compute: NDArray[np.float64]
    fraction: NDArray[np.float64]
    inverse_trials: NDArray[np.float64]
    first: NDArray[np.bool_]
    distance: NDArray[np.float64]
    floor: NDArray[np.float64]
    floor_se: NDArray[np.float64]
    floor_known: NDArray[np.bool_]
    floor_group: NDArray[np.int64]
    chance: float
    noise_median: NDArray[np.float64]
    noise_log_sd: NDArray[np.float64]

    @property
    def fitted_upto(self) -> NDArray[np.float64]:
        """Largest fitted compute of each run, shape (J,)."""
        last = np.full(len(self.runs), -np.inf)
        np.maximum.at(last, self.run, self.log_compute)
        return np.exp(last + self.log_reference[self.recipe_of_run])

    def only(self, j: int) -> Observations:
        """Return run `j` by itself, its midpoint relative to its own largest fitted compute."""
        at, run = self.run == j, slice(j, j + 1)
        recipe = self.recipe_of_run[j]
        last = self.log_compute[at][-1]
        return Observations(
            runs=self.runs[run],
            recipes=(self.recipes[recipe],),
            recipe_of_run=np.zeros(1, dtype=np.int64),
            log_reference=self.log_reference[[recipe]] + last,
            run=np.zeros(int(at.sum()), dtype=np.int64),
            log_compute=self.log_compute[at] - last,
            fraction=self.fraction[at],
            inverse_trials=self.inverse_trials[at],
            first=self.first[at],
            distance=self.distance[at],
            floor=self.floor[run],
            floor_se=self.floor_se[run],
            floor_known=self.floor_known[run],
            floor_group=np.zeros(1, dtype=np.int64),
            chance=self.chance,
            noise_median=self.noise_median[run],
            noise_log_sd=self.noise_log_sd[run],
        )


def observe(runs: Runs, floor: str | float = "measured", *, one_start: bool = True) -> Observations:
    """Arrange the whole-set evaluations of `runs`.

    Parameters
    ----------
    runs : Runs
    floor : {"measured", "latent"} or float
        ``measured``: the step-0 evaluation where the log has one, else latent; ``latent``: ignore it;
        a number (on the metric's scale): the same stated floor for every run, known to +-.02.
    one_start : bool
        All recipes start from one checkpoint; else only runs of one recipe do.

    Raises
    ------
    InputError
        If no evaluation of the whole prompt set is left.
    """
    table = runs.overall()
    if table.empty:
        raise InputError(
            "no evaluation of the whole prompt set", found=f"{len(runs.table)} rows, all with a stratum"
        )
    names = tuple(dict.fromkeys(table["run"]))
    recipes = tuple(dict.fromkeys(table["recipe"]))
    run = table["run"].map({name: j for j, name in enumerate(names)}).to_numpy(dtype=np.int64)
    recipe_of = runs.recipes
    recipe_of_run = np.array([recipes.index(recipe_of[name]) for name in names], dtype=np.int64)
    log_compute = np.log(table["compute"].to_numpy())
    log_reference = np.array([log_compute[recipe_of_run[run] == r].max() for r in range(len(recipes))])
    first = np.concatenate([[True], run[1:] != run[:-1]])
    trials = table["trials"].astype("Float64").fillna(runs.metric.trials or np.inf).to_numpy(dtype=float)
    median, log_sd = zip(*(noise_prior(trials[run == j].min()) for j in range(len(names))), strict=True)
    known, value, se = zip(*(_floor(runs, name, floor) for name in names), strict=True)
    return Observations(
        runs=names,
        recipes=recipes,
        recipe_of_run=recipe_of_run,
        log_reference=log_reference,
        run=run,
        log_compute=log_compute - log_reference[recipe_of_run[run]],
        # The table tolerates rounding beyond the ends of the scale.
        fraction=np.clip(runs.metric.to_fraction(table["value"].to_numpy()), 0.0, 1.0),
        inverse_trials=1 / trials,
        first=first,
        distance=_distance(table["compute"], run),
        floor=np.array(value),
        floor_se=np.array(se),
        floor_known=np.array(known),
        floor_group=np.zeros(len(recipes), dtype=np.int64) if one_start else np.arange(len(recipes)),
        chance=runs.metric.chance,
        noise_median=np.array(median),
        noise_log_sd=np.array(log_sd),
    )


def _floor(runs: Runs, name: str, floor: str | float) -> tuple[bool, float, float]:
    """Return (known, fraction, standard error) of one run's step-0 pass rate."""
    if isinstance(floor, int | float):
        fraction = float(runs.metric.to_fraction(floor))
        if not 0 <= fraction <= 1:
            low, high = sorted(runs.metric.scale)
            raise InputError("floor outside the metric's scale", found=floor, expected=f"{low:g} to {high:g}")
        return True, fraction, DECLARED_FLOOR_SE
    check_floor(floor)
    measured = runs.floors.get(name)
    if floor == "latent" or measured is None:
        return False, 0.0, 1.0
    fraction = float(np.clip(runs.metric.to_fraction(measured.value), 0.0, 1.0))
    trials = measured.trials or runs.metric.trials
    if trials is None:
        # An evaluation of unknown size is believed as one of 250 prompts.
        trials = 250
    se = max(np.sqrt(fraction * (1 - fraction) / trials), FLOOR_SE_MINIMUM)
    return True, fraction, float(se)


def check_floor(floor: str | float) -> None:
    """Refuse a floor that is neither known by name nor a number.

    Raises
    ------
    InputError
    """
    if not isinstance(floor, int | float) and floor not in ("measured", "latent"):
        raise InputError("unknown floor", found=repr(floor), expected="measured | latent | a number")


def _distance(compute: pd.Series, run: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gaps between evaluations in units of the run's median gap, on the axis where gaps are more regular.

    Noise decorrelates per evaluation in real logs, whether those are evenly spaced in compute or in its log; a
    missing evaluation makes the gap twice as long.
    """
    distance = np.zeros(len(run))
    for j in np.unique(run):
        at = np.flatnonzero(run == j)
        if len(at) < 2:
            continue
        linear = np.diff(compute.to_numpy()[at])
        candidates = [gaps / np.median(gaps) for gaps in (linear, np.diff(np.log(compute.to_numpy()[at])))]
        distance[at[1:]] = min(candidates, key=lambda gaps: np.std(gaps) / np.mean(gaps))
    return np.maximum(distance, _CLOSEST)
