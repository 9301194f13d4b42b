"""Signs in the training log of a collapse, or of reward hacking, that comes or has begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from forecast.runs.table import Runs

Array = NDArray[np.float64]

MINIMUM = 3
"""Evaluations with a signal below which nothing is said of it; the mean of the first ones is its early level."""

SUSTAINED = 2
"""Evaluations in a row that must show a sign: one odd batch is none."""

TRUNCATED = 0.10
"""Share of rollouts cut at the length limit. Cut rollouts are scored as wrong whatever they would have come to, so
training pushes on length instead of on answers; runs with more than a tenth of them were seen to go unstable
(ScaleRL, arXiv 2510.13786)."""

NO_VARIANCE, NO_VARIANCE_RISE = 0.90, 0.20
"""Share of prompt groups without a gradient, and its rise over the early level. A run that nears its ceiling gets to
a half or two thirds, small groups to more; nine tenths leave a tenth of the batch to learn from, and every sample
the same reward is what a policy with one trick gives. Without a rise it is a matter of the group size."""

ENTROPY_LEFT, ENTROPY_TIMES = 0.05, 2.0
"""Entropy as a share of its early level below which it has collapsed, and above which it has exploded. A run that
learns comes down to between a half and a tenth of it by itself, further on a task that it masters."""

WINDOW = 3
"""Evaluations whose mean is the best level so far; the mean of the last `SUSTAINED` is compared with it."""

SCATTERS, LEAST_MOVE = 4.0, 0.02
"""Standard errors, and pass rate, by which proxy and held-out value must have moved apart. The best of many
evaluations is by luck some two standard errors high."""

LEAST_SCATTER = 0.003
"""Of one evaluation (pass rate): a few lucky differences must not make a signal look noiseless."""

FALSE_ALARMS: dict[str, float] = {
    "truncation": 0.025,
    "zero_variance": 0.010,
    "entropy": 0.000,
    "proxy_gap": 0.010,
}
"""Share of 200 simulated runs without a transition in which each fires (``rlforecast study precursors --seed 0``); of
the gap with the reward in training as the proxy, which alarms more often than a proxy on held-out prompts."""


@dataclass(frozen=True)
class Precursor:
    """One sign, and whether it has shown.

    Attributes
    ----------
    name : str
        A key of `FALSE_ALARMS`.
    fired : bool
        Whether it has shown at any evaluation so far; a sign that went away again stays fired.
    since : float
        Compute (the run table's unit) at which it first did; NaN if it has not.
    value : float
        Latest value: a share (0-1), nats, or, of the gap, proxy minus held-out value (pass rate).
    sentence : str
        All that in words.
    """

    name: str
    fired: bool
    since: float
    value: float
    sentence: str


def precursors(runs: Runs, run: str, upto: float | None = None) -> list[Precursor]:
    """Look for signs of a collapse or of reward hacking, evaluation by evaluation.

    Parameters
    ----------
    runs : Runs
    run : str
    upto : float, optional
        Compute up to which the log is looked at.

    Returns
    -------
    list of Precursor
        One per sign whose signal was logged at `MINIMUM` evaluations or more. What is said of an evaluation depends
        on nothing that came after it.

    Raises
    ------
    InputError
        If there is no such run.
    """
    if run not in runs.names:
        raise InputError("no such run", found=run, expected=" | ".join(runs.names))
    mine = runs.signals[runs.signals["run"] == run]
    value = runs.overall().query("run == @run").set_index("compute")["value"]
    if upto is not None:
        mine, value = mine[mine["compute"] <= upto], value[value.index <= upto]
    found = []
    for signal, (name, judge) in _RULES.items():
        rows = mine[mine["signal"] == signal]
        if len(rows) < MINIMUM:
            continue
        held_out = runs.metric.to_fraction(value.reindex(rows["compute"]).to_numpy(dtype=float))
        shown, latest, sign = judge(rows["value"].to_numpy(dtype=float), held_out)
        compute = rows["compute"].to_numpy(dtype=float)
        found.append(_precursor(name, shown, compute, latest, sign, runs.compute.unit))
    return found


@dataclass(frozen=True)
class _Sign:
    """A sign in words: what was found, and the rule, as it reads before "since ..."."""

    finding: str
    rule: str


def _precursor(
    name: str, shown: NDArray[np.bool_], compute: Array, latest: float, sign: _Sign, unit: str
) -> Precursor:
    fired = bool(shown.any())
    since = float(compute[np.argmax(shown)]) if fired else float("nan")
    if not fired:
        return Precursor(name, False, since, latest, f"{sign.finding} (no alarm: not {sign.rule})")
    at = f"{_amount(since)} {unit}"
    when = f"{sign.rule} since {at}" if shown[-1] else f"was {sign.rule} at {at}"
    rate = FALSE_ALARMS[name]
    often = "under 1 %" if rate < 0.01 else f"{100 * rate:.0f} %"
    sentence = f"{sign.finding} ({when}); fires in {often} of simulated runs without a transition"
    return Precursor(name, True, since, latest, sentence)


def _truncation(value: Array, _: Array) -> tuple[NDArray[np.bool_], float, _Sign]:
    shown = _sustained(value > TRUNCATED)
    finding = f"{_percent(value[-1])} of rollouts were cut at the length limit"
    return shown, float(value[-1]), _Sign(finding, f"above {_percent(TRUNCATED)}")


def _zero_variance(value: Array, _: Array) -> tuple[NDArray[np.bool_], float, _Sign]:
    early = float(value[:MINIMUM].mean())
    shown = _later(_sustained((value > NO_VARIANCE) & (value > early + NO_VARIANCE_RISE)))
    finding = f"{_percent(value[-1])} of prompt groups gave no gradient, {_percent(early)} at first"
    return shown, float(value[-1]), _Sign(finding, f"above {_percent(NO_VARIANCE)} and risen")


def _entropy(value: Array, _: Array) -> tuple[NDArray[np.bool_], float, _Sign]:
    early = float(value[:MINIMUM].mean())
    low = _later(_sustained(value < ENTROPY_LEFT * early))
    high = _later(_sustained(value > ENTROPY_TIMES * early))
    finding = f"entropy was {value[-1]:.2g} nats, {early:.2g} at first"
    # The first of the two is what it fired for; where neither did, both are what was looked for.
    if not (low | high).any():
        rule = f"below {_percent(ENTROPY_LEFT)} of that or above {ENTROPY_TIMES:g} times that"
        return low, float(value[-1]), _Sign(finding, rule)
    collapsed = low.any() and (not high.any() or np.argmax(low) < np.argmax(high))
    rule = f"below {_percent(ENTROPY_LEFT)} of that" if collapsed else f"above {ENTROPY_TIMES:g} times that"
    return (low if collapsed else high), float(value[-1]), _Sign(finding, rule)


def _proxy_gap(proxy: Array, held_out: Array) -> tuple[NDArray[np.bool_], float, _Sign]:
    """Proxy up and held-out value down since its best evaluations; a gap that was always there is none."""
    shown = np.zeros(len(proxy), dtype=bool)
    first = WINDOW + SUSTAINED - 1  # the first evaluation with a window before the latest ones
    both = [(values, _moving_mean(values)) for values in (proxy, held_out)]
    change = (0.0, 0.0)
    for k in range(first, len(proxy)):
        best = int(np.argmax(both[1][1][: k - first + 1]))
        moves = []
        for values, means in both:
            move = float(values[k - SUSTAINED + 1 : k + 1].mean() - means[best])
            error = _scatter(values[: k + 1]) * np.sqrt(1 / WINDOW + 1 / SUSTAINED)
            moves.append((move, max(LEAST_MOVE, SCATTERS * error)))
        (rise, least_rise), (drop, least_drop) = moves
        shown[k] = rise > least_rise and -drop > least_drop
        change = rise, drop
    gap = float(proxy[-1] - held_out[-1])
    if len(proxy) > first:
        finding = (
            f"since the best held-out value the proxy moved by {change[0]:+.2f}, "
            f"the held-out value by {change[1]:+.2f}"
        )
    else:
        finding = f"the proxy was {abs(gap):.2f} {'above' if gap >= 0 else 'below'} the held-out value"
    return shown, gap, _Sign(finding, "moving apart")


_RULES: dict[str, tuple[str, Callable[[Array, Array], tuple[NDArray[np.bool_], float, _Sign]]]] = {
    "truncation": ("truncation", _truncation),
    "zero_variance": ("zero_variance", _zero_variance),
    "entropy": ("entropy", _entropy),
    "proxy": ("proxy_gap", _proxy_gap),
}


def _sustained(shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where `SUSTAINED` evaluations in a row, this one the last, show a sign."""
    both = shown.copy()
    for back in range(1, SUSTAINED):
        both[:back] = False
        both[back:] &= shown[:-back]
    return both


def _later(shown: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The same without the evaluations that the early level is made of."""
    return shown & (np.arange(len(shown)) >= MINIMUM)


def _moving_mean(values: Array) -> Array:
    """Means of `WINDOW` values in a row, by the first of them."""
    return np.convolve(values, np.full(WINDOW, 1 / WINDOW), "valid") if len(values) >= WINDOW else values[:0]


def _scatter(values: Array) -> float:
    """Robust sd of one value about a smooth course, from differences of neighbours."""
    difference = np.diff(values)
    mad = float(np.median(np.abs(difference - np.median(difference))))
    return max(1.4826 * mad / np.sqrt(2), LEAST_SCATTER)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else f"{100 * share:.1g} %"


def _amount(compute: float) -> str:
    return f"{compute:,.0f}" if 1000 <= compute < 1e7 else f"{compute:.3g}"
