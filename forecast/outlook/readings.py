"""What the evaluations of one run, up to one point, say of a second move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forecast.curves import sigmoid
from forecast.inference.observations import Observations
from forecast.inference.particle import INTERVALS, sample_run
from forecast.inference.priors import Normal
from forecast.inference.run_prior import RunPrior
from forecast.inference.screening import noise_sd
from forecast.inference.weighing import MOVES, SMOOTH, Weighed, sample_once, weigh
from forecast.outlook.hazard import Hazard

MINIMUM = 8
"""Evaluations below which no second move is looked for: a curve of nine parameters would explain anything."""

STATES = ("prior_only", "watch", "alarm")
WATCH_P, ALARM_P = 0.3, 0.8
WATCH_LOG_BF, ALARM_LOG_BF = 1.0, 3.0

SLOW_NOISE = Normal(3.0, 0.6)
"""Logit of the noise's correlation one evaluation apart, in a run that wanders slowly: 90 % interval .88-.98."""

STEEP_TAIL = Normal(0.0, 1.0)
"""Log tail of a single rise as steep as a second move may be, which then levels off at its own pace."""

LOST, LOST_SD = 0.5, 5.0
"""A run whose last three evaluations have all lost this share of its gain, by this many noise sds, has collapsed
whatever any curve says."""

MOVED_SE = 2.0
"""Standard errors by which a run must lie above its lowest (below its best) before a rise (a collapse) is suspected."""

MOST_SE = 1.5
"""Monte-Carlo error of a log Bayes factor (nats) above which it raises no alarm."""

SPACING = 1.05
"""Cut-offs of a log that is read afterwards: every evaluation up to the twentieth, then evaluations whose number grows
by this factor, and the last. A log that is watched is read at every one."""

_QUIET = (
    0.5  # a first look below this log Bayes factor is left at that: one repeat errs by some tenths of a nat
)


@dataclass(frozen=True)
class Reading:
    """Evidence of a second move at one cut-off; log Bayes factors in nats, against a mixture of smooth families.

    Attributes
    ----------
    compute : float
        Of the last evaluation that was used.
    evaluations : int
    log_bf, log_bf_se : mapping of str to float
        By kind (``rise``, ``collapse``), with the Monte-Carlo standard error. After a first look that found nothing
        this is an upper bound, with an error of NaN.
    log_bf_guarded : mapping of str to float
        The smallest of the same against the mixture, a sigmoid in slow noise, and a Burr curve as steep as a second move.
    moved : mapping of str to bool
        By kind, whether the last three evaluations lie above the lowest three (below the highest), beyond scatter.
    lost : bool
        Whether each of the last three evaluations has lost half of the gain.
    begun : mapping of str to float
        Probability that a tenth of the move is made by now, given that there is one.
    """

    compute: float
    evaluations: int
    log_bf: Mapping[str, float]
    log_bf_se: Mapping[str, float]
    log_bf_guarded: Mapping[str, float]
    begun: Mapping[str, float]
    moved: Mapping[str, bool] = field(default_factory=lambda: dict.fromkeys(MOVES, True))
    lost: bool = False

    def p_onset(self, kind: str, hazard: Hazard, decades: float) -> float:
        """Probability that a move of this kind has begun, when it is looked for in so many decades; 1 once it is `lost`."""
        if kind == "collapse" and self.lost:
            return 1.0
        prior = hazard.within(decades)
        possible = [k for k in MOVES if prior[k] > 0]
        if kind not in possible:
            return 0.0
        top = max(0.0, *(self.log_bf[k] for k in possible))
        odds = {k: prior[k] * np.exp(self.log_bf[k] - top) for k in possible}
        none = (1 - sum(prior.values())) * np.exp(-top)
        return float(self.begun[kind] * odds[kind] / (none + sum(odds.values())))

    def state(self, kind: str, hazard: Hazard, decades: float) -> str:
        """``prior_only``, ``watch`` or ``alarm`` by the evidence of this cut-off alone.

        A move must show in the evaluations themselves, and have begun. An alarm must also hold against slow noise, which
        looks like the beginning of anything, and against a single rise as steep as a second move may be: a late first
        rise is none.
        """
        if not self.moved[kind] or hazard.within(decades)[kind] == 0:
            return "prior_only"
        if kind == "collapse" and self.lost:
            return "alarm"
        p = self.p_onset(kind, hazard, decades)
        begun = self.begun[kind] > 0.5
        sure = self.log_bf_guarded[kind] > ALARM_LOG_BF and self.log_bf_se[kind] <= MOST_SE
        if sure and begun and (p > ALARM_P or self.log_bf[kind] > ALARM_LOG_BF):
            return "alarm"
        suspicious = p > WATCH_P or (begun and self.log_bf[kind] > WATCH_LOG_BF)
        return "watch" if suspicious else "prior_only"


