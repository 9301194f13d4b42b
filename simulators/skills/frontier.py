"""Where the best of several splits lies as the budget grows, and how well worlds decide it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forecast.errors import InputError
from simulators.skills.population import Array

if TYPE_CHECKING:
    import pandas as pd

INTERVAL = 0.9
"""Probability of every interval."""

DECIDED = 0.9
"""Probability from which on something is taken as found."""

CHOICE = (
    "budget",
    "prompts",
    "rollouts",
    "steps",
    "learning_rate",
    "value",
    "value_low",
    "value_high",
    "probability",
    "candidates",
    "loss_half",
    "loss_double",
    "verdict",
)
"""Columns of `frontier` that answer which split to take."""

PARAMETERS = ("rise", "slope", "midpoint", "base")
_STEEPEST = 50.0
_FLAT_FOR = 4.0
_TIE = 1e-12


@dataclass(frozen=True)
class FrontierFit:
    """The published form of best rollouts per prompt G* against budget C, fitted.

    log2 G* = rise / (1 + exp(-slope (log10 C - midpoint))) + base; L, k, log10 C0 and b of IsoCompute
    (Cheng et al. 2026, arXiv 2603.12151).

    Attributes
    ----------
    parameters : pandas.DataFrame
        One row per parameter and one for the ``plateau``, rise + base: ``parameter``, ``value``, ``low``, ``high`` (90 %
        over resampled worlds), ``identified``, ``reason`` (why not).
    rises : float
        Share of resamples in which G* is larger by a factor of 2 or more at the largest budget than at the smallest.
    saturates : float
        Share in which it also has stayed within half a doubling of its plateau over the last fourfold of budgets, and
        the plateau lies below the largest G tried.
    """

    parameters: pd.DataFrame
    rises: float
    saturates: float

    def log2_rollouts(self, budget: Array) -> Array:
        """Fitted log2 G* at these budgets."""
        return _curve(np.log10(budget), self.parameters["value"].to_numpy()[: len(PARAMETERS)])


def frontier(
    table: pd.DataFrame, metric: str, *, reference: int = 8, resamples: int = 1_000, seed: int = 0
) -> pd.DataFrame:
    """Best split of every budget; one row each.

    The split that does best on some worlds looks better there than it is. Values and gains are therefore of splits
    chosen on all worlds but one and measured on that one, in turn.

    Parameters
    ----------
    table : pandas.DataFrame
        See `simulators.skills.allocation.spend`; at least 2 worlds.
    metric : str
    reference : int
        Rollouts per prompt that the best split is compared with.
    resamples : int
        Of worlds, with replacement.
    seed : int

    Returns
    -------
    pandas.DataFrame
        ``budget``, ``metric``; ``prompts``, ``rollouts``, ``steps``, ``learning_rate`` of the best split; ``value``, ``value_low``,
        ``value_high``, and ``value_in_sample`` measured where it was chosen; ``log2_rollouts`` with ``_low`` and
        ``_high``; ``gain`` over the best split with `reference` rollouts (NaN if there is none), and ``gain_stopped`` if
        both may stop at any smaller budget, with ``_low`` and ``_high``;
        ``probability`` that G is the best and ``candidates``, all with 5 % or more; ``loss_half`` and ``loss_double``
        in-sample when G is half or double with the same prompts (NaN if not tried); ``verdict``: ``not decided`` if
        `probability` is below .9, else whether the best split lies at an edge of those tried, where others beyond may be
        better. Intervals are 90 %: Student's t over worlds, for `log2_rollouts` over resamples.
    """
    import pandas as pd

    rows = []
    seen: list[Array] = []
    seen_reference: list[Array] = []
    for budget, splits, value, means in _resampled(table, metric, resamples, seed):
        best = int(np.argmax(value.mean(axis=1)))
        prompts, rollouts = (int(number) for number in splits[best, :2])
        seen.append(value)
        seen_reference.append(value[splits[:, 1] == reference])
        honest = _elsewhere(value)
        gain = honest - _elsewhere(seen_reference[-1])
        gain_stopped = _elsewhere(np.concatenate(seen)) - _elsewhere(np.concatenate(seen_reference))
        chance = _chances(splits[:, 1], means)
        probability = chance[rollouts]
        low, high = _quantiles(np.log2(splits[np.argmax(means, axis=1), 1]))
        rows.append(
            {
                "budget": budget,
                "metric": metric,
                "prompts": prompts,
                "rollouts": rollouts,
                "steps": budget // (prompts * rollouts),
                "learning_rate": float(splits[best, 2]),
                **_with_interval("value", honest),
                "value_in_sample": float(value[best].mean()),
                "log2_rollouts": float(np.log2(rollouts)),
                "log2_rollouts_low": low,
                "log2_rollouts_high": high,
                **_with_interval("gain", gain),
                **_with_interval("gain_stopped", gain_stopped),
                "probability": probability,
                "candidates": ", ".join(str(g) for g, p in chance.items() if p >= 0.05),
                "loss_half": _loss(splits, value, prompts, rollouts / 2),
                "loss_double": _loss(splits, value, prompts, rollouts * 2),
                "verdict": _verdict(splits, best, probability),
            }
        )
    return pd.DataFrame(rows)


def fit_frontier(table: pd.DataFrame, metric: str, *, resamples: int = 300, seed: int = 0) -> FrontierFit:
    """Fit the published form to the best rollouts per prompt of every budget, by bounded least squares.

    Parameters
    ----------
    table, metric, resamples, seed
        As for `frontier`; at least 4 budgets.
    """
    import pandas as pd

    budgets, best, drawn = [], [], []
    for budget, splits, value, means in _resampled(table, metric, resamples, seed):
        budgets.append(budget)
        best.append(np.log2(splits[np.argmax(value.mean(axis=1)), 1]))
        drawn.append(np.log2(splits[np.argmax(means, axis=1), 1]))
    if len(budgets) < len(PARAMETERS):
        raise InputError("too few budgets to fit", found=len(budgets), expected=f"{len(PARAMETERS)} or more")
    x = np.log10(budgets)
    smallest, largest = (float(np.log2(table["rollouts"].agg(end))) for end in ("min", "max"))
    point = _fit(x, np.array(best), largest)
    # Few different outcomes come out of many resamples.
    samples, inverse = np.unique(np.array(drawn).T, axis=0, return_inverse=True)
    fits = np.array([_fit(x, sample, largest) for sample in samples])[inverse.ravel()]
    plateau = fits[:, 0] + fits[:, 3]
    before_end = np.array([_curve(x[-1] - np.log10(_FLAT_FOR), fit) for fit in fits])
    rising = np.array(drawn[-1]) - np.array(drawn[0]) >= 1
    saturated = rising & (before_end >= plateau - 0.5) & (plateau <= largest - 0.5)
    rises, saturates = float(rising.mean()), float(saturated.mean())

    flat = "" if rises >= DECIDED else f"G* rises with probability {rises:.2f}"
    open_ended = flat or (
        "" if saturates >= DECIDED else f"a plateau below the largest G, with probability {saturates:.2f}"
    )
    at_edge = "" if best[0] > smallest else "the smallest budget takes the smallest G tried"
    # From a tenth to nine tenths of the rise are 4.4 / slope decades.
    steepest = 2 * np.log(9) / np.diff(x).min()
    steep = "" if max(point[1], _quantiles(fits[:, 1])[1]) < steepest else "the rise lies between two budgets"
    reasons = {
        "rise": open_ended or at_edge,
        "slope": open_ended or steep,
        "midpoint": open_ended,
        "base": at_edge,
        "plateau": open_ended,
    }
    found = dict(zip(PARAMETERS, point, strict=True)) | {"plateau": point[0] + point[3]}
    spread = dict(zip(PARAMETERS, fits.T, strict=True)) | {"plateau": plateau}
    lines = []
    for name, reason in reasons.items():
        low, high = _quantiles(spread[name])
        lines.append(
            {
                "parameter": name,
                "value": float(found[name]),
                "low": low,
                "high": high,
                "identified": not reason,
                "reason": reason,
            }
        )
    return FrontierFit(pd.DataFrame(lines), rises, saturates)


def _resampled(
    table: pd.DataFrame, metric: str, resamples: int, seed: int
) -> Iterator[tuple[int, Array, Array, Array]]:
    """Of every budget: splits [S, 3] with their learning rates, values [S, W], means over resampled worlds [resamples, S].

    The same resamples serve all budgets: what happens along the budgets happens in one set of worlds.
    """
    own = table[table["metric"] == metric]
    wide = own.pivot(
        index=["budget", "prompts", "rollouts", "learning_rate"], columns="world", values="value"
    )
    worlds = wide.shape[1]
    if worlds < 2:
        raise InputError("too few worlds to choose in some and measure in others", found=worlds, expected="2")
    rng = np.random.default_rng(seed)
    weights = rng.multinomial(worlds, np.full(worlds, 1 / worlds), resamples) / worlds
    keys, values = np.array(wide.index.to_list()), wide.to_numpy(dtype=float)
    for budget in np.unique(keys[:, 0]).tolist():
        here = keys[:, 0] == budget
        yield int(budget), keys[here, 1:], values[here], weights @ values[here].T


def _elsewhere(value: Array) -> Array:
    """In each world, the value [W] of the candidate that is the best in the mean of all others; NaN if there is none."""
    if not len(value):
        return np.full(value.shape[1], np.nan)
    chosen = np.argmax(value.sum(axis=1, keepdims=True) - value, axis=0)
    return value[chosen, np.arange(value.shape[1])]


def _verdict(splits: Array, best: int, probability: float) -> str:
    """Whether G is decided, and whether the best split lies inside of what was tried."""
    if probability < DECIDED:
        return "not decided"
    names = ("P", "G", "learning rate")
    tried = [np.unique(splits[:, k]) for k in range(len(names))]
    edges = [
        name
        for k, name in enumerate(names)
        if tried[k].size > 1 and splits[best, k] in (tried[k][0], tried[k][-1])
    ]
    return f"at the edge of what was tried: {', '.join(edges)}" if edges else "decided"


def _loss(splits: Array, value: Array, prompts: int, rollouts: float) -> float:
    """What the best split gains over the best with these prompts and rollouts; NaN where there is none."""
    means = value.mean(axis=1)
    others = means[(splits[:, 0] == prompts) & (splits[:, 1] == rollouts)]
    return float(means.max() - others.max()) if others.size else float("nan")


def _chances(rollouts: Array, means: Array) -> dict[int, float]:
    """Share of resamples in which each G is the best; ties share."""
    groups = np.unique(rollouts)
    of_group = np.stack([means[:, rollouts == group].max(axis=1) for group in groups])
    first = of_group >= of_group.max(axis=0) - _TIE
    return dict(
        zip(groups.astype(int).tolist(), (first / first.sum(axis=0)).mean(axis=1).tolist(), strict=True)
    )


def _with_interval(name: str, value: Array) -> dict[str, float]:
    from scipy.stats import t

    mean = float(value.mean())
    half = float(t.ppf((1 + INTERVAL) / 2, value.size - 1) * value.std(ddof=1) / np.sqrt(value.size))
    return {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}


def _quantiles(drawn: NDArray[np.float64]) -> tuple[float, float]:
    tail = (1 - INTERVAL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def _curve(log10_budget: Array, parameters: Array) -> Array:
    from scipy.special import expit

    rise, slope, midpoint, base = parameters
    return rise * expit(slope * (log10_budget - midpoint)) + base


def _fit(x: Array, y: Array, largest: float) -> Array:
    from scipy.optimize import least_squares

    low = np.array([0.0, 0.1, x[0] - 1, 0.0])
    high = np.array([2 * largest, _STEEPEST, x[-1] + 1, largest])
    rise, base = float(np.ptp(y)), float(y.min())
    starts = [np.array([rise, slope, middle, base]) for slope in (2.0, 6.0, 20.0) for middle in x]
    start = min(starts, key=lambda parameters: float(np.sum((_curve(x, parameters) - y) ** 2)))
    inside = np.clip(start, low + 1e-6, high - 1e-6)

    def residuals(parameters: Array) -> Array:
        return _curve(x, parameters) - y

    return least_squares(residuals, inside, bounds=(low, high)).x
