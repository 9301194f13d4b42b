"""Runs cut early: what a forecaster would have had, and what came later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.inference.observations import Observations
from forecast.runs.table import Runs

Array = NDArray[np.float64]

_ROUNDING = 1e-9  # relative; a share of a compute need not be the logged number to the last digit

NOTHING_BEFORE = "no evaluation before the cut"
NOTHING_BEYOND = "no evaluation beyond the cut"


@dataclass(frozen=True)
class Cut:
    """One way of cutting all runs.

    Attributes
    ----------
    number : int
        Position among the cuts that were asked for; part of every seed.
    label : str
        As tables show it.
    ends : mapping of str to float
        Run -> largest compute that may be fitted.
    """

    number: int
    label: str
    ends: Mapping[str, float]


@dataclass(frozen=True)
class CutRun:
    """What is known of one run at the cut, as fractions, and what came later, on the metric's scale.

    Attributes
    ----------
    number : int
        Position among all runs of the table; part of every seed.
    trials : float
        Bernoulli trials of a typical fitted evaluation; inf where the log does not say.
    """

    name: str
    recipe: str
    number: int
    compute: Array
    fraction: Array
    floor: float | None
    trials: float
    later_compute: Array
    later_value: Array

    @property
    def fitted_upto(self) -> float:
        """Largest compute fitted."""
        return float(self.compute[-1])


OWN_ENDS = "own end"
"""Label of the cut in which every run has its own end."""


def make_cuts(
    runs: Runs, fractions: Sequence[float] | None, upto: Sequence[float] | Mapping[str, float] | None
) -> list[Cut]:
    """Cut each run at shares of its own largest compute, all runs at the same compute, or each at its own.

    Raises
    ------
    InputError
        If both or neither are given, a number cannot be one, or a cut leaves nothing to fit or to score.
    """
    if (fractions is None) == (upto is None):
        raise InputError(
            "cut either at shares of each run (--upto-fraction) or at a compute (--upto)",
            found="both" if upto is not None else "neither",
        )
    last = _last(runs)
    if fractions is not None:
        shares = _distinct("--upto-fraction", fractions)
        if bad := [share for share in shares if not 0 < share < 1]:
            raise InputError(
                "--upto-fraction is no share of a run", found=f"{bad[0]:g}", expected="above 0 and below 1"
            )
        return [
            Cut(k, f"{100 * share:g} %", {name: share * end for name, end in last.items()})
            for k, share in enumerate(shares)
        ]
    if isinstance(upto, Mapping):
        if unknown := [name for name in last if name not in upto] + [
            name for name in upto if name not in last
        ]:
            raise InputError(
                "upto must name the end of every run",
                found=f"{unknown[0]!r} on one side only",
                fix="give them all",
            )
        return [Cut(0, OWN_ENDS, {name: float(upto[name]) for name in last})]
    ends = _distinct("--upto", upto or ())
    compute, unit = runs.overall()["compute"], runs.compute.unit
    for end in ends:
        if not (np.isfinite(end) and compute.min() <= end < compute.max()):
            raise InputError(
                "--upto leaves nothing to fit or nothing to score",
                found=f"{end:g}",
                expected=f"from {compute.min():g} to less than {compute.max():g} {unit}",
            )
    return [Cut(k, f"{end:g} {unit}", dict.fromkeys(last, end)) for k, end in enumerate(ends)]


def cut_runs(runs: Runs, ends: Mapping[str, float]) -> Runs:
    """Remove evaluations beyond each run's end; runs without an end stay whole, those left empty go."""
    end = runs.table["run"].map(ends).fillna(np.inf).to_numpy(dtype=float)
    table = runs.table[runs.table["compute"].to_numpy() <= end * (1 + _ROUNDING)]
    left = set(table["run"])
    floors = {name: floor for name, floor in runs.floors.items() if name in left}
    return replace(runs, table=table, floors=floors)


def split_runs(
    runs: Runs, cut: Cut, names: Sequence[str], observations: Observations | None
) -> tuple[list[CutRun], dict[str, str]]:
    """Split the named runs into what was observed up to the cut and what came later.

    Parameters
    ----------
    runs : Runs
        Whole.
    cut : Cut
    names : sequence of str
    observations : Observations or None
        Of the runs as they were cut; None if nothing was left.

    Returns
    -------
    list of CutRun, dict of str to str
        The second says why a run cannot be scored.
    """
    table = runs.overall()
    numbers = {name: k for k, name in enumerate(runs.names)}
    split, skipped = [], {}
    by_run = dict(iter(table.groupby("run", sort=False)))
    for name in names:
        if name not in by_run:
            skipped[name] = "no evaluation of the whole prompt set"
            continue
        own = by_run[name]
        beyond = own["compute"].to_numpy() > cut.ends[name] * (1 + _ROUNDING)
        if not beyond.any():
            skipped[name] = NOTHING_BEYOND
            continue
        if beyond.all():
            skipped[name] = NOTHING_BEFORE
            continue
        assert observations is not None
        j = observations.runs.index(name)
        at = observations.run == j
        inverse = float(np.median(observations.inverse_trials[at]))
        split.append(
            CutRun(
                name=name,
                recipe=own["recipe"].iloc[0],
                number=numbers[name],
                compute=own["compute"].to_numpy()[~beyond],
                fraction=observations.fraction[at],
                floor=float(observations.floor[j]) if observations.floor_known[j] else None,
                trials=np.inf if inverse == 0 else 1 / inverse,
                later_compute=own["compute"].to_numpy()[beyond],
                later_value=own["value"].to_numpy()[beyond],
            )
        )
    return split, skipped


def folds(runs: Runs) -> list[list[str]]:
    """Runs to cut together while their siblings stay whole: the k-th run of every recipe that has several.

    A recipe's only run is cut by itself, so that all of the experiment stands beside it.
    """
    members: dict[str, list[str]] = {}
    for name, recipe in runs.recipes.items():
        members.setdefault(recipe, []).append(name)
    several = [names for names in members.values() if len(names) > 1]
    together = [
        [names[k] for names in several if k < len(names)] for k in range(max(map(len, several), default=0))
    ]
    return together + [names for names in members.values() if len(names) == 1]


def _last(runs: Runs) -> dict[str, float]:
    ends = runs.overall().groupby("run", sort=False)["compute"].max()
    return {str(name): float(end) for name, end in ends.items()}


def _distinct(option: str, numbers: Sequence[float]) -> list[float]:
    distinct = list(dict.fromkeys(float(number) for number in numbers))
    if not distinct:
        raise InputError(f"{option} is empty", expected="at least one number")
    return distinct
