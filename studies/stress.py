"""Stress test: what the forecast of a fit would have said, shown and cost if something happens after the data end.

Every world has the real evaluations as its past, so that the forecast is the one that the user has. The future is a curve
of the run's posterior with its noise, and what a scenario does to it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from forecast.errors import InputError
from forecast.outlook.transitions import FAR
from studies.stress_decisions import Decision, default_worth
from studies.stress_scenarios import NO_MOVE, SCENARIOS, Scenario
from studies.stress_worlds import (
    QUANTILES,
    QUANTITIES,
    Outlook,
    World,
    draw_world,
    later_evaluations,
    outlook,
    runs_with,
)

if TYPE_CHECKING:
    import pandas as pd

    from forecast.fits import Fit
    from forecast.inference.sampling import Report
    from forecast.outlook.hazard import Hazard
    from forecast.outlook.readings import Reading

MOST_RUNS = 6
TRANSITIONS = ("excluded", "averaged")
SECONDS = 0.013
"""Of one core per reading and evaluation read, on average: what ends at an alarm makes up for what takes long."""

_BANDS = {90: (1, 3), 95: (0, 4)}
_MEDIAN = QUANTILES.index(0.5)


@dataclass(frozen=True)
class Stress:
    """Result of a stress test.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per scenario; see `stress_test`.
    runs : pandas.DataFrame
        One row per run: ``run, compute`` (now), ``horizon, unit, evaluations`` (to come), ``gain_excluded,
        gain_averaged`` (mean forecast gain), ``gain_median`` (of the single sigmoid), ``worth, pays_excluded,
        pays_averaged`` and ``alarm`` (kind that is in alarm now, else empty).
    worlds : pandas.DataFrame
        One row per scenario, run and world.
    scenarios : mapping of str to Scenario
    outlooks : list of Outlook
    futures : mapping of (str, str) to list of World
        By scenario and run.
    left_out : int
        Runs of the fit beyond `MOST_RUNS`.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    worlds: pd.DataFrame
    scenarios: Mapping[str, Scenario]
    outlooks: list[Outlook]
    futures: Mapping[tuple[str, str], list[World]]
    left_out: int