def cut_offs(evaluations: int) -> list[int]:
    """Numbers of evaluations at which a log is read, rising; those of a longer log begin with the same."""
    found, n = [], MINIMUM
    while n < evaluations:
        found.append(n)
        n = max(n + 1, int(np.ceil(n * SPACING)))
    return [*found, evaluations] if evaluations >= MINIMUM else []


def glance(observations: Observations, j: int, prior: RunPrior, seed: Sequence[int]) -> Reading:
    """Read the evidence of run `j`; where a first, cheap look finds nothing, no more is done."""
    first = {family: sample_once(observations, j, prior, family, seed) for family in MOVES.values()}
    bound: dict[str, float] = {}
    smooth = -np.inf
    for family, weight in SMOOTH.items():
        # Each smooth family that is added can only lower the Bayes factors.
        first[family] = sample_once(observations, j, prior, family, seed)
        smooth = float(np.logaddexp(smooth, first[family].log_evidence + np.log(weight)))
        bound = {kind: first[moved].log_evidence - smooth for kind, moved in MOVES.items()}
        if max(bound.values()) < _QUIET:
            compute, n = float(observations.fitted_upto[j]), int((observations.run == j).sum())
            return Reading(
                compute=compute,
                evaluations=n,
                log_bf=bound,
                log_bf_se=dict.fromkeys(MOVES, np.nan),
                log_bf_guarded=bound,
                begun=dict.fromkeys(MOVES, 0.0),
                **_last_three(observations, j),
            )
    weighed = weigh(observations, j, prior, seed=seed, close=(ALARM_LOG_BF,), first=first)
    return read(weighed, observations, j, prior, seed)


def read(
    weighed: Weighed, observations: Observations, j: int, prior: RunPrior, seed: Sequence[int]
) -> Reading:
    """Read the evidence of run `j` off its weighed families."""
    log_bf = {kind: weighed.log_bayes_factor(kind) for kind in MOVES}
    guarded = dict(log_bf)
    if max(log_bf.values()) > WATCH_LOG_BF:
        steep = replace(prior, log_exponent=prior.log_second_exponent, log_tail=STEEP_TAIL)
        for one_rise, other in (("sigmoid", replace(prior, persistence=SLOW_NOISE)), ("burr", steep)):
            single = sample_run(observations, j, other, family=one_rise, seed=seed, effort=INTERVALS)
            for kind, family in MOVES.items():
                against = weighed.particles[family].log_evidence - single.log_evidence
                guarded[kind] = min(guarded[kind], against)
    return Reading(
        compute=weighed.fitted_upto,
        evaluations=int((observations.run == j).sum()),
        log_bf=log_bf,
        log_bf_se={kind: weighed.log_bayes_factor_se(kind) for kind in MOVES},
        log_bf_guarded=guarded,
        begun={kind: weighed.begun(kind) for kind in MOVES},
        **_last_three(observations, j),
    )


def has_lost(observations: Observations, j: int) -> bool:
    """Whether each of the last three evaluations of run `j` has lost half of the gain, beyond its scatter.

    Where a run falls to nothing at once, or falls and recovers before it does, no family describes it, and noise takes
    the blame. The gain is that over the start, or over chance where the run started high.
    """
    return bool(_last_three(observations, j)["lost"])


