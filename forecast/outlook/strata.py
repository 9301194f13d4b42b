"""A second rise seen early: prompt classes that were near zero and begin to move after the first rise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import logit, xlogy

from forecast.errors import InputError
from forecast.runs.table import Runs

Array = NDArray[np.float64]
State = Literal["prior_only", "watch", "alarm"]

WATCH, ALARM = 2.5, 5.0
"""Nats of evidence, beyond the log of the number of classes. Set, with the constants below, on smooth skills worlds
(`simulators.skills.drawing.draw_smooth`) watched at every evaluation and on small runs with a late rise: of 270 such
worlds none raises the alarm and 3 % the watch, one in ten where evaluations are spaced evenly in log-compute."""

NOISE_SD, LONE_SD = 0.3, 0.6
"""Sd (logit) of an evaluation's class rate beyond the binomial, and of a higher rate that a single evaluation says:
rates near zero of small real runs wander so much, and now and then one evaluation is far off."""

PERSISTENCE = 0.6
"""Correlation of that wander between neighbouring evaluations."""

HARD_RATE = 0.15
"""A class is hard if it was solved at most this often (fraction, above chance) before the change."""

LEAST_RATIO = 2.0
"""Odds after over odds before of a change that counts: what is smaller is the slow growth of a hard class."""

LEVEL, NEARLY_LEVEL = 0.2, 0.27
"""The other prompts have (nearly) levelled off once the last doubling of compute brought at most this share of their
rise. Before an alarm they must have levelled off, before a watch nearly."""

GROWTH = 1.0
"""Odds that grow with this power of compute, or a lower one, are smooth growth as well: it takes more than that, from
the mean compute of the evaluations before to that of those after."""

LEAST_RISE = 0.1
"""A rise (fraction) of the other prompts that counts as the first one: in less, noise looks like levelling off."""

LEAST_GAIN = 0.02
"""How much more of a class (fraction) must be solved for an alarm: less does not show in the whole set."""

LEAST_BEFORE = 3
"""Evaluations before a change."""

MANY, FEW_TRIALS = 30, 256
"""From this many classes on, with at most so many trials each, classes are single prompts."""

EARLY = 5
"""Evaluations by which single prompts are chosen; they take no part in the test."""

GROUP = 8
"""Rollouts per prompt and update assumed in what is said of rarely solved prompts."""

NEVER_SOLVED = "never solved early"
"""The class that single prompts which none of the first evaluations solved are pooled to."""

_RATES = ("pass_rate", "accuracy", "error_rate")


@dataclass(frozen=True)
class StratumFlag:
    """What the prompt classes of one run say of a second rise.

    Attributes
    ----------
    state : {"prior_only", "watch", "alarm"}
        The highest that any evaluation gave, so that it never falls when evaluations are added.
    stratum : str
        Class with the strongest evidence; empty if there is none.
    since : float
        Compute of the first evaluation at the higher rate (unit of the run table); nan if there is no evidence.
    statistic : float
        Largest log-likelihood ratio (nats) that an evaluation gave, 0 if there is no evidence.
    sentence : str
        The same in plain words.
    """

    state: State
    stratum: str
    since: float
    statistic: float
    sentence: str


@dataclass(frozen=True)
class Spectrum:
    """How the pass rates of single prompts are spread.

    Attributes
    ----------
    share_hard : float
        Share of prompts solved sometimes, but less often than once per group: they seldom give a gradient.
    share_zero : float
        Share of prompts never solved.
    gap : float
        Widest empty stretch of pass rates (nats, logit scale) above prompts solved less often than once per
        group; 0 if there is none with at least 5 % of prompts on each side.
    share_below : float
        Share of prompts below it; nan without a gap.
    """

    share_hard: float
    share_zero: float
    gap: float
    share_below: float


def spectrum(solved: ArrayLike, trials: ArrayLike, group_size: int) -> Spectrum:
    """Spread of pass rates over prompts at one evaluation.

    A gap in the spectrum is what goes before plateaus and late rises (Huang et al., arXiv 2602.14872). Counts are
    smoothed, ``(solved + 1/2) / (trials + 1)``, and the stretch that a prompt's own trials cannot resolve, up to
    one more solution, does not count as empty.

    Parameters
    ----------
    solved, trials : array_like, shape (prompts,)
        Rollouts right, and all rollouts, of each prompt.
    group_size : int
        Rollouts per prompt and update.

    Raises
    ------
    InputError
        If counts are impossible, or there are no prompts.
    """
    x, n = np.asarray(solved, dtype=float), np.asarray(trials, dtype=float)
    if x.ndim != 1 or x.shape != n.shape or not len(x):
        raise InputError("spectrum needs one count and one number of trials per prompt", found=x.shape)
    if not np.all((x >= 0) & (x <= n) & (n >= 1)):
        raise InputError("impossible counts", expected="0 <= solved <= trials, trials >= 1")
    if group_size < 1:
        raise InputError("group_size must be at least 1", found=group_size)
    rate = x / n
    gap, below = _gap(x, n, rate < 1 / group_size)
    hard = (rate > 0) & (rate < 1 / group_size)
    return Spectrum(float(hard.mean()), float((rate == 0).mean()), gap, below)


_SIDE = 0.05  # share of prompts on each side of a gap


def _gap(x: Array, n: Array, rare: NDArray[np.bool_]) -> tuple[float, float]:
    place = logit((x + 0.5) / (n + 1))
    order = np.argsort(place)
    reach = np.maximum.accumulate(logit(np.minimum(x + 1.5, n + 0.5) / (n + 1))[order])
    empty = place[order][1:] - reach[:-1]
    below = np.arange(1, len(x)) / len(x)
    empty = np.where(rare[order][:-1] & (below >= _SIDE) & (below <= 1 - _SIDE), empty, 0.0)
    if not len(empty) or empty.max() <= 0:
        return 0.0, np.nan
    widest = int(empty.argmax())
    return float(empty[widest]), float(below[widest])


@dataclass(frozen=True)
class _Class:
    """Counts of one class, in order of compute; and of all other prompts, to tell when they levelled off."""

    name: str
    compute: Array
    solved: Array
    trials: Array
    rest_compute: Array
    rest: Array
    floor: float = np.nan  # of the whole set before training, as a stand-in for theirs


@dataclass(frozen=True)
class _Evidence:
    """The strongest change of one class: nats, compute where it begins, rates (fraction) on both sides."""

    name: str
    statistic: float
    since: float = np.nan
    before: float = np.nan
    after: float = np.nan


def stratum_channel(runs: Runs, run: str) -> StratumFlag | None:
    """Whether a hard class of prompts has begun to move after the rest of the set levelled off.

    For every class and every pair of evaluations, "the class was solved at one rate up to here and at a higher one
    from there to there" is tested by the generalised likelihood ratio of two binomial rates. Counts are worth
    fewer trials than they are, by the design effect of a rate that wanders by `NOISE_SD` on the logit scale and
    persists from one evaluation to the next. A change counts if

    - the class was hard before, `HARD_RATE`;
    - all other prompts together had risen and levelled off before it, `LEVEL` (for a watch, nearly:
      `NEARLY_LEVEL`);
    - it at least doubles the odds, `LEAST_RATIO`, exceeds smooth growth, `GROWTH`, and for an alarm brings `LEAST_GAIN`;
    - it holds against every stretch of at least `LEAST_BEFORE` evaluations that ends where the change begins, so
      that a rate that has grown before is compared with what it has grown to.

    Where classes are single prompts they are pooled: those that none of the first `EARLY` evaluations solved are
    the hard class, and these evaluations are left out of the test, since the prompts were chosen by them.

    Parameters
    ----------
    runs : Runs
        All rows of the run are used: cut them (`Runs.window`) for what was known earlier.
    run : str
        Its name.

    Returns
    -------
    StratumFlag or None
        None if the run was not evaluated by class.

    Raises
    ------
    InputError
        If there is no such run.
    """
    rows = runs.table[runs.table["run"] == run]
    if rows.empty:
        raise InputError("no such run", found=run, expected=" | ".join(runs.names))
    of_classes = rows[rows["stratum"].notna()]
    if of_classes.empty:
        return None
    if runs.metric.kind not in _RATES:
        return _nothing(f"classes are not used: {runs.metric.kind} is not a share of attempts")
    counts = _counts(of_classes, runs)
    if counts is None:
        return _nothing(
            "classes are not used: how many attempts stand behind a class's pass rate is not known"
        )
    names = list(dict.fromkeys(counts["stratum"]))
    single = len(names) >= MANY and counts["trials"].max() <= FEW_TRIALS
    remark = ""
    if single:
        classes, remark = _pooled_prompts(counts), _rarely_solved(counts)
    else:
        whole = rows[rows["stratum"].isna()]
        classes = [_one_class(name, counts, whole, runs) for name in names]
    if (floor := runs.floors.get(run)) is not None:
        at_start = float(np.clip(runs.metric.to_fraction(floor.value), 0.0, 1.0))
        classes = [replace(one, floor=at_start) for one in classes]
    allowance = float(np.log(max(len(classes), 1)))
    found = [_strongest(one, runs.metric.chance) for one in classes] or [(_Evidence("", 0.0),) * 2]
    strict, loose = (max(level, key=lambda e: e.statistic) for level in zip(*found, strict=True))
    unit = runs.compute.unit
    if strict.statistic - allowance >= ALARM:
        return _flag("alarm", strict, unit, remark)
    return _flag("watch" if loose.statistic - allowance >= WATCH else "prior_only", loose, unit, remark)


def _nothing(sentence: str) -> StratumFlag:
    return StratumFlag("prior_only", "", np.nan, 0.0, sentence)


def _flag(state: State, best: _Evidence, unit: str, remark: str) -> StratumFlag:
    if best.statistic <= 0:
        return _nothing("no class that was near zero has begun to move after the first rise" + remark)
    change = (
        f"prompts of class {best.name!r}, solved in {best.before:.2%} of attempts before, "
        f"were solved in {best.after:.2%} from {best.since:.3g} {unit.replace('_', ' ')} on"
    )
    meaning = {
        "alarm": "a second rise has begun",
        "watch": "a second rise may have begun",
        "prior_only": "no more than noise explains",
    }[state]
    return StratumFlag(
        state,
        best.name,
        best.since,
        best.statistic,
        f"{change}: {meaning} ({best.statistic:.1f} nats){remark}",
    )


def _counts(rows: pd.DataFrame, runs: Runs) -> pd.DataFrame | None:
    """Columns ``stratum, compute, solved, trials``; None if trials are unknown."""
    trials = rows["trials"].astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    metric = runs.metric
    if np.isnan(trials).any() and rows["stratum"].nunique() == metric.prompts and metric.samples_per_prompt:
        # As many classes as prompts: each is one.
        trials = np.where(np.isnan(trials), metric.samples_per_prompt, trials)
    known = np.isfinite(trials) & (trials > 0)
    if not known.any():
        return None
    fraction = np.clip(metric.to_fraction(rows["value"].to_numpy(dtype=float)), 0.0, 1.0)
    table = pd.DataFrame(
        {
            "stratum": rows["stratum"].to_numpy(),
            "compute": rows["compute"].to_numpy(dtype=float),
            "solved": fraction * trials,
            "trials": trials,
        }
    )
    return table[known]


def _one_class(name: str, counts: pd.DataFrame, whole: pd.DataFrame, runs: Runs) -> _Class:
    own = counts[counts["stratum"] == name]
    others = counts[counts["stratum"] != name]
    if not others.empty:
        compute, rest = _together(others)
    elif not whole.empty:
        compute, rest = _without(own, whole, runs)
    else:
        compute, rest = np.empty(0), np.empty(0)
    at, solved, trials = (own[c].to_numpy(dtype=float) for c in ("compute", "solved", "trials"))
    return _Class(name, at, solved, trials, compute, rest)


def _together(counts: pd.DataFrame) -> tuple[Array, Array]:
    """Rate of several classes; those not evaluated at a compute are taken from the line between neighbours."""
    at = np.unique(counts["compute"].to_numpy())
    solved, trials = np.zeros(len(at)), 0.0
    for _, one in counts.groupby("stratum"):
        weight = float(one["trials"].median())
        solved += weight * np.interp(at, one["compute"], one["solved"] / one["trials"])
        trials += weight
    return at, solved / trials


def _without(own: pd.DataFrame, whole: pd.DataFrame, runs: Runs) -> tuple[Array, Array]:
    """The whole set less the only class, if the size of the set is known; the whole set otherwise."""
    compute = whole["compute"].to_numpy(dtype=float)
    rate = np.asarray(runs.metric.to_fraction(whole["value"].to_numpy(dtype=float)))
    sizes = whole["trials"].dropna()
    size = float(sizes.median()) if len(sizes) else float(runs.metric.trials or 0)
    share = float(own["trials"].median()) / size if size else 1.0
    if share >= 1:
        return compute, rate
    part = np.interp(compute, own["compute"], own["solved"] / own["trials"])
    return compute, (rate - share * part) / (1 - share)


def _pooled_prompts(counts: pd.DataFrame) -> list[_Class]:
    """The prompts that no early evaluation solved, from the first later evaluation on."""
    at = np.unique(counts["compute"].to_numpy())
    if len(at) <= EARLY:
        return []
    early = counts[counts["compute"] <= at[EARLY - 1]]
    solved = early.groupby("stratum")["solved"].sum()
    never = set(solved.index[solved < 0.5])
    hard = counts["stratum"].isin(never)
    rest = counts[~hard].groupby("compute")[["solved", "trials"]].sum()
    own = counts[hard & (counts["compute"] > at[EARLY - 1])]
    if own.empty or rest.empty:
        return []
    pooled = own.groupby("compute")[["solved", "trials"]].sum()
    return [
        _Class(
            NEVER_SOLVED,
            pooled.index.to_numpy(dtype=float),
            pooled["solved"].to_numpy(),
            pooled["trials"].to_numpy(),
            rest.index.to_numpy(dtype=float),
            (rest["solved"] / rest["trials"]).to_numpy(),
        )
    ]


def _rarely_solved(counts: pd.DataFrame) -> str:
    """A remark if the share of rarely solved prompts grows from the first third of evaluations to the last."""
    at = np.unique(counts["compute"].to_numpy())
    third = len(at) // 3
    if third < 1:
        return ""
    first, last = (
        counts[counts["compute"].isin(part)].groupby("stratum")[["solved", "trials"]].sum()
        for part in (at[:third], at[-third:])
    )
    shares, prompts = [], []
    for part in (first, last):
        shares.append(spectrum(part["solved"].round(), part["trials"], GROUP).share_hard)
        prompts.append(len(part))
    error = np.sqrt(sum(p * (1 - p) / n for p, n in zip(shares, prompts, strict=True)))
    if shares[1] - shares[0] <= 2 * error:
        return ""
    return (
        f"; the share of prompts solved in less than 1 of {GROUP} attempts, but not never, "
        f"has grown from {shares[0]:.0%} to {shares[1]:.0%}"
    )


def _strongest(one: _Class, chance: float) -> tuple[_Evidence, _Evidence]:
    """The change with the largest statistic among those that count for an alarm, and for a watch."""
    x, n = one.solved, one.trials
    if len(x) <= LEAST_BEFORE:
        return (_Evidence(one.name, 0.0),) * 2
    nats = change_statistic(x, n, one.compute)
    before = np.cumsum(x)[:-1] / np.cumsum(n)[:-1]
    rising = np.full(len(x), np.inf)
    for i in np.flatnonzero(nats.max(axis=1) > 0):
        if before[i - 1] - chance <= HARD_RATE:
            rising[i] = _still_rising(one, one.compute[i - 1])

    total_x, total_n = np.append(0.0, np.cumsum(x)), np.append(0.0, np.cumsum(n))
    with np.errstate(invalid="ignore"):
        after = (total_x[1:] - total_x[:-1, None]) / (total_n[1:] - total_n[:-1, None])

    def strongest(level: float, least_gain: float) -> _Evidence:
        gained = after - np.append(0.0, before)[:, None] >= least_gain
        counting = np.where((rising <= level)[:, None] & gained, nats, 0.0)
        if counting.max() <= 0:
            return _Evidence(one.name, 0.0)
        i, j = np.unravel_index(int(counting.argmax()), counting.shape)
        return _Evidence(
            one.name, float(nats[i, j]), float(one.compute[i]), float(before[i - 1]), float(after[i, j])
        )

    return strongest(LEVEL, LEAST_GAIN), strongest(NEARLY_LEVEL, 0.0)


def _still_rising(one: _Class, end: float) -> float:
    """Share of the other prompts' rise that the doubling of compute before `end` brought; inf before any rise."""
    known = one.rest_compute <= end
    compute, rate = one.rest_compute[known], one.rest[known]
    if len(rate) < LEAST_BEFORE:
        return np.inf
    start = float(rate[: min(LEAST_BEFORE, len(rate) // 2)].mean())
    if np.isfinite(one.floor):
        # Most of a rise may be over by the first evaluation: it began no later than at half of its compute.
        start = min(start, one.floor)
        compute, rate = np.append(compute[0] / 2, compute), np.append(one.floor, rate)
    latest = compute > end / np.sqrt(2)
    now = float(rate[latest].mean()) if latest.any() else float(rate[-1])
    earlier = (compute <= end / 2) & (compute > end / 2 / np.sqrt(2))
    half = float(rate[earlier].mean()) if earlier.any() else float(np.interp(end / 2, compute, rate))
    return (now - half) / (now - start) if now - start >= LEAST_RISE else np.inf


def change_statistic(
    solved: ArrayLike,
    trials: ArrayLike,
    compute: ArrayLike,
    noise_sd: float = NOISE_SD,
    lone_sd: float = LONE_SD,
) -> Array:
    """Evidence that a binomial rate went up, for every first and last evaluation at the higher rate.

    Parameters
    ----------
    solved, trials, compute : array_like, shape (points,)
        In order of compute (any unit).
    noise_sd, lone_sd : float
        Sd of the rate (logit) beyond the binomial, and of a higher rate that one evaluation says; with 0 counts are
        taken to be binomial.

    Returns
    -------
    ndarray, shape (points, points)
        Entry (i, j): log-likelihood ratio (nats) of one rate before evaluation i and a higher one from i to j over
        one rate for all, the least over stretches before i of `LEAST_BEFORE` evaluations or more. 0 where the
        odds went up by less than `LEAST_RATIO`, or than `GROWTH` explains.
    """
    x, n = np.asarray(solved, dtype=float), np.asarray(trials, dtype=float)
    points = len(x)
    total_x, total_n = np.append(0.0, np.cumsum(x)), np.append(0.0, np.cumsum(n))
    total_c = np.append(0.0, np.cumsum(np.asarray(compute, dtype=float)))
    result = np.zeros((points, points))
    for i in range(LEAST_BEFORE, points):
        length = np.array([*_stretches(i)])
        before = _worth(
            (total_x[i] - total_x[i - length])[:, None],
            (total_n[i] - total_n[i - length])[:, None],
            length[:, None],
            noise_sd,
        )
        ends = np.arange(i + 1, points + 1)
        sd = np.where(ends - i == 1, lone_sd, noise_sd)
        after = _worth(total_x[ends] - total_x[i], total_n[ends] - total_n[i], ends - i, sd)
        earlier = (total_c[i] - total_c[i - length]) / length
        later = (total_c[ends] - total_c[i]) / (ends - i)
        least = np.maximum(LEAST_RATIO, (later / earlier[:, None]) ** GROWTH)
        result[i, i:] = _ratio(*before, *after, least).min(axis=0)
    return result


def _stretches(before: int) -> Sequence[int]:
    """Lengths of stretches: from the least in steps of about a third, and all."""
    lengths, length = [], LEAST_BEFORE
    while length < before:
        lengths.append(length)
        length = max(length + 1, round(length * 4 / 3))
    return [*lengths, before]


def _worth(x: Array, n: Array, length: NDArray[np.int64], sd: float | Array) -> tuple[Array, Array]:
    """Counts and trials of a stretch, divided by their design effect."""
    rate = x / n
    m, r = length, PERSISTENCE
    # Variance of a mean of m values with correlation r**lag, over that of one: times m.
    together = 1 + 2 * r / (1 - r) * (1 - (1 - r**m) / (m * (1 - r)))
    effect = 1 + n / m * rate * (1 - rate) * sd**2 * together
    return x / effect, n / effect


def _ratio(x0: Array, n0: Array, x1: Array, n1: Array, least: Array) -> NDArray[np.floating]:
    """Log-likelihood ratio of two rates over one; 0 unless the second has at least `least` times the odds."""
    p0, p1, p = x0 / n0, x1 / n1, (x0 + x1) / (n0 + n1)
    nats = _fit(x0, n0, p0) + _fit(x1, n1, p1) - _fit(x0, n0, p) - _fit(x1, n1, p)
    up = p1 * (1 - p0) >= least * p0 * (1 - p1)
    return np.where(up & (p1 > p0), nats, 0.0)


def _fit(x: Array, n: Array, p: Array) -> NDArray[np.floating]:
    return xlogy(x, p) + xlogy(n - x, 1 - p)