def stress_test(
    fit: Fit,
    *,
    scenarios: Mapping[str, Scenario] | None = None,
    horizon: float | None = None,
    hazard: Hazard | None = None,
    worlds: int = 20,
    watched: int = 4,
    worth: float | None = None,
    evaluations: int = 12,
    seed: int = 0,
    report: Report | None = None,
) -> Stress:
    """Put the forecast of a fit through scenarios of what may come after its data.

    Parameters
    ----------
    fit : Fit
    scenarios : mapping of str to Scenario, optional
        Of `studies.stress_scenarios.SCENARIOS`, sizes changed at will; default all.
    horizon : float, optional
        Compute that is decided about; default four times what each run has used.
    hazard : Hazard, optional
        Of the averaged forecast and the flags.
    worlds : int
        Per scenario and run; at most six runs are taken, evenly spread over those of the fit.
    watched : int
        Of these worlds, how many are read for flags at every evaluation to come. The slow part.
    worth : float, optional
        Gain, on the metric's scale, that justifies the compute up to the horizon; default half of the median gain that
        the single sigmoid forecasts for each run.
    evaluations : int
        Most evaluations to come.
    seed : int
    report : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    Stress
        The table has one row per scenario. Values are on the metric's scale, gains such that more is better. Columns:
        ``scenario, runs, worlds, watched`` (counts); ``{curve|evaluation}_{90|95}_{excluded|averaged}`` (share of
        worlds in which the true curve, or the evaluation, lies inside the printed band at the horizon, transitions
        excluded or averaged), each with its standard error ``..._se``; ``width_{90|95}_...`` (of the band of the
        curve); ``bias_...`` (mean of median minus truth); ``detected`` (share of watched worlds with an alarm of the
        right kind by the horizon) and ``detected_se``; ``delay`` (median over those: compute at the alarm / compute at
        which a tenth of the move was made); ``false_alarm`` (share of watched worlds with an alarm of a kind that does
        not come) and ``false_alarm_se``; ``wrong_...``, ``wrong_..._se`` and ``regret_...`` (of the decision, see
        `studies.stress_decisions`); ``compute_saved, money_saved`` (mean over watched worlds, when stopping at the
        alarm of a collapse). NaN where a column does not apply. Standard errors count runs as clusters.

    Raises
    ------
    InputError
        If an argument is out of range.
    Withheld
        If the sampler's diagnostics failed.
    """
    import pandas as pd

    from forecast.outlook.hazard import Hazard

    hazard, scenarios = hazard or Hazard(), scenarios or SCENARIOS
    fit.require_passed()
    zero, one = fit.runs.metric.scale
    scale = abs(one - zero)
    names = chosen_runs(fit.observations.runs)
    check_arguments(fit, horizon, worth)
    if report is not None:
        report("weighing transitions", 0, len(names))
    outlooks = [
        outlook(fit, run, hazard, horizon=horizon or FAR * _now(fit, run), evaluations=evaluations)
        for run in names
    ]
    decisions = {}
    for own in outlooks:
        needed = default_worth(own.gains("excluded")) if worth is None else worth / scale
        decisions[own.run] = {t: Decision(float(own.gains(t).mean()), needed) for t in TRANSITIONS}
    futures = {
        (name, own.run): [draw_world(own, scenario, name, k, seed) for k in range(worlds)]
        for name, scenario in scenarios.items()
        for own in outlooks
    }
    alarms, now = _watch(fit, outlooks, futures, min(watched, worlds), hazard, seed, report)
    rows = [
        _world_row(own, name, world, decisions[own.run]) | alarms.get((name, own.run, world.number), {})
        for (name, run), drawn in futures.items()
        for own in outlooks
        if own.run == run
        for world in drawn
    ]
    each = pd.DataFrame(rows)
    for column in ("alarm", "false_alarm"):
        if column not in each:
            each[column] = np.nan
    price = fit.runs.compute.price_per_unit
    table = pd.DataFrame(
        [
            _scenario_row(str(name), own, one - zero, price)
            for name, own in each.groupby("scenario", sort=False)
        ]
    )
    runs = [
        _run_row(own, decisions[own.run], scale, now.get(own.run, "")) | {"unit": fit.runs.compute.unit}
        for own in outlooks
    ]
    return Stress(
        table, pd.DataFrame(runs), each, scenarios, outlooks, futures, len(fit.observations.runs) - len(names)
    )


def chosen_runs(names: Sequence[str]) -> list[str]:
    """Return at most `MOST_RUNS`, evenly spread."""
    count = min(len(names), MOST_RUNS)
    return [names[i] for i in np.linspace(0, len(names) - 1, count).round().astype(int)]


def check_arguments(fit: Fit, horizon: float | None, worth: float | None) -> None:
    """Refuse a horizon that is not ahead, and a worth that is no number.

    Raises
    ------
    InputError
    """
    now = max(_now(fit, run) for run in chosen_runs(fit.observations.runs))
    if horizon is not None and not (np.isfinite(horizon) and horizon > now * (1 + 1e-9)):
        raise InputError(
            "--horizon must lie beyond the last fitted evaluation",
            found=horizon,
            expected=f"more than {now:g} {fit.runs.compute.unit}",
        )
    if worth is not None and not (np.isfinite(worth) and worth >= 0):
        raise InputError(
            "--worth must be a gain that justifies the compute",
            found=worth,
            expected="a finite number from 0 on",
        )


def _now(fit: Fit, run: str) -> float:
    table = fit.fitted.overall()
    return float(table.loc[table["run"] == run, "compute"].max())


def readings_at_most(
    fit: Fit, scenarios: int, watched: int, evaluations: int, horizon: float | None
) -> tuple[int, float]:
    """How often logs are read at most, and for about how many seconds on this machine."""
    count, seconds = 0, 0.0
    for _, own in fit.fitted.overall().groupby("run"):
        if own["run"].iloc[0] in chosen_runs(fit.observations.runs):
            compute = own["compute"].to_numpy()
            later, _ = later_evaluations(compute, horizon or FAR * compute[-1], evaluations)
            count += len(later) * scenarios * watched
            seconds += len(later) * scenarios * watched * (len(own) + len(later) / 2) * SECONDS
    return count, seconds / (os.cpu_count() or 1)


