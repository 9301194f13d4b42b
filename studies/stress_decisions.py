"""Whether to pay for more compute, and what a wrong answer costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Decision:
    """Pay for the compute from now to the horizon, or stop.

    Attributes
    ----------
    gain : float
        Mean forecast of the change of the true pass rate.
    worth : float
        Change that justifies the compute. Like the gain a fraction.
    """

    gain: float
    worth: float

    @property
    def pays(self) -> bool:
        """Whether the forecast is worth the compute."""
        return self.gain >= self.worth

    def wrong(self, true_gain: ArrayLike) -> NDArray[np.bool_]:
        """Whether somebody who knew the true gain would have decided otherwise."""
        return (np.asarray(true_gain, dtype=float) >= self.worth) != self.pays

    def regret(self, true_gain: ArrayLike) -> NDArray[np.float64]:
        """What is lost: distance of the true gain from what the compute is worth, 0 where the decision was right."""
        true_gain = np.asarray(true_gain, dtype=float)
        return np.where(self.wrong(true_gain), np.abs(true_gain - self.worth), 0.0)


def default_worth(gains: ArrayLike) -> float:
    """Half of the median forecast gain, at least 0.

    Parameters
    ----------
    gains : array_like
        Draws of the gain by the forecast without transitions.
    """
    return max(0.0, float(np.median(np.asarray(gains, dtype=float))) / 2)