def _last_three(observations: Observations, j: int) -> dict[str, Any]:
    """``moved`` and ``lost`` of a reading."""
    at = observations.run == j
    y = observations.fraction[at]
    means = np.convolve(y, np.ones(3) / 3, mode="valid")
    peak = float(means.max())
    start = observations.floor[j] if observations.floor_known[j] else y[: max(1, len(y) // 5)].mean()
    height = peak - observations.chance
    gain = peak - start if peak - start > 0.5 * height else height
    sd = noise_sd(y, float(np.median(observations.inverse_trials[at])))
    least = MOVED_SE * sd / np.sqrt(3)
    return {
        "moved": {
            "rise": bool(means[-1] - means.min() > least),
            "collapse": bool(peak - means[-1] > least),
        },
        "lost": bool(peak - y[-3:].max() > max(LOST * gain, LOST_SD * sd)),
    }


def cusum(
    observations: Observations, j: int, prior: RunPrior, seed: Sequence[int], *, stretch: float = 1.6
) -> float:
    """Cumulative sum of one-step forecast errors over the last stretch of compute.

    A sigmoid fitted to the evaluations before the last factor `stretch` of compute forecasts each later one from all
    before it. The one-sided sums of Page (1954, doi:10.1093/biomet/41.1-2.100) with an allowance of half a standard
    deviation answer slow noise less than a Bayes factor does, and moves too.

    Returns
    -------
    float
        The larger of the two sums where it stands now, in sds: positive upward, negative downward; NaN where
        fewer than three evaluations lie before or none within the stretch.
    """
    own = observations.only(j)
    early = own.log_compute < -np.log(stretch)
    if early.sum() < 3 or early.all():
        return float("nan")
    begin = int(early.sum())
    found = sample_run(_first(own, begin), 0, prior, family="sigmoid", seed=seed, effort=INTERVALS)
    errors = _one_step_errors(own, {name: value[0] for name, value in found.draws.items()}, begin)
    up = down = 0.0
    for error in errors:
        up, down = max(0.0, up + error - 0.5), max(0.0, down - error - 0.5)
    return float(up if up >= down else -down)


def _first(observations: Observations, n: int) -> Observations:
    """First `n` evaluations of a single run, midpoints relative to the last of them."""
    last = observations.log_compute[n - 1]
    per_evaluation = ("run", "log_compute", "fraction", "inverse_trials", "first", "distance")
    part = replace(observations, **{name: getattr(observations, name)[:n] for name in per_evaluation})
    return replace(part, log_compute=part.log_compute - last, log_reference=part.log_reference + last)


def _one_step_errors(
    own: Observations, draws: Mapping[str, NDArray[np.float64]], begin: int
) -> NDArray[np.float64]:
    """Standardised errors of the forecast of each evaluation from `begin` on, each from all evaluations before it.

    The draws are those of a fit to the evaluations before `begin`; they are weighted by what came since.
    """
    compute = np.exp(own.log_compute + own.log_reference[0])
    level = sigmoid(compute, *(draws[name][:, None] for name in ("floor", "ceiling", "exponent", "midpoint")))
    stationary = draws["noise"] ** 2
    mean, variance = np.zeros_like(stationary), stationary.copy()
    log_weight = np.zeros_like(stationary)
    errors = []
    for i in range(len(compute)):
        if i:
            kept = draws["persistence"] ** own.distance[i]
            mean, variance = kept * mean, stationary + kept**2 * (variance - stationary)
        total = np.maximum(variance + level[:, i] * (1 - level[:, i]) * own.inverse_trials[i], 1e-12)
        forecast = level[:, i] + mean
        residual = own.fraction[i] - forecast
        if i >= begin:
            weight = np.exp(log_weight - log_weight.max())
            weight /= weight.sum()
            expected = weight @ forecast
            spread = np.sqrt(weight @ (total + (forecast - expected) ** 2))
            errors.append((own.fraction[i] - expected) / spread)
            log_weight -= 0.5 * (residual**2 / total + np.log(total))
        gain = variance / total
        mean, variance = mean + gain * residual, variance * (1 - gain)
    return np.array(errors)
