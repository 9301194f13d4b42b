"""Does the reward still mean what it is for: proxy against held-out value, over-optimisation, a verifier's errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from forecast.errors import InputError
from forecast.outlook.precursors import precursors
from forecast.runs.table import Runs

Array = NDArray[np.float64]

LEVEL = 0.90
"""Probability that each interval holds what it is for; equal tails."""

MINIMUM = 3
"""Evaluations with a proxy below which its gap has no interval."""

MINIMUM_KL = 6
"""Evaluations with a KL above 0 below which the law of over-optimisation (three coefficients) is not fitted."""

DECIDED = 0.95
"""Probability from which a verdict is given."""

NEIGHBOURS = 2
"""Evaluations on either side whose mean says how large the error of one is."""

LATE = 3
"""Evaluations after the peak that must be there before a fall can be seen."""

_DRAWS = 4000
_SCATTERS = np.geomspace(0.001, 0.2, 20)
"""Sd of the gap at one evaluation beyond that of its trials (pass rate)."""

_WANDERS, _MOST_BEND = (0.1, 10), 0.3
"""Least sd of what the gap's random slope makes of it over the run, number of steps from there, and the most change of
the slope (sd) from one evaluation to the next."""

_CORRELATIONS = np.linspace(0.0, 0.95, 20)
"""Of the errors of two neighbouring evaluations."""

_ROUNDING = 1e-4
"""Sd of one logged value at least (pass rate): an exact fit would leave no noise to work with."""

_FORM = "tpr=.95,fpr=.02, or with the answers checked by hand tpr=.95/200,fpr=.02/300"


def reward_gap(runs: Runs, run: str) -> pd.DataFrame | None:
    """Gap between what training optimises and the metric, evaluation by evaluation.

    The gap is taken to be a smooth course plus independent errors. Its slope is a random walk over evaluations (a
    smoothing spline: Wecker & Ansley 1983, JASA 78:81); the error has the variance of the metric's Bernoulli trials,
    where they are known, and more, for the proxy. How much more and how fast the slope changes are averaged over by
    their likelihood, so that short runs have wide intervals. Prompts count as drawn anew for each evaluation; what a
    fixed set of them has by chance is in no interval. In simulations 90 % intervals covered 0.84 (15 evaluations, a gap
    that opens within four of them) to 0.98 (three evaluations).

    Parameters
    ----------
    runs : Runs
    run : str

    Returns
    -------
    pandas.DataFrame or None
        One row per evaluation with a proxy: ``compute`` (the table's unit); ``proxy`` and ``true``, as logged
        (fractions); ``gap``, the median of proxy minus true after smoothing, with its 90 % equal-tailed interval
        ``low`` to ``high``. None below `MINIMUM` evaluations.

    Raises
    ------
    InputError
        If there is no such run.
    """
    rows = _with_signal(runs, run, "proxy")
    if len(rows) < MINIMUM:
        return None
    proxy, true = rows["signal"].to_numpy(dtype=float), rows["true"].to_numpy(dtype=float)
    level, sd, weight = _smooth(proxy - true, _trial_variance(true, rows["trials"]))
    tail = (1 - LEVEL) / 2
    low, gap, high = (_mixture_quantile(level, sd, weight, at) for at in (tail, 0.5, 1 - tail))
    return pd.DataFrame(
        {"compute": rows["compute"], "proxy": proxy, "true": true, "gap": gap, "low": low, "high": high}
    )


def _trial_variance(true: Array, trials: pd.Series) -> Array:
    """Variance of each value by its Bernoulli trials; 0 where they are unknown."""
    number = trials.to_numpy(dtype=float, na_value=np.nan)
    # A rate of its own would make a value seem the surer the nearer it is to 0 by luck.
    rate = pd.Series(true).rolling(2 * NEIGHBOURS + 1, center=True, min_periods=1).mean().to_numpy()
    rate = (rate * number + 0.5) / (number + 1)
    return np.nan_to_num(rate * (1 - rate) / number)


def _with_signal(runs: Runs, run: str, signal: str) -> pd.DataFrame:
    """Evaluations of the whole set where a signal was logged: ``compute, signal, true`` (fraction), ``trials``."""
    if run not in runs.names:
        raise InputError("no such run", found=repr(run), expected=" | ".join(runs.names))
    mine = runs.signals[(runs.signals["run"] == run) & (runs.signals["signal"] == signal)]
    table = runs.overall()
    table = table[table["run"] == run][["compute", "value", "trials"]]
    rows = table.merge(mine[["compute", "value"]].rename(columns={"value": "signal"}), on="compute")
    return rows.assign(true=runs.metric.to_fraction(rows["value"])).reset_index(drop=True)


def _smooth(values: Array, known: Array) -> tuple[Array, Array, Array]:
    """Kalman smoother of a level whose slope is a random walk, for every pair of hyperparameters at once.

    Parameters
    ----------
    values, known : ndarray, shape (n,)
        Observations, and the known part of their error variance.

    Returns
    -------
    level, sd : ndarray, shape (n, pairs)
        Posterior of the level.
    weight : ndarray, shape (pairs,)
        Posterior of the hyperparameters, flat before in their logarithms.
    """
    least, steps = _WANDERS
    bends = np.geomspace(min(least * np.sqrt(3 / len(values) ** 3), _MOST_BEND / 2), _MOST_BEND, steps)
    extra, bend = (grid.ravel() ** 2 for grid in np.meshgrid(_SCATTERS, bends))
    move = np.array([[1.0, 1.0], [0.0, 1.0]])
    noise = bend[:, None, None] * np.array([[1 / 3, 1 / 2], [1 / 2, 1.0]])
    # A gap is within -1 to 1, and seldom moves by more than a third between two evaluations.
    mean, cov = np.zeros((len(extra), 2)), np.tile(np.diag([1.0, 0.1]), (len(extra), 1, 1))
    log_weight = np.zeros(len(extra))
    filtered, predicted = [], []
    for value, variance in zip(values, known, strict=True):
        predicted.append((mean, cov))
        total = cov[:, 0, 0] + variance + extra
        error = value - mean[:, 0]
        log_weight -= 0.5 * (np.log(total) + error**2 / total)
        gain = cov[:, :, 0] / total[:, None]
        mean = mean + gain * error[:, None]
        cov = cov - gain[:, :, None] * cov[:, None, 0, :]
        filtered.append((mean, cov))
        mean, cov = mean @ move.T, move @ cov @ move.T + noise
    weight = _normalised(log_weight)
    use = weight > 1e-6
    weight = weight[use] / weight[use].sum()
    filtered, predicted = ([(m[use], c[use]) for m, c in both] for both in (filtered, predicted))
    level, sd = np.empty((len(values), len(weight))), np.empty((len(values), len(weight)))
    mean, cov = filtered[-1]
    for k in range(len(values) - 1, -1, -1):
        if k < len(values) - 1:
            (before, spread), (next_mean, next_cov) = filtered[k], predicted[k + 1]
            back = spread @ move.T @ np.linalg.inv(next_cov)
            mean = before + (back @ (mean - next_mean)[:, :, None])[:, :, 0]
            cov = spread + back @ (cov - next_cov) @ back.transpose(0, 2, 1)
        level[k], sd[k] = mean[:, 0], np.sqrt(np.maximum(cov[:, 0, 0], 1e-18))
    return level, sd, weight


def _normalised(log_weight: Array) -> Array:
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _mixture_quantile(mean: Array, sd: Array, weight: Array, at: float) -> Array:
    """Quantile of mixtures of normals (one per row) on -1 to 1, by bisection."""
    low, high = np.full(len(mean), -1.0), np.full(len(mean), 1.0)
    for _ in range(24):
        middle = (low + high) / 2
        below = ndtr((middle[:, None] - mean) / sd) @ weight < at
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class OverOptimisation:
    """The metric as a function of the policy's distance from its reference, and where that peaks.

    Attributes
    ----------
    evaluations : int
        With a KL above 0; the evaluation before training is one more, at distance 0, where there is one.
    alpha, beta : float
        Pass rate per sqrt(nat): value = start + d (alpha - beta log d) with d = sqrt(KL). Posterior medians.
    alpha_interval, beta_interval : tuple of float
        90 % equal-tailed.
    peak : float
        d at which the metric is highest (median), exp(alpha / beta - 1); infinite where there is no peak.
    peak_interval : tuple of float
        90 % equal-tailed.
    latest : float
        d at the last evaluation.
    past : float
        Probability that the peak has been passed, if the law holds.
    verdict : str
        ``"past the peak"``, ``"not past the peak"`` or ``"not decided"``.
    sentence : str
        All that in words.
    """

    evaluations: int
    alpha: float
    alpha_interval: tuple[float, float]
    beta: float
    beta_interval: tuple[float, float]
    peak: float
    peak_interval: tuple[float, float]
    latest: float
    past: float
    verdict: str
    sentence: str


def over_optimisation(runs: Runs, run: str, rng: np.random.Generator) -> OverOptimisation | None:
    """Fit the law of over-optimisation in RL, R(d) = d (alpha - beta log d), to the metric.

    Gao, Schulman & Hilton 2022 (arXiv 2210.10760) found it for the gold reward, d the square root of the KL from the
    initial policy. A constant factor in the KL (per token or per answer) changes alpha, but neither the form nor the
    verdict. The value before training is a coefficient too; its evaluation, if there is one, lies at d = 0. Errors are
    normal and correlated from one evaluation to the next (order 1; the correlation is averaged over by its likelihood,
    Zellner & Tiao 1964, JASA 59:763), with flat priors on the coefficients.

    As a curve that flattens is also bent, "past the peak" needs more than the law: the values after its peak must
    themselves fall, with the same probability `DECIDED`. In simulations of the law 90 % intervals covered 0.85 to 0.99,
    the least with errors correlated by 0.8 in short runs. The KL is taken as exact.

    Parameters
    ----------
    runs : Runs
    run : str
    rng : numpy.random.Generator
        For the draws from the posterior.

    Returns
    -------
    OverOptimisation or None
        None below `MINIMUM_KL` evaluations with a KL above 0, or where they are all at one distance.

    Raises
    ------
    InputError
        If there is no such run or `rng` is no generator.
    """
    if not isinstance(rng, np.random.Generator):
        raise InputError("rng is no generator", found=repr(rng), fix="pass numpy.random.default_rng(seed)")
    rows = _with_signal(runs, run, "kl")
    rows = rows[rows["signal"] > 0]
    if len(rows) < MINIMUM_KL:
        return None
    d, value = np.sqrt(rows["signal"].to_numpy(dtype=float)), rows["true"].to_numpy(dtype=float)
    design = np.column_stack([np.ones_like(d), d, -d * np.log(d)])
    if (floor := runs.floors.get(run)) is not None:
        # d log d goes to 0 with d.
        design = np.vstack([[1.0, 0.0, 0.0], design])
        value = np.append(runs.metric.to_fraction(floor.value), value)
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return None
    errors = _Errors.posterior(design, value, rng)
    _, alpha, beta = errors.coefficients(design, value, rng).T
    with np.errstate(over="ignore", divide="ignore"):
        peak = np.where(beta > 0, np.exp(alpha / np.where(beta > 0, beta, 1.0) - 1), np.inf)
    past = float(np.mean(d[-1] > peak))
    top = float(np.median(peak))
    verdict, why = "not decided", ""
    if np.quantile(beta, (1 - LEVEL) / 2) <= 0:
        why = ": the curve need not have a peak"
    elif past <= 1 - DECIDED:
        verdict = "not past the peak"
    elif past >= DECIDED:
        late = d > top
        line = np.column_stack([np.ones_like(d), d])[late]
        seen = value[-len(d) :][late]
        if late.sum() < LATE or np.linalg.matrix_rank(line) < 2:
            why = f": fewer than {LATE} evaluations after the peak"
        elif np.mean(errors.coefficients(line, seen, rng)[:, 1] < 0) < DECIDED:
            why = ": the law has its peak there, but the values after it do not clearly fall"
        else:
            verdict = "past the peak"
    ends = _interval(peak)
    high = f"{ends[1]:.3g}" if np.isfinite(ends[1]) else "no end"
    where = (
        f"peaks at d = {top:.3g} (90 % interval {ends[0]:.3g} to {high})"
        if np.isfinite(top)
        else "has no peak in sight"
    )
    sentence = (
        f"over-optimisation: {verdict}{why}; by the law d (alpha − beta log d), d = sqrt(KL), the metric {where}; the run "
        f"is at d = {d[-1]:.3g}, beyond the peak with probability {past:.2f}"
    )
    return OverOptimisation(
        evaluations=len(d),
        alpha=float(np.median(alpha)),
        alpha_interval=_interval(alpha),
        beta=float(np.median(beta)),
        beta_interval=_interval(beta),
        peak=top,
        peak_interval=ends,
        latest=float(d[-1]),
        past=past,
        verdict=verdict,
        sentence=sentence,
    )


def _interval(draws: Array) -> tuple[float, float]:
    # Draws may be infinite: no interpolation.
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="inverted_cdf")
    return float(low), float(high)


@dataclass(frozen=True)
class _Errors:
    """Draws of the size and the correlation of the errors about a linear model.

    Attributes
    ----------
    place : ndarray of int, shape (draws,)
        Correlation, as a place in `_CORRELATIONS`.
    sd : ndarray, shape (draws,)
        Of what is new in one error.
    """

    place: NDArray[np.int64]
    sd: Array

    @classmethod
    def posterior(cls, design: Array, value: Array, rng: np.random.Generator) -> _Errors:
        """Draw both, given the values; the coefficients are integrated out."""
        x, y = _whitened(design, value)
        gram = x.transpose(0, 2, 1) @ x
        fit = np.linalg.solve(gram, x.transpose(0, 2, 1) @ y)
        freedom = len(value) - design.shape[1]
        rest = np.sum((y - x @ fit) ** 2, axis=(1, 2)) + len(value) * _ROUNDING**2
        # Jeffreys' prior of a correlation, (1 - rho^2)^(-1/2), cancels the density of the first error.
        log_weight = -0.5 * np.linalg.slogdet(gram)[1] - 0.5 * freedom * np.log(rest)
        place = rng.choice(len(_CORRELATIONS), size=_DRAWS, p=_normalised(log_weight))
        return cls(place, np.sqrt(rest[place] / rng.chisquare(freedom, _DRAWS)))

    def coefficients(self, design: Array, value: Array, rng: np.random.Generator) -> Array:
        """Draw the coefficients of a linear model with these errors, shape (draws, columns)."""
        x, y = _whitened(design, value)
        gram = x.transpose(0, 2, 1) @ x
        fit = np.linalg.solve(gram, x.transpose(0, 2, 1) @ y)[:, :, 0]
        root = np.linalg.cholesky(np.linalg.inv(gram))
        noise = rng.standard_normal((len(self.sd), design.shape[1], 1))
        return fit[self.place] + self.sd[:, None] * (root[self.place] @ noise)[:, :, 0]


def _whitened(design: Array, value: Array) -> tuple[Array, Array]:
    """Both without the correlation of neighbours, for each of `_CORRELATIONS`: (grid, n, columns) and (grid, n, 1)."""
    both = np.column_stack([design, value])
    rho = _CORRELATIONS[:, None, None]
    first = np.sqrt(1 - rho**2) * both[None, :1]
    white = np.concatenate([first, both[None, 1:] - rho * both[None, :-1]], axis=1)
    return white[:, :, :-1], white[:, :, -1:]


@dataclass(frozen=True)
class Verifier:
    """What a verifier accepts of right and of wrong answers.

    Attributes
    ----------
    tpr, fpr : float
        Share accepted of right answers, and of wrong ones; 0 <= fpr < tpr <= 1.
    n_correct, n_wrong : int or None
        Right and wrong answers, as labelled by hand, on which the two were measured; None: they are exact.
    """

    tpr: float
    fpr: float
    n_correct: int | None = None
    n_wrong: int | None = None

    def __post_init__(self) -> None:
        _check_rates(self.tpr, self.fpr)
        for name in ("n_correct", "n_wrong"):
            count = getattr(self, name)
            if count is not None and not (1 <= count < float("inf") and count == int(count)):
                raise InputError(
                    f"{name} must be a whole number of answers",
                    found=count,
                    expected="1 or more",
                    fix="leave it out if the rate is exact",
                )

    @classmethod
    def parse(cls, text: str) -> Verifier:
        """Read ``tpr=.95,fpr=.02`` or, with numbers of answers, ``tpr=.95/200,fpr=.02/300``.

        Raises
        ------
        InputError
            If it is neither, or the rates are none of a verifier.
        """
        rates: dict[str, float] = {}
        counts: dict[str, int] = {}
        for part in text.split(","):
            name, _, number = (piece.strip() for piece in part.partition("="))
            rate, slash, count = number.partition("/")
            if name not in ("tpr", "fpr") or name in rates:
                raise InputError("verifier not understood", found=repr(text), expected=_FORM)
            try:
                rates[name] = float(rate)
                if slash:
                    counts[name] = int(count)
            except ValueError as error:
                raise InputError(
                    "rate of a verifier is no number", found=repr(part), expected=_FORM
                ) from error
        if len(rates) < 2:
            raise InputError("verifier lacks a rate", found=repr(text), expected=_FORM)
        return cls(rates["tpr"], rates["fpr"], counts.get("tpr"), counts.get("fpr"))

    def __str__(self) -> str:
        parts = [("tpr", self.tpr, self.n_correct), ("fpr", self.fpr, self.n_wrong)]
        return ",".join(f"{name}={rate!r}" + (f"/{count}" if count else "") for name, rate, count in parts)

    def draws(self, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw both rates from their Beta posteriors (Jeffreys prior), given that fpr < tpr.

        Parameters
        ----------
        size : int
            Number of draws.
        rng : numpy.random.Generator

        Returns
        -------
        tpr, fpr : ndarray, shape (size,)

        Raises
        ------
        InputError
            If `size` is below 1.
        """
        if size < 1:
            raise InputError("number of draws must be at least 1", found=size)
        tpr, fpr = np.empty(size), np.empty(size)
        left = np.ones(size, dtype=bool)
        while left.any():
            for rates, rate, count in ((tpr, self.tpr, self.n_correct), (fpr, self.fpr, self.n_wrong)):
                rates[left] = (
                    rate
                    if count is None
                    else rng.beta(rate * count + 0.5, (1 - rate) * count + 0.5, int(left.sum()))
                )
            left = fpr >= tpr
        return tpr, fpr


def _check_rates(tpr: ArrayLike, fpr: ArrayLike) -> None:
    high, low = np.broadcast_arrays(np.asarray(tpr, dtype=float), np.asarray(fpr, dtype=float))
    bad = ~((low >= 0) & (low < high) & (high <= 1))
    if bad.any():
        raise InputError(
            "these are no rates of a verifier",
            found=f"tpr {high[bad].flat[0]:g}, fpr {low[bad].flat[0]:g}",
            expected="0 <= fpr < tpr <= 1",
            fix="give shares of answers accepted, tpr of the right ones and fpr of the wrong ones; a verifier that "
            "accepts as many wrong ones as right ones measures nothing",
        )


def corrected(observed: ArrayLike, tpr: ArrayLike, fpr: ArrayLike) -> Array:
    """Pass rate without the errors of the verifier that measured it (Rogan & Gladen 1978, Am. J. Epidemiol. 107:71).

    Parameters
    ----------
    observed : array_like
        Share accepted (0-1): fpr + (tpr - fpr) x true pass rate.
    tpr, fpr : array_like
        Share accepted of right and of wrong answers; broadcast with `observed`.

    Returns
    -------
    ndarray
        True pass rate, clipped to 0-1.

    Raises
    ------
    InputError
        If a share is outside 0-1 or not fpr < tpr.
    """
    _check_rates(tpr, fpr)
    share = np.asarray(observed, dtype=float)
    bad = ~((share >= 0) & (share <= 1))
    if bad.any():
        raise InputError(
            "share of accepted answers outside 0-1",
            found=f"{share[bad].flat[0]:g}",
            fix="map the metric to 0-1 first (Metric.to_fraction)",
        )
    low = np.asarray(fpr, dtype=float)
    return np.clip((share - low) / (np.asarray(tpr, dtype=float) - low), 0.0, 1.0)


def corrected_draws(observed_draws: ArrayLike, verifier: Verifier, rng: np.random.Generator) -> Array:
    """Carry draws of a measured pass rate over to the true one, with the uncertainty of the verifier's rates.

    Parameters
    ----------
    observed_draws : array_like, shape (draws, ...)
        Share accepted (0-1). All values of one draw get the same two rates.
    verifier : Verifier
    rng : numpy.random.Generator

    Returns
    -------
    ndarray
        Of the same shape.

    Raises
    ------
    InputError
        If a share is outside 0-1 or there is no draw.
    """
    draws = np.asarray(observed_draws, dtype=float)
    if draws.ndim == 0:
        raise InputError("draws need an axis of their own", found=repr(observed_draws))
    tpr, fpr = (rate.reshape(-1, *[1] * (draws.ndim - 1)) for rate in verifier.draws(draws.shape[0], rng))
    return corrected(draws, tpr, fpr)


def honesty(runs: Runs, run: str, seed: int = 0) -> list[str]:
    """Say whether the reward of a run can be believed.

    Parameters
    ----------
    runs : Runs
    run : str
    seed : int
        Of the draws behind the verdict on over-optimisation.

    Returns
    -------
    list of str
        Sentences: gap, alarm, over-optimisation; the last two only where there is something to say.

    Raises
    ------
    InputError
        If there is no such run.
    """
    number = len(_with_signal(runs, run, "proxy"))
    gap = reward_gap(runs, run)
    true = "training-prompt value" if runs.metric.split == "train" else "held-out value"
    if gap is not None:
        last = gap.iloc[-1]
        lines = [
            f"proxy {_plain(last['proxy'])}, {true} {_plain(last['true'])} at the last evaluation; their gap, smoothed over "
            f"evaluations, is {_plain(last['gap'])} (90 % interval {_plain(last['low'])} to {_plain(last['high'])}), "
            f"{_plain(gap['gap'].iloc[0])} at the first"
        ]
    elif number:
        lines = [
            f"proxy logged at {number} of the {MINIMUM} evaluations that a cross-check of the reward needs"
        ]
    else:
        lines = ["no proxy was recognised in the log: the reward cannot be cross-checked"]
    lines += [
        f"ALARM: the proxy rose while the {true} fell: {sign.sentence}"
        for sign in precursors(runs, run)
        if sign.name == "proxy_gap" and sign.fired
    ]
    if (found := over_optimisation(runs, run, np.random.default_rng(seed))) is not None:
        lines.append(found.sentence)
    return lines


def _plain(value: float) -> str:
    return f"{round(float(value), 2) + 0.0:.2f}".replace("-", "−")
