"""What it is worth to look before choosing: run some options a little further, then decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_DRAWS = 4000
"""Draws used: half of them are taken as the truth, the other half as what is known."""

FEWEST_EFFECTIVE = 30.0
"""Effective draws (median over simulated outcomes) below which posterior means are too coarse to choose by."""


@dataclass(frozen=True)
class Outcome:
    """What an evaluation would show: truth and noise by draw, both shape (S,), as fractions."""

    truth: Array
    sd: Array


@dataclass(frozen=True)
class Worth:
    """Worth of looking first.

    Attributes
    ----------
    gain, gain_se : float
        Expected utility of experiment and choice less that of choosing now, and its Monte-Carlo standard error.
    p_change : float
        Probability that the choice is another one after the experiment.
    effective : float
        Effective draws behind a posterior after the experiment, median.
    """

    gain: float
    gain_se: float
    p_change: float
    effective: float

    @property
    def computed(self) -> bool:
        """Whether enough draws agree with a typical outcome to choose by."""
        return self.effective >= FEWEST_EFFECTIVE


def worth_of_looking(
    outcomes: Sequence[Outcome], now: Array, later: Array, rng: np.random.Generator
) -> Worth:
    """Simulate the experiment and what would be chosen after it (pre-posterior analysis).

    For every draw taken as the truth an outcome is simulated, the other draws are weighted by its likelihood, the
    option with the highest weighted mean is chosen, and the truth pays for it. Truths and weighted draws are disjoint
    halves, which then change roles: a draw that is weighted by its own outcome would see itself as too likely.

    Parameters
    ----------
    outcomes : sequence of Outcome
        One per evaluation that the experiment yields, S draws each, joint over outcomes and utilities.
    now : ndarray, shape (S, J)
        Utility of each option if chosen now.
    later : ndarray, shape (S, J)
        Utility if chosen after the experiment, less what the experiment uses up.
    rng : numpy.random.Generator

    Returns
    -------
    Worth

    References
    ----------
    Raiffa & Schlaifer 1961 (expected value of sample information).
    """
    order = rng.permutation(len(now))[:MOST_DRAWS]
    halves = np.array_split(order, 2)
    gains, changed, effective = [], [], []
    for truths, others in (halves, halves[::-1]):
        log_weight = np.zeros((len(truths), len(others)))
        for one in outcomes:
            seen = one.truth[truths] + one.sd[truths] * rng.standard_normal(len(truths))
            z = (seen[:, None] - one.truth[others]) / one.sd[others]
            log_weight -= 0.5 * z**2 + np.log(one.sd[others])
        weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        # By the same draws as the choice afterwards: else ties that they break differently would count as changes.
        leader = int(np.argmax(now[others].mean(axis=0)))
        chosen = np.argmax(weight @ later[others], axis=1)
        gains.append(later[truths, chosen] - now[truths, leader])
        changed.append(chosen != leader)
        effective.append(1 / np.sum(weight**2, axis=1))
    gain = np.concatenate(gains)
    return Worth(
        gain=float(gain.mean()),
        gain_se=float(gain.std(ddof=1) / np.sqrt(len(gain))),
        p_change=float(np.concatenate(changed).mean()),
        effective=float(np.median(np.concatenate(effective))),
    )
