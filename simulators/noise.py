"""What stands between a curve and a logged value: wandering policies and finite evaluations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.ranges import Range, check_range

# Evaluations reuse one prompt set, so part of the binomial variance (which prompts were drawn) is the same
# each time and belongs to the curve: 0.7 of it is left between evaluations.
FIXED_PROMPTS = 0.7


@dataclass(frozen=True)
class Noise:
    """How a run wanders around its curve: a stationary first-order autoregressive series.

    Attributes
    ----------
    sd : tuple of float, optional
        Range (uniform) of the sd per run, pass rate; by default log-normal(log 0.006, 0.3).
    correlation : tuple of float
        Range (uniform) of the correlation between neighbouring evaluations; 0.9-0.97 is slow noise.
    """

    sd: Range | None = None
    correlation: Range = (0.3, 0.9)

    def __post_init__(self) -> None:
        if self.sd is not None:
            check_range("noise sd", self.sd, 0.0, 1.0)
        check_range("noise correlation", self.correlation, 0.0, 0.999)

    def draw(self, rng: np.random.Generator) -> tuple[float, float]:
        """Sd (pass rate) and correlation of one run."""
        sd = float(rng.lognormal(np.log(0.006), 0.3) if self.sd is None else rng.uniform(*self.sd))
        return sd, float(rng.uniform(*self.correlation))


def wander(
    points: int, sd: float, correlation: float, rng: np.random.Generator, *, after: float | None = None
) -> NDArray[np.float64]:
    """Stationary first-order autoregressive series with the given sd and lag-1 correlation.

    With `after` it goes on from that value.
    """
    steps = rng.normal(size=points)
    series = np.empty(points)
    last = None if after is None or sd == 0 else after / sd
    for i in range(points):
        series[i] = steps[i] if last is None else correlation * last + np.sqrt(1 - correlation**2) * steps[i]
        last = series[i]
    return sd * series


def evaluate(level: ArrayLike, trials: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Measured pass rates of a policy whose true pass rate is `level` (held within 0-1).

    A binomial of ``trials / 0.7`` draws, which has the variance of evaluations on a fixed prompt set.
    """
    draws = max(1, round(trials / FIXED_PROMPTS))
    return rng.binomial(draws, np.clip(np.asarray(level, dtype=float), 0.0, 1.0)) / draws