def _watch(
    fit: Fit,
    outlooks: Sequence[Outlook],
    futures: Mapping[tuple[str, str], list[World]],
    watched: int,
    hazard: Hazard,
    seed: int,
    report: Report | None,
) -> tuple[dict[tuple[str, str, int], dict[str, Any]], dict[str, str]]:
    """Alarms by scenario, run and world; and by run the kind that is in alarm now, whose flags would say nothing."""
    from forecast.threads import in_threads

    if watched == 0:
        return {}, {}
    watch = _Watch(fit, hazard, seed)
    cores = os.cpu_count() or 1
    first = dict(zip([own.run for own in outlooks], in_threads(watch.now, outlooks, cores), strict=True))
    already = {run: kind for run, (_, kind) in first.items() if kind}
    # Worlds that look the same need be read once: reward hacking leaves the log as it is.
    jobs: dict[tuple[Any, ...], tuple[Outlook, World]] = {}
    asked = {}
    for (name, run), drawn in futures.items():
        (own,) = [one for one in outlooks if one.run == run]
        for world in drawn[:watched] if run not in already else []:
            key = (run, world.kind, world.seen.tobytes())
            asked[name, run, world.number] = key
            jobs[key] = (own, world)
    found = {}
    done = in_threads(lambda job: watch.world(*job, first[job[0].run][0]), list(jobs.values()), cores)
    for number, (key, alarms) in enumerate(zip(jobs, done, strict=True), start=1):
        found[key] = alarms
        if report is not None:
            report("watching worlds", number, len(jobs))
    return {world: found[key] for world, key in asked.items()}, already


class _Watch:
    """Reads logs as they grow, as `forecast.outlook.transitions` does."""

    def __init__(self, fit: Fit, hazard: Hazard, seed: int) -> None:
        from forecast.inference.priors import get_priors
        from forecast.outlook.averaged import window_decades

        self.floor, self.hazard, self.seed = fit.settings.floor, hazard, seed
        self.priors = get_priors(fit.settings.prior)
        self.decades = window_decades(self.priors)

    def now(self, own: Outlook) -> tuple[Reading | None, str]:
        """Reading at the last real evaluation, and the kind that is in alarm there."""
        reading = self._read(own.past, own.now)
        return reading, next(iter(self._alarms([reading])), "") if reading is not None else ""

    def world(self, own: Outlook, world: World, first: Reading | None) -> dict[str, Any]:
        """Compute at the first alarm of the right kind, and whether one of another kind came before."""
        runs = runs_with(own, world)
        readings = [first] if first is not None else []
        alarm, false_alarm = float("nan"), False
        for compute in own.compute:
            reading = self._read(runs, compute)
            if reading is None:
                continue
            readings.append(reading)
            kinds = self._alarms(readings)
            if world.kind in kinds:
                alarm = float(compute)
                break
            if kinds:
                false_alarm = True
                if world.kind == NO_MOVE:
                    break
        return {"alarm": alarm, "false_alarm": float(false_alarm), "watched": True}

    def _read(self, runs: Any, upto: float) -> Reading | None:
        from forecast.inference.observations import observe
        from forecast.inference.run_prior import run_prior
        from forecast.outlook.readings import MINIMUM, glance

        observations = observe(runs.window(upto=upto), self.floor)
        n = len(observations.run)
        if n < MINIMUM:
            return None
        return glance(observations, 0, run_prior(self.priors, observations, 0), [self.seed, n])

    def _alarms(self, readings: Sequence[Reading]) -> list[str]:
        """Kinds in alarm at the last of them."""
        from forecast.outlook.readings import STATES
        from forecast.outlook.transitions import states

        return [
            k for k, state in states(readings, self.hazard, self.decades)[-1].items() if state == STATES[2]
        ]


