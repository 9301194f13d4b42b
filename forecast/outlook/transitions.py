"""Is a second rise or a collapse under way? Flags per run and per recipe, with the evidence behind them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from forecast.errors import InputError
from forecast.inference.observations import Observations, check_floor, observe
from forecast.inference.priors import Priors, get_priors
from forecast.inference.run_prior import RunPrior, run_prior
from forecast.inference.weighing import MOVES, Weighed, weigh
from forecast.outlook.averaged import family_weights, window_decades
from forecast.outlook.evidence import fit_observations, prior_of, thinned
from forecast.outlook.hazard import Hazard
from forecast.outlook.onset import p_ahead
from forecast.outlook.precursors import Precursor, precursors
from forecast.outlook.readings import (
    ALARM_LOG_BF,
    MINIMUM,
    STATES,
    WATCH_LOG_BF,
    Reading,
    cusum,
    cut_offs,
    glance,
    read,
)
from forecast.outlook.reasons import recipe_reason, run_reason
from forecast.outlook.strata import StratumFlag, stratum_channel
from forecast.runs.table import Runs
from forecast.threads import in_threads

if TYPE_CHECKING:
    from forecast.fits import Fit
    from forecast.inference.sampling import Report

FAR = 4.0
"""Default horizon, in units of the largest compute seen."""


@dataclass(frozen=True)
class Flag:
    """Everything known of second moves of one run.

    Attributes
    ----------
    run : str
    readings : list of Reading
        By cut-off, the last of them careful; empty where there are too few evaluations.
    weighed : Weighed or None
        Families at the last evaluation.
    cusum : float
    strata : list of (float, StratumFlag)
        By cut-off; empty without prompt classes.
    precursors : list of Precursor
    """

    run: str
    readings: list[Reading]
    weighed: Weighed | None
    cusum: float
    strata: list[tuple[float, StratumFlag]]
    precursors: list[Precursor]


@dataclass(frozen=True)
class Latched:
    """The highest state that a run has been in, and where it was first reached.

    Attributes
    ----------
    state, kind : str
        Kind is ``none`` in the state ``prior_only``.
    since : float
        Compute; NaN in the state ``prior_only``.
    by : str
        ``curve`` or ``strata``: what showed it first.
    """

    state: str
    kind: str
    since: float
    by: str


def states(readings: Sequence[Reading], hazard: Hazard, decades: float) -> list[dict[str, str]]:
    """State by kind at each cut-off, by its evidence alone.

    A collapse is an alarm only where the evaluation before was suspicious too: one bad evaluation (a crashed worker, a
    dip that recovers) is common, and one good evaluation too many is not. Half of the gain lost at three evaluations in a
    row needs no more.
    """
    found = [{kind: reading.state(kind, hazard, decades) for kind in MOVES} for reading in readings]
    for i, own in enumerate(found):
        alone = i == 0 or found[i - 1]["collapse"] == STATES[0]
        if own["collapse"] == STATES[2] and alone and not readings[i].lost:
            own["collapse"] = STATES[1]
    return found


def latched(flag: Flag, hazard: Hazard, decades: float) -> Latched:
    """Return the highest state so far. Once a move is over its evidence fades, so a state does not fall.

    A watch stays if two evaluations in a row, or prompt classes, said so: of many evaluations a single one often does.
    """
    by_cut = states(flag.readings, hazard, decades)
    found = []
    for i, own in enumerate(by_cut):
        for kind, state in own.items():
            rank = STATES.index(state)
            if (
                rank == 1
                and i + 1 < len(by_cut)
                and by_cut[i + 1][kind] == STATES[0]
                and (i == 0 or by_cut[i - 1][kind] == STATES[0])
            ):
                rank = 0
            found.append((rank, -flag.readings[i].compute, kind, "curve"))
    found += [(STATES.index(own.state), -compute, "rise", "strata") for compute, own in flag.strata]
    rank, compute, kind, by = max(found, key=lambda one: one[:2], default=(0, np.nan, "none", "curve"))
    if rank == 0:
        return Latched(STATES[0], "none", float("nan"), "curve")
    return Latched(STATES[rank], kind, -compute, by)


def transitions(
    source: Fit | Runs,
    *,
    horizon: float | None = None,
    hazard: Hazard | None = None,
    floor: str | float = "measured",
    seed: int = 0,
    report: Report | None = None,
) -> pd.DataFrame:
    """Flag second rises and collapses.

    Every run is read at each evaluation, as if it had been watched from the start, and the highest state it reached
    stays. A recipe's row pools the evidence of its runs.

    Parameters
    ----------
    source : Fit or Runs
        With a fit, its range, priors, floor and seed hold; runs that carry no forecast are looked at too.
    horizon : float, optional
        Compute up to which `p_ahead` counts; by default four times the largest compute of each run.
    hazard : Hazard, optional
        Expected moves per decade of compute.
    floor, seed
        As in `forecast.fit`, when `source` is a run table.
    report : callable, optional
        Called with (stage, done, total).

    Returns
    -------
    pandas.DataFrame
        One row per run, then one per recipe with several runs: ``level, run`` (the name), ``state, kind, p_onset``
        (probability that the move of this kind, or of the likelier one, has begun), ``p_ahead`` (that one begins
        between now and the horizon), ``log_bf_rise, log_bf_collapse`` (nats, against a mixture of smooth families) and
        their Monte-Carlo errors ``..._se``, ``cusum``, ``stratum`` (state of the prompt classes), ``precursors`` (those
        that fired), ``since`` (compute at which the state was reached), ``now`` (the state by the curve at the last evaluation alone),
        ``compute`` (last evaluation), ``unit, evaluations, horizon, hazard, reason``.

    Raises
    ------
    InputError
        If the horizon lies before the last evaluation or is no number, or another argument is wrong.
    """
    hazard = Hazard.given(hazard)
    if seed < 0:
        raise InputError("seed must not be negative", found=seed)
    if isinstance(source, Runs):
        watched = Watched(source, floor=floor, seed=seed)
    else:
        settings = source.settings
        watched = Watched(
            source.runs.window(settings.start, settings.upto),
            floor=settings.floor,
            prior=settings.prior,
            seed=settings.seed,
            fit=source,
        )
    return watched.table(horizon=horizon, hazard=hazard, report=report)


class Watched:
    """Runs under watch: what was read at a cut-off is kept, so that a longer log costs only what is new."""

    def __init__(
        self,
        runs: Runs,
        *,
        floor: str | float = "measured",
        prior: str = "wide",
        seed: int = 0,
        fit: Fit | None = None,
    ) -> None:
        check_floor(floor)
        self.runs, self.floor, self.seed, self.fit = runs, floor, seed, fit
        self.priors: Priors = get_priors(prior)
        self._readings: dict[tuple[Any, ...], Reading] = {}
        self._flags: dict[tuple[Any, ...], Flag] = {}

    @property
    def last(self) -> float:
        """Largest compute of any run."""
        return float(self.runs.table["compute"].max())

    def table(self, *, horizon: float | None, hazard: Hazard, report: Report | None = None) -> pd.DataFrame:
        """Return the table of `transitions`."""
        _check_horizon(horizon, self.last)
        if self.fit is not None:
            _ = self.fit.weighed, self._prior_of_fit  # before threads ask for them
        flags = self.flags(report)
        decades = window_decades(self.priors)
        rows = [self._run_row(flag, horizon, hazard, decades) for flag in flags.values()]
        of_runs = pd.DataFrame(rows)
        recipes = self.runs.recipes
        for recipe in dict.fromkeys(recipes.values()):
            members = [flag for name, flag in flags.items() if recipes[name] == recipe and flag.readings]
            if len(members) > 1:
                own = of_runs[of_runs["run"].isin([flag.run for flag in members])]
                rows.append(self._recipe_row(recipe, members, own, hazard, decades))
        return pd.DataFrame(rows)

    def flags(self, report: Report | None = None) -> dict[str, Flag]:
        """Read every run at every evaluation that has not been read yet."""
        overall = self.runs.overall()
        jobs: list[tuple[str, pd.DataFrame, int]] = []
        tables = {
            str(name): table.reset_index(drop=True) for name, table in overall.groupby("run", sort=False)
        }
        # The last, careful reading takes longest and comes first.
        for name, table in tables.items():
            jobs += [(name, table, n) for n in reversed(cut_offs(len(table)))]
        jobs.sort(key=lambda job: job[2] < len(job[1]))
        keys = [self._key(name, table, n) for name, table, n in jobs]
        todo = [
            (job, key)
            for job, key in zip(jobs, keys, strict=True)
            if key not in (self._flags if job[2] == len(job[1]) else self._readings)
        ]
        done = in_threads(lambda one: self._read(*one[0]), todo, os.cpu_count() or 1)
        for number, ((_, key), found) in enumerate(zip(todo, done, strict=True), start=1):
            if isinstance(found, Flag):
                self._flags[key] = found
                self._readings[key] = found.readings[0]
            else:
                self._readings[key] = found
            if report is not None:
                report("looking for transitions", number, len(todo))
        flags = {}
        for name in self.runs.names:
            table = tables.get(name, overall.head(0))
            # Also what was read while the log was shorter.
            keys = [self._key(name, table, n) for n in range(MINIMUM, len(table) + 1)]
            readings = [self._readings[key] for key in keys if key in self._readings]
            last = self._flags[keys[-1]] if keys else Flag(name, [], None, float("nan"), [], [])
            flags[name] = replace(
                last, readings=readings, strata=self._strata(name), precursors=precursors(self.runs, name)
            )
        return flags

    def _key(self, name: str, table: pd.DataFrame, n: int) -> tuple[Any, ...]:
        head, floor = table.head(n), self.runs.floors.get(name)
        return (
            name,
            n,
            floor,
            self.runs.metric,
            hash((*head["compute"], *head["value"], *head["trials"].fillna(0))),
        )

    def _read(self, name: str, table: pd.DataFrame, n: int) -> Reading | Flag:
        upto = float(table["compute"].iloc[n - 1])
        part = thinned(self.runs.select([name]).window(upto=upto))
        observations = observe(part, self.floor)
        # By name: repeats of two runs must not share random numbers, nor depend on what other runs there are.
        seed = [self.seed, zlib.crc32(name.encode()), n]
        prior = run_prior(self.priors, observations, 0)
        # The compute as logged: that of the observations went through a logarithm and back.
        if n < len(table):
            return replace(glance(observations, 0, prior, seed), compute=upto)
        weighed, prior = self._weighed(name, observations, prior, seed)
        reading = replace(read(weighed, observations, 0, prior, seed), compute=upto)
        return Flag(name, [reading], weighed, cusum(observations, 0, prior, seed), [], [])

    def _weighed(
        self, name: str, observations: Observations, prior: RunPrior, seed: Sequence[int]
    ) -> tuple[Weighed, RunPrior]:
        if self.fit is None:
            return weigh(observations, 0, prior, seed=seed, close=(WATCH_LOG_BF, ALARM_LOG_BF)), prior
        return self.fit.weighed[name], self._prior_of_fit[name]

    @cached_property
    def _prior_of_fit(self) -> dict[str, RunPrior]:
        assert self.fit is not None
        every = fit_observations(self.fit)
        return {name: prior_of(self.fit, every, j) for j, name in enumerate(every.runs)}

    def _strata(self, name: str) -> list[tuple[float, StratumFlag]]:
        one = self.runs.select([name])
        classes = one.table[one.table["stratum"].notna()]
        found = []
        for compute in sorted(set(classes["compute"])):
            flag = stratum_channel(one.window(upto=float(compute)), name)
            if flag is not None:
                found.append((float(compute), flag))
        return found

    def _run_row(self, flag: Flag, horizon: float | None, hazard: Hazard, decades: float) -> dict[str, Any]:
        overall = self.runs.overall()
        own = overall[overall["run"] == flag.run]
        upto = float(own["compute"].max()) if len(own) else float("nan")
        state = latched(flag, hazard, decades)
        end = horizon or FAR * upto
        row: dict[str, Any] = {"level": "run", "run": flag.run, "state": state.state, "kind": state.kind}
        if flag.weighed is None:
            ahead = sum(hazard.within(np.log10(end / upto)).values()) if upto > 0 else float("nan")
            row |= _numbers(None, float("nan"), ahead)
            now = STATES[0]
        else:
            last = flag.readings[-1]
            p = {kind: last.p_onset(kind, hazard, decades) for kind in MOVES}
            shown = state.kind if state.kind in MOVES else max(p, key=lambda kind: p[kind])
            weights = family_weights(flag.weighed, hazard, self.priors)
            row |= _numbers(last, p[shown], p_ahead(flag.weighed, weights, hazard, self.priors, end))
            now = max(states(flag.readings, hazard, decades)[-1].values(), key=STATES.index)
        row |= {
            "cusum": flag.cusum,
            "stratum": max((own.state for _, own in flag.strata), key=STATES.index, default=""),
            "precursors": ", ".join(one.name for one in flag.precursors if one.fired),
            "since": state.since,
            "now": now,
            "compute": upto,
            "unit": self.runs.compute.unit,
            "evaluations": len(own),
            "horizon": end,
            "hazard": str(hazard),
        }
        lost = bool(flag.readings) and flag.readings[-1].lost
        return row | {"reason": run_reason(row | {"lost": lost}, state, flag.strata, flag.precursors)}

    def _recipe_row(
        self, recipe: str, members: list[Flag], own: pd.DataFrame, hazard: Hazard, decades: float
    ) -> dict[str, Any]:
        last = [flag.readings[-1] for flag in members]
        pooled = Reading(
            compute=max(reading.compute for reading in last),
            evaluations=sum(reading.evaluations for reading in last),
            log_bf={kind: sum(reading.log_bf[kind] for reading in last) for kind in MOVES},
            log_bf_se={
                kind: float(np.sqrt(sum(reading.log_bf_se[kind] ** 2 for reading in last))) for kind in MOVES
            },
            log_bf_guarded={kind: sum(reading.log_bf_guarded[kind] for reading in last) for kind in MOVES},
            begun={kind: float(np.mean([reading.begun[kind] for reading in last])) for kind in MOVES},
            moved={kind: all(reading.moved[kind] for reading in last) for kind in MOVES},
            lost=all(reading.lost for reading in last),
        )
        p = {kind: pooled.p_onset(kind, hazard, decades) for kind in MOVES}
        current = {kind: pooled.state(kind, hazard, decades) for kind in MOVES}
        kind = max(MOVES, key=lambda one: (STATES.index(current[one]), p[one]))
        now = current[kind]
        # What most of its runs have shown is the recipe's as well, also when the evidence has faded since.
        state, since = now, pooled.compute if now != STATES[0] else float("nan")
        for one in MOVES:
            for level in STATES[1:]:
                reached = own[(own["kind"] == one) & (own["state"].map(STATES.index) >= STATES.index(level))]
                if len(reached) > len(own) / 2 and STATES.index(level) >= STATES.index(state):
                    state, kind, since = level, one, float(reached["since"].median())
        row: dict[str, Any] = {
            "level": "recipe",
            "run": recipe,
            "state": state,
            "kind": kind if state != STATES[0] else "none",
            **_numbers(pooled, p[kind], float(own["p_ahead"].mean())),
            "cusum": float("nan"),
            "stratum": max(own["stratum"], key=lambda text: STATES.index(text) if text else -1),
            "precursors": "",
            "since": since,
            "now": now,
            "compute": pooled.compute,
            "unit": self.runs.compute.unit,
            "evaluations": pooled.evaluations,
            "horizon": float(own["horizon"].max()),
            "hazard": str(hazard),
        }
        return row | {"reason": recipe_reason(row, own)}


def _numbers(reading: Reading | None, onset: float, ahead: float) -> dict[str, float]:
    found: dict[str, float] = {"p_onset": onset, "p_ahead": ahead}
    for kind in MOVES:
        found[f"log_bf_{kind}"] = float("nan") if reading is None else float(reading.log_bf[kind])
        found[f"log_bf_{kind}_se"] = float("nan") if reading is None else float(reading.log_bf_se[kind])
    return found


def _check_horizon(horizon: float | None, last: float) -> None:
    if horizon is not None and not (np.isfinite(horizon) and horizon > last):
        raise InputError(
            "--horizon must lie beyond the last evaluation", found=horizon, expected=f"more than {last:g}"
        )
