"""Worlds that agree with the data of a run so far: its evaluations are real, what follows is simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forecast.outlook.draws import CurveDraws
from simulators.noise import FIXED_PROMPTS, evaluate, wander
from studies.stress_scenarios import NO_MOVE, SCENARIOS, Scenario

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.outlook.hazard import Hazard
    from forecast.runs.table import Runs

QUANTITIES = ("curve", "evaluation")
QUANTILES = (0.025, 0.05, 0.5, 0.95, 0.975)
BEGUN = 0.1
"""Share of a move from which a flag is late."""

_GRID = 400


@dataclass(frozen=True)
class Outlook:
    """One run at its last fitted evaluation, and what is forecast of it; pass rates are fractions.

    Attributes
    ----------
    run : str
    number : int
        Of the run in the fit; seeds depend on it.
    past : Runs
        Its whole-set evaluations in the fitted range.
    now, horizon : float
        Compute of the last of them, and that the forecast is for.
    compute : ndarray, shape (K,)
        Of the evaluations to come, the last at the horizon.
    gap : float
        Distance between them in typical gaps of the past.
    trials : float
        Bernoulli trials of an evaluation; inf where unknown.
    draws : mapping of str to CurveDraws
        By treatment of transitions: ``excluded`` and ``averaged``.
    bands : mapping of (str, str) to ndarray, shape (5,)
        `QUANTILES` at the horizon by quantity and treatment of transitions, as `Fit.predict` gives them.
    persistence : ndarray, shape (S,)
        Correlation of the noise one evaluation apart, of each draw of ``excluded``.
    """

    run: str
    number: int
    past: Runs
    now: float
    horizon: float
    compute: NDArray[np.float64]
    gap: float
    trials: float
    draws: Mapping[str, CurveDraws]
    bands: Mapping[tuple[str, str], NDArray[np.float64]]
    persistence: NDArray[np.float64]

    def gains(self, transitions: str) -> NDArray[np.float64]:
        """Draws of the change of the true pass rate from now to the horizon, shape (S,)."""
        now, then = self.draws[transitions].curve([self.now, self.horizon]).T
        return then - now


@dataclass(frozen=True)
class World:
    """One future of a run; pass rates are fractions.

    Attributes
    ----------
    number : int
    kind : str
        ``rise``, ``collapse`` or ``none``.
    gain : float
        Change of the true pass rate from now to the horizon.
    true, seen : ndarray, shape (K,)
        True pass rate and evaluations at `Outlook.compute`.
    onset : float
        Compute at which a tenth of the move is made that is made by the horizon; NaN without a move.
    """

    number: int
    kind: str
    gain: float
    true: NDArray[np.float64]
    seen: NDArray[np.float64]
    onset: float


def outlook(fit: Fit, run: str, hazard: Hazard, *, horizon: float, evaluations: int) -> Outlook:
    """Everything that is known of a run at its last fitted evaluation.

    Parameters
    ----------
    fit : Fit
    run : str
    hazard : Hazard
        Of the averaged forecast.
    horizon : float
        Compute.
    evaluations : int
        Most evaluations up to the horizon; closer ones are thinned out evenly.
    """
    from forecast.outlook.averaged import averaged_draws
    from forecast.outlook.draws import LEVELS
    from forecast.outlook.fitted_curves import curve_draws, curve_names, trials_per_evaluation

    single = curve_draws(fit, "run", run)
    assert single is not None
    draws = {"excluded": single, "averaged": averaged_draws(fit, "run", run, hazard)}
    trials = trials_per_evaluation(fit, [run])
    number = curve_names(fit, "run").index(run)
    bands = {}
    for transitions, curve in draws.items():
        for quantity in QUANTITIES:
            # The stream of `Fit.predict`: the band is the one that the user has seen.
            rng = np.random.default_rng([fit.settings.seed, LEVELS.index("run"), number, 1])
            values = (
                curve.curve([horizon]) if quantity == "curve" else curve.evaluation([horizon], trials, rng)
            )
            bands[quantity, transitions] = np.quantile(values[:, 0], QUANTILES)
    past = fit.fitted.select([run])
    past = replace(past, table=past.overall())
    now = float(past.table["compute"].iloc[-1])
    compute, gap = later_evaluations(past.table["compute"].to_numpy(), horizon, evaluations)
    stacked = fit.draws.stack(sample=("chain", "draw"), create_index=False)["persistence"]
    persistence = stacked.sel(run=run) if "run" in stacked.dims else stacked
    return Outlook(
        run, number, past, now, horizon, compute, gap, trials, draws, bands, persistence.to_numpy()
    )


def later_evaluations(
    compute: ArrayLike, horizon: float, most: int = 12
) -> tuple[NDArray[np.float64], float]:
    """Continue evaluations at their own spacing, even or in the logarithm, whichever is more regular.

    Parameters
    ----------
    compute : array_like, shape (n,)
        Of the evaluations so far, increasing.
    horizon : float
        Of the last to come.
    most : int
        Evaluations to come; more are thinned out evenly.

    Returns
    -------
    compute : ndarray, shape (K,)
    gap : float
        Distance between them in typical gaps of the evaluations so far.
    """
    compute = np.asarray(compute, dtype=float)
    now = compute[-1]
    if len(compute) < 2:
        return np.geomspace(now, horizon, most + 1)[1:], 1.0
    linear, log = np.diff(compute), np.diff(np.log(compute))
    even = np.std(linear) / np.mean(linear) <= np.std(log) / np.mean(log)
    gaps = (horizon - now) / np.median(linear) if even else np.log(horizon / now) / np.median(log)
    count = int(np.clip(round(gaps), 1, most))
    space = np.linspace if even else np.geomspace
    return space(now, horizon, count + 1)[1:], float(max(gaps / count, 0.1))


def draw_world(outlook: Outlook, scenario: Scenario, name: str, number: int, seed: int) -> World:
    """Draw one future: a curve of the posterior, its noise carried on from the last evaluation, and the scenario.

    Worlds of one number share curve and noise over scenarios, so that scenarios compare.

    Parameters
    ----------
    outlook : Outlook
    scenario : Scenario
    name : str
        Of the scenario, in `SCENARIOS`.
    number : int
        Of the world, from 0.
    seed : int
    """
    size = len(outlook.persistence)
    at = int(np.random.default_rng([seed, outlook.number, 0]).permutation(size)[number % size])
    own = _one(outlook.draws["excluded"], at)
    grid = np.geomspace(outlook.now, outlook.horizon, _GRID)
    points = len(outlook.compute)
    compute = np.concatenate([outlook.compute, grid])
    curve = own.curve(compute)[0]
    drawn = np.random.default_rng([seed, outlook.number, number + 1, 2 + list(SCENARIOS).index(name)])
    course = scenario.course(compute / outlook.now, curve, float(own.ceiling[0]), drawn)
    rng = np.random.default_rng([seed, outlook.number, number + 1, 1])
    sd, correlation = float(own.noise[0]), float(outlook.persistence[at])
    last = _last_wander(outlook, float(curve[points]), sd, rng)
    sd, correlation = scenario.noise(sd, correlation, drawn)
    path = wander(points, sd, correlation**outlook.gap, rng, after=last)
    level = np.clip(course.seen[:points] + path, 0.0, 1.0)
    seen = level if np.isinf(outlook.trials) else evaluate(level, round(outlook.trials), rng)
    onset = float("nan")
    if course.kind != NO_MOVE:
        moved = np.abs(course.true[points:] - curve[points:])
        if moved[-1] > 0:
            onset = float(grid[np.argmax(moved >= BEGUN * moved[-1])])
    return World(
        number=number,
        kind=course.kind,
        gain=float(course.true[points - 1] - curve[points]),
        true=course.true[:points],
        seen=seen,
        onset=onset,
    )


def runs_with(outlook: Outlook, world: World) -> Runs:
    """Run table that the user would have at the horizon: the real evaluations, then the simulated ones."""
    import pandas as pd

    past = outlook.past
    labels = past.table.iloc[[-1] * len(outlook.compute)].drop(columns=["source", "source_row", "step"])
    later = labels.assign(compute=outlook.compute, value=past.metric.from_fraction(world.seen))
    return replace(past, table=pd.concat([past.table, later], ignore_index=True))


def _last_wander(outlook: Outlook, curve: float, sd: float, rng: np.random.Generator) -> float:
    """Draw the wander at the last evaluation, given how far that lies from the curve."""
    step = rng.standard_normal()
    if sd == 0:
        return 0.0
    value = float(outlook.past.metric.to_fraction(outlook.past.table["value"].iloc[-1]))
    sampling = FIXED_PROMPTS * curve * (1 - curve) / outlook.trials
    kept = sd**2 / (sd**2 + sampling)
    return kept * (value - curve) + sd * np.sqrt(1 - kept) * float(step)


def _one(draws: CurveDraws, at: int) -> CurveDraws:
    """One draw by itself."""
    values = {field.name: getattr(draws, field.name) for field in fields(draws)}
    own: dict[str, Any] = {
        name: value[[at]] for name, value in values.items() if isinstance(value, np.ndarray)
    }
    return replace(draws, **own)
