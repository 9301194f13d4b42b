"""What can be done with more compute: go on with a run, start one, or stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.outlook.averaged import averaged_draws
from forecast.outlook.draws import CurveDraws
from forecast.outlook.fitted_curves import (
    curve_draws,
    members,
    model_of,
    models_of,
    trials_per_evaluation,
)
from forecast.outlook.hazard import Hazard
from forecast.outlook.prices import Prices

if TYPE_CHECKING:
    from forecast.fits import Fit

ACTIONS = ("continue", "start", "stop")


@dataclass(frozen=True)
class Option:
    """One way to go on.

    Attributes
    ----------
    action : str
        Of `ACTIONS`.
    name : str
        Run to continue, recipe to start a new run of, or run to keep when stopping.
    model : str
        Base model, empty if not declared.
    curve : CurveDraws
        Joint with the other options' draw by draw, where transitions are excluded and runs were fitted together.
    spent : float
        Compute that it has used already, in the fit's unit.
    price : float
        Money per unit; NaN if unknown.
    trials : float
        Bernoulli trials of one evaluation.
    """

    action: str
    name: str
    model: str
    curve: CurveDraws
    spent: float
    price: float
    trials: float

    @property
    def label(self) -> str:
        """The option in words."""
        return {
            "continue": f"continue {self.name}",
            "start": f"start {self.name}",
            "stop": f"stop with {self.name}",
        }[self.action]

    def value(self, extra: float) -> NDArray[np.float64]:
        """True pass rate (0-1) after `extra` more compute, shape (S,)."""
        return self.curve.curve([self.spent + (0.0 if self.action == "stop" else extra)])[:, 0]


def make_options(
    fit: Fit,
    prices: Prices,
    *,
    names: Sequence[str] | None = None,
    transitions: str = "excluded",
    hazard: Hazard | None = None,
) -> list[Option]:
    """List the options that a fit can speak of: every fitted run, a new run of every recipe, and to stop.

    Recipes of several runs that the particle engine fitted have no common curve, and no option to start.

    Parameters
    ----------
    fit : Fit
    prices : Prices
    names : sequence of str, optional
        Only these runs and recipes (and to stop).
    transitions : {"excluded", "averaged"}
    hazard : Hazard, optional

    Returns
    -------
    list of Option
        Of which the last is to stop: to keep the run that is best so far, by its mean forecast.

    Raises
    ------
    InputError
        If a name is unknown, nothing is left to do, or prices differ between the models of one recipe.
    """
    observations = fit.observations
    known = list(observations.runs)
    recipes = list(observations.recipes) if "recipe_gain" in fit.draws else []
    if names is not None and not list(names):
        raise InputError("no run or recipe is named", expected=" | ".join(dict.fromkeys([*known, *recipes])))
    if names is not None and (missing := [name for name in names if name not in known + recipes]):
        if missing[0] in fit.refused:
            raise InputError(f"no forecast for run {missing[0]!r}", found=fit.refused[missing[0]])
        raise InputError(
            "no such run or recipe",
            found=missing[0],
            expected=" | ".join(dict.fromkeys([*known, *recipes])),
        )
    wanted = set(known + recipes if names is None else names)

    spent = {run: float(f"{used:.12g}") for run, used in zip(known, observations.fitted_upto, strict=True)}
    # Without transitions: with and without them, to stop is to keep the same run.
    best = max(known, key=lambda run: _mean_now(fit, run, spent[run]))

    def option(action: str, level: str, name: str, used: float) -> Option:
        runs = members(fit, level, name)
        model = model_of(fit, runs)
        if prices.by_model and len(several := models_of(fit, runs)) > 1:
            raise InputError(
                f"runs of recipe {name!r} are of several models, which have no one price",
                found=", ".join(several),
                fix="give each model its own recipe name, or one price for all",
            )
        return Option(
            action,
            name,
            model,
            _curve(fit, level, name, transitions, Hazard.given(hazard)),
            used,
            # To stop costs nothing, whatever the model.
            prices.of(model) if action != "stop" else 0.0 if prices.known else float("nan"),
            trials_per_evaluation(fit, runs),
        )

    return [
        *(option("continue", "run", run, spent[run]) for run in known if run in wanted),
        *(option("start", "new_run", recipe, 0.0) for recipe in recipes if recipe in wanted),
        option("stop", "run", best, spent[best]),
    ]


def _mean_now(fit: Fit, run: str, spent: float) -> float:
    curve = curve_draws(fit, "run", run)
    assert curve is not None
    return float(curve.curve([spent]).mean())


def _curve(fit: Fit, level: str, name: str, transitions: str, hazard: Hazard) -> CurveDraws:
    if transitions == "averaged":
        return averaged_draws(fit, level, name, hazard)
    curve = curve_draws(fit, level, name)
    assert curve is not None
    return curve
