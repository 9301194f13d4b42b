"""Truncation and tokens: how many steps fit into the context.

A rollout of verbosity u (log-normal) takes ``tokens_per_step u`` tokens per step and fits n steps if
``u <= limit / (n tokens_per_step)``. Verbosity has no bearing on what passes, so that truncation is a hazard before each
step, the same for all prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from simulators.skills.population import Array
from simulators.skills.settings import Context


@dataclass(frozen=True)
class Room:
    """What fits, for chains of up to L steps.

    Attributes
    ----------
    fits : array [L + 1]
        Probability that n steps fit.
    hazard : array [L]
        Probability that step l (from 0) does not fit, given that those before it did.
    tokens : array [L + 1]
        Mean tokens of a rollout that ended by itself after n steps.
    truncated_tokens : float
        Tokens of one that was truncated.
    """

    fits: Array
    hazard: Array
    tokens: Array
    truncated_tokens: float

    @property
    def unlimited(self) -> bool:
        """Nothing is ever truncated."""
        return not self.hazard.any()


def room(context: Context, steps: int) -> Room:
    """Room for chains of up to `steps` steps."""
    number = np.arange(1, steps + 1)
    with np.errstate(divide="ignore"):
        log_limit = np.log(context.limit / (number * context.tokens_per_step))
    sd = context.length_sd
    if sd > 0:
        fits = norm.cdf(log_limit / sd)
        # Mean of u given u <= limit: exp(sd^2 / 2) times a ratio of normal probabilities.
        log_mean = sd**2 / 2 + norm.logcdf(log_limit / sd - sd) - norm.logcdf(log_limit / sd)
    else:
        fits = (log_limit >= 0).astype(float)
        log_mean = np.zeros(steps)
    fits = np.concatenate([[1.0], fits])
    before = np.where(fits[:-1] > 0, fits[:-1], 1.0)
    hazard = np.where(fits[:-1] > 0, 1 - fits[1:] / before, 1.0)
    tokens = np.concatenate([[0.0], number * context.tokens_per_step * np.exp(log_mean)])
    return Room(fits, hazard, tokens, context.limit if hazard.any() else 0.0)
