"""Whether a second move begins between the last evaluation and a horizon."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtri

from forecast.inference.priors import Priors
from forecast.inference.weighing import MOVES, SMOOTH, Weighed, flattened
from forecast.outlook.hazard import Hazard

_STEPS = 64  # quantiles of the steepness that are averaged over


def p_ahead(
    weighed: Weighed, weights: Mapping[str, float], hazard: Hazard, priors: Priors, horizon: float
) -> float:
    """Probability that a move begins (a tenth of it is made) between the last evaluation and `horizon`.

    Parameters
    ----------
    weighed : Weighed
    weights : mapping of str to float
        Posterior probability of each family.
    hazard : Hazard
        Of moves beyond the window in which families are weighed.
    priors : Priors
    horizon : float
        Compute.
    """
    total = 0.0
    for family in MOVES.values():
        draws, share = flattened(weighed.particles[family])
        begins = np.log(draws["second_midpoint"]) - np.log(9.0) / draws["second_exponent"]
        ahead = (begins > np.log(weighed.fitted_upto)) & (begins <= np.log(horizon))
        total += weights[family] * float(share @ ahead)
    steepness = priors.log_second_exponent
    lead = np.log(9.0) / np.exp(steepness.mean + steepness.sd * ndtri((np.arange(_STEPS) + 0.5) / _STEPS))
    # Of moves beyond the window: those that begin by the horizon less those that would have begun by now.
    far, window = np.log(horizon / weighed.fitted_upto), priors.log_second_midpoint[1]
    beyond = [
        sum(hazard.within((far + x - window) / np.log(10.0)).values())
        - sum(hazard.within((x - window) / np.log(10.0)).values())
        for x in lead
    ]
    return total + sum(weights[family] for family in SMOOTH) * float(np.mean(beyond))