def _world_row(own: Outlook, name: str, world: World, decisions: Mapping[str, Decision]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "scenario": name,
        "run": own.run,
        "world": world.number,
        "kind": world.kind,
        "horizon": own.horizon,
        "gain": world.gain,
        "curve": float(world.true[-1]),
        "evaluation": float(world.seen[-1]),
        "onset": world.onset,
        "watched": False,
    }
    for transitions in TRANSITIONS:
        for level, (low, high) in _BANDS.items():
            for quantity in QUANTITIES:
                band = own.bands[quantity, transitions]
                row[f"{quantity}_{level}_{transitions}"] = bool(band[low] <= row[quantity] <= band[high])
            band = own.bands["curve", transitions]
            row[f"width_{level}_{transitions}"] = band[high] - band[low]
        row[f"bias_{transitions}"] = own.bands["curve", transitions][_MEDIAN] - row["curve"]
        row[f"wrong_{transitions}"] = bool(decisions[transitions].wrong(world.gain))
        row[f"regret_{transitions}"] = float(decisions[transitions].regret(world.gain))
    return row


def _scenario_row(name: str, own: pd.DataFrame, span: float, price: float | None) -> dict[str, Any]:
    watched = own[own["watched"]]
    row: dict[str, Any] = {
        "scenario": name,
        "runs": own["run"].nunique(),
        "worlds": len(own),
        "watched": len(watched),
    }
    for level in _BANDS:
        for quantity in QUANTITIES:
            for transitions in TRANSITIONS:
                row |= _share(own, f"{quantity}_{level}_{transitions}")
    for level in _BANDS:
        for transitions in TRANSITIONS:
            row[f"width_{level}_{transitions}"] = abs(span) * own[f"width_{level}_{transitions}"].mean()
    for transitions in TRANSITIONS:
        row[f"bias_{transitions}"] = span * own[f"bias_{transitions}"].mean()
    moves = watched[watched["kind"] != NO_MOVE]
    detected = moves["alarm"].notna()
    row |= _share(moves.assign(detected=detected), "detected")
    row["delay"] = float((moves["alarm"] / moves["onset"])[detected].median()) if detected.any() else np.nan
    row |= _share(watched, "false_alarm")
    for transitions in TRANSITIONS:
        row |= _share(own, f"wrong_{transitions}")
    for transitions in TRANSITIONS:
        row[f"regret_{transitions}"] = abs(span) * own[f"regret_{transitions}"].mean()
    falls = watched[watched["kind"] == "collapse"]
    # Without an alarm the run goes on to the horizon.
    saved = (falls["horizon"] - falls["alarm"]).fillna(0.0).mean()
    row["compute_saved"] = float(saved)
    row["money_saved"] = float(saved * price) if price is not None else np.nan
    return row


def _share(rows: pd.DataFrame, column: str) -> dict[str, float]:
    """Mean of a column and its standard error, runs counted as clusters.

    Few runs that happen to be alike would make the error too small: it is at least that of independent worlds.
    """
    value = rows[column].to_numpy(dtype=float)
    n = len(value)
    if n == 0:
        return {column: np.nan, f"{column}_se": np.nan}
    mean = float(value.mean())
    error = value.std() / np.sqrt(n)
    sums = (rows[column].astype(float) - mean).groupby(rows["run"]).sum().to_numpy()
    if (clusters := len(sums)) > 1:
        error = max(error, np.sqrt((sums**2).sum() * clusters / (clusters - 1)) / n)
    return {column: mean, f"{column}_se": float(error)}


def _run_row(own: Outlook, decisions: Mapping[str, Decision], scale: float, alarm: str) -> dict[str, Any]:
    return {
        "run": own.run,
        "compute": own.now,
        "horizon": own.horizon,
        "evaluations": len(own.compute),
        "gain_median": scale * float(np.median(own.gains("excluded"))),
        **{f"gain_{t}": scale * decisions[t].gain for t in TRANSITIONS},
        "worth": scale * decisions["excluded"].worth,
        **{f"pays_{t}": decisions[t].pays for t in TRANSITIONS},
        "alarm": alarm,
    }
