"""How often right answers, wrong answers and exploits are accepted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import norm

from simulators.skills.population import Array, Population, PromptSet, Whole
from simulators.skills.settings import RewardModel, Verifier


@dataclass(frozen=True)
class Acceptance:
    """Probability of being accepted.

    Attributes
    ----------
    right, wrong : array [W, P]
        Of right and wrong answers to each prompt.
    exploit : array [J, W]
        Of each exploit.
    """

    right: Array
    wrong: Array
    exploit: Array

    @cached_property
    def wrong_never(self) -> bool:
        """No wrong answer is accepted."""
        return not self.wrong.any()

    @cached_property
    def right_always(self) -> bool:
        """Every right answer is accepted."""
        return bool(np.all(self.right == 1))

    def take(self, index: Whole) -> Acceptance:
        """Of answers to prompts `index` [W, P] of each world."""
        if self.right_always and self.wrong_never:
            return self
        world = np.arange(len(index))[:, None]
        return Acceptance(self.right[world, index], self.wrong[world, index], self.exploit)


def score_accepted(model: RewardModel, mu: Array) -> Array:
    """Probability that the ensemble's score is above 0, members' means `mu` along the first axis.

    The mean score has sd ``members ** -0.5``; the worst is above 0 if all are.
    """
    if model.aggregate == "mean":
        return norm.cdf(mu.mean(axis=0) * np.sqrt(model.members))
    return np.prod(norm.cdf(mu), axis=0)


def rates(verifier: Verifier, population: Population) -> tuple[float, float, Array]:
    """Probability that a right answer, a wrong one, and each exploit [J, W] is accepted."""
    shape = (verifier.exploits, population.worlds)
    model = verifier.reward_model
    if model is None:
        return verifier.true_positive, verifier.false_positive, np.full(shape, verifier.exploit_accepted)
    assert population.exploit_error is not None
    half = np.full(model.members, model.separation / 2)
    exploits = score_accepted(model, population.exploit_error - model.separation / 2)
    return float(score_accepted(model, half)), float(score_accepted(model, -half)), exploits.T


def acceptance(verifier: Verifier, population: Population, prompts: PromptSet) -> Acceptance:
    """Of answers to these prompts, wrong references included."""
    right, wrong, exploit = rates(verifier, population)
    flipped = prompts.wrong_reference
    return Acceptance(
        right=np.where(flipped, 0.0, right),
        wrong=np.where(flipped, verifier.wrong_reference_accepts, wrong),
        exploit=exploit,
    )
