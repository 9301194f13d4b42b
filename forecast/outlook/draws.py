"""Posterior draws of a run's, a recipe's or a new run's curve, in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from forecast.curves import burr, sigmoid
from forecast.curves.share import share
from forecast.inference.priors import DRIFT_MEAN

LEVELS = ("run", "recipe", "new_run")


@dataclass(frozen=True)
class CurveDraws:
    """S draws of one curve and of the noise of its evaluations; all arrays have shape (S,).

    ``midpoint``, ``second_midpoint`` and ``fitted_upto`` are in the fit's compute unit; floor, ceiling, noise, drift and
    move (height of a second rise, negative for a collapse) are fractions. Where families are averaged, ``tail`` makes
    a Burr curve of the sigmoid (Burr with exponent 1 is the power law), and ``move`` is 0 in draws without one.
    """

    floor: NDArray[np.float64]
    ceiling: NDArray[np.float64]
    exponent: NDArray[np.float64]
    midpoint: NDArray[np.float64]
    noise: NDArray[np.float64]
    drift: NDArray[np.float64]
    fitted_upto: float
    tail: NDArray[np.float64] | None = None
    move: NDArray[np.float64] | None = None
    second_exponent: NDArray[np.float64] | None = None
    second_midpoint: NDArray[np.float64] | None = None

    @property
    def level_off(self) -> NDArray[np.float64]:
        """Where the curve levels off, shape (S,): the sigmoid's ceiling and the drift of one more e-fold of compute.

        Real curves creep on after the sigmoid has levelled off, so the sigmoid's own ceiling is known less well than
        its posterior says.
        """
        return np.clip(self.ceiling + self.drift, 0.0, 1.0)

    def curve(self, compute: ArrayLike) -> NDArray[np.float64]:
        """Pass rate at each compute, shape (S, points).

        Beyond the fitted range the curve drifts by a random amount per e-fold of compute, since real curves
        keep creeping after a sigmoid has levelled off; what would leave 0-1 stops there.
        """
        compute = np.asarray(compute, dtype=float)
        floor, ceiling, exponent, midpoint = (
            row[:, None] for row in (self.floor, self.ceiling, self.exponent, self.midpoint)
        )
        if self.tail is None:
            value = sigmoid(compute, floor, ceiling, exponent, midpoint)
        else:
            value = burr(compute, floor, ceiling, exponent, midpoint, self.tail[:, None])
        if self.move is not None:
            assert self.second_exponent is not None
            assert self.second_midpoint is not None
            done, _ = share(compute, self.second_exponent[:, None], self.second_midpoint[:, None])
            value = np.clip(value + self.move[:, None] * done, 0.0, 1.0)
        beyond = np.log(np.maximum(compute / self.fitted_upto, 1.0))
        return np.clip(value + self.drift[:, None] * beyond, 0.0, 1.0)

    def evaluation(self, compute: ArrayLike, trials: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Pass rate that one evaluation of `trials` Bernoulli trials would show, shape (S, points).

        Each draw has one noise for all points, so that an interval does not depend on what else is asked for.
        """
        curve = self.curve(compute)
        return np.clip(
            curve + self.evaluation_sd(curve, trials) * rng.standard_normal((len(curve), 1)), 0.0, 1.0
        )

    def evaluation_sd(self, curve: NDArray[np.float64], trials: float) -> NDArray[np.float64]:
        """Sd of one evaluation of `trials` Bernoulli trials around each draw of `curve`, shape (S, points)."""
        return np.sqrt(self.noise[:, None] ** 2 + curve * (1 - curve) / trials)


def run_draws(
    posterior: xr.Dataset, run: str, fitted_upto: float, drift_sd: float, rng: np.random.Generator
) -> CurveDraws:
    """Draws of a run that was fitted."""
    one = _stacked(posterior).sel(run=run)
    values = {name: one[name].to_numpy() for name in ("floor", "ceiling", "exponent", "midpoint", "noise")}
    return CurveDraws(
        **values, drift=drift_draws(drift_sd, len(values["floor"]), rng), fitted_upto=fitted_upto
    )


def recipe_draws(
    posterior: xr.Dataset,
    recipe: str,
    members: list[str],
    fitted_upto: float,
    drift_sd: float,
    rng: np.random.Generator,
    *,
    new_run: bool,
) -> CurveDraws:
    """Draws of a recipe's mean curve, or of a run of it that has not been started.

    The floor is the mean of its runs' floors (one checkpoint), the noise that of one of its runs at random.
    """
    draws = _stacked(posterior)
    floor = draws["floor"].sel(run=members).mean("run").to_numpy()
    parameters = {}
    for name in ("gain", "log_exponent", "log_midpoint"):
        parameters[name] = draws[f"recipe_{name}"].sel(recipe=recipe).to_numpy()
        if new_run:
            parameters[name] = parameters[name] + draws[f"{name}_within_sd"].to_numpy() * rng.standard_normal(
                len(floor)
            )
    noises = draws["noise"].sel(run=members).transpose("run", "sample").to_numpy()
    return CurveDraws(
        floor=floor,
        ceiling=floor + (1 - floor) * expit(parameters["gain"]),
        exponent=np.exp(parameters["log_exponent"]),
        midpoint=np.exp(parameters["log_midpoint"]),
        noise=noises[rng.integers(len(members), size=len(floor)), np.arange(len(floor))],
        drift=drift_draws(drift_sd, len(floor), rng),
        fitted_upto=fitted_upto,
    )


def _stacked(posterior: xr.Dataset) -> xr.Dataset:
    return posterior.stack(sample=("chain", "draw"), create_index=False)


def drift_draws(sd: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draws of the drift per e-fold of compute beyond the data, shape (size,); upward more often than not."""
    return sd * (DRIFT_MEAN + rng.standard_normal(size))
