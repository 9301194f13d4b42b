"""Which runs can carry a forecast at all, before any time is spent on sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from forecast.inference.observations import Observations
from forecast.runs.table import Metric

MINIMUM_EVALUATIONS = 3
_RISE_IN_SE = 2.5  # a rise smaller than this many standard errors is not one
_FALL_IN_SD = 5.0  # a fall from the peak larger than this many noise sds ...
_FALL_OF_RISE = 0.25  # ... and than this share of the peak's height above the start is a collapse


def screen(observations: Observations, metric: Metric | None = None) -> dict[str, str]:
    """Return run -> reason for every run that a rising curve cannot describe.

    Refused are runs with fewer than three evaluations, without a measurable rise (the forecast would be the
    prior), and that end well below their peak (the sigmoid cannot fall, so its noise would swallow the fall).
    """
    refused = {}
    for j, name in enumerate(observations.runs):
        at = observations.run == j
        reason = _reason(
            observations.fraction[at],
            float(np.median(observations.inverse_trials[at])),
            (observations.floor[j], observations.floor_se[j]) if observations.floor_known[j] else None,
            metric or Metric("pass rate"),
        )
        if reason:
            refused[name] = reason
    return refused


def _reason(
    y: NDArray[np.float64], inverse_trials: float, floor: tuple[float, float] | None, metric: Metric
) -> str:
    n = len(y)
    if n < MINIMUM_EVALUATIONS:
        return f"only {n} evaluation{'s' * (n != 1)} in the fitted range, at least {MINIMUM_EVALUATIONS} are needed"
    noise = noise_sd(y, inverse_trials)
    third = max(1, n // 3)
    start, start_se = floor or (float(np.mean(y[:third])), noise / np.sqrt(third))
    end, end_se = float(np.mean(y[-third:])), noise / np.sqrt(third)
    smooth = np.convolve(y, np.ones(min(3, n)) / min(3, n), mode="valid")
    peak = max(float(smooth.max()), start)
    last = float(smooth[-1])
    fall = peak - last

    def shown(fraction: float) -> str:
        return f"{metric.from_fraction(fraction):.4g}"

    if fall > _FALL_IN_SD * noise / np.sqrt(min(3, n)) and fall > _FALL_OF_RISE * max(
        peak - min(start, float(smooth.min())), 0.0
    ):
        return f"collapsed or declining: from {shown(peak)} at its best to {shown(last)} at the end, which a rising curve cannot describe"
    if end - start <= _RISE_IN_SE * float(np.hypot(start_se, end_se)):
        return (
            f"flat: {shown(start)} at the start and {shown(end)} at the end of {n} evaluations is no rise beyond their "
            "scatter, so a forecast would only repeat the prior"
        )
    return ""


def noise_sd(y: NDArray[np.float64], inverse_trials: float) -> float:
    """Noise of one evaluation: from first differences (half from the data's median), at least binomial."""
    differences = np.diff(y)
    robust = float(np.median(np.abs(differences - np.median(differences)))) * 1.4826 / np.sqrt(2)
    level = float(np.clip(np.mean(y), 0.0, 1.0))
    return max(robust, float(np.sqrt(level * (1 - level) * inverse_trials)), 1e-6)
