"""From the policy's parameters to the logits of steps, and back from gradients in these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulators.skills.population import ALWAYS, Array, Population, PromptSet
from simulators.skills.settings import Policy


@dataclass(frozen=True)
class Parameters:
    """What training moves, for W worlds.

    Attributes
    ----------
    z : array [W, R]
        Skills.
    exploit : array [W, J]
        Logits of the exploits against an honest attempt.
    memory : array [W, N]
        Offset of each training prompt.
    """

    z: Array
    exploit: Array
    memory: Array


@dataclass(frozen=True)
class StepProbability:
    """Probability of passing and failing each step, and the scores; arrays [L, W, P].

    Attributes
    ----------
    passing, failing : array
        Their sum is 1; both exact where small.
    pass_score, fail_score : array
        d log(passing) / dx and d log(failing) / dx of the step's logit x.
    """

    passing: Array
    failing: Array
    pass_score: Array
    fail_score: Array


def skill_logits(population: Population, policy: Policy, z: Array) -> Array:
    """theta [W, K]."""
    moved = z if population.coupling is None else np.einsum("wkr,wr->wk", population.coupling, z)
    theta = population.skill_logit + moved
    if policy.curvature:
        theta = theta - policy.curvature / 2 * np.sum(z * z, axis=1, keepdims=True)
    return theta


def step_logits(
    theta: Array, prompts: PromptSet, policy: Policy, z: Array, memory: Array | None = None
) -> Array:
    """Logit x [L, W, P] of every step.

    Parameters
    ----------
    theta : array [W, K]
        From `skill_logits`.
    prompts : PromptSet
    policy : Policy
    z : array [W, R]
    memory : array [W, P], optional
        Offsets of these prompts; none for held-out ones.
    """
    x = theta.ravel()[prompts.skill]
    x -= prompts.difficulty
    if prompts.features is not None:
        x += policy.features * np.einsum("wpr,wr->wp", prompts.features, z)
    if memory is not None:
        x += memory
    return x


def step_probability(x: Array, top: Array) -> StepProbability:
    """Probabilities of steps with logits `x` that pass at most with probability `top`."""
    odds = np.exp(np.minimum(x, ALWAYS))
    miss = 1 / (1 + odds)
    hit = odds / (1 + odds)
    failing = 1 - top
    failing += top * miss
    passing = top * hit
    return StepProbability(passing, failing, miss, -passing * miss / failing)


def pull_back(gradient: Array, prompts: PromptSet, population: Population, policy: Policy, z: Array) -> Array:
    """Gradient [W, R] in z from the gradient [L, W, P] in the steps' logits."""
    worlds, skills = population.skill_logit.shape
    counted = np.bincount(prompts.skill.ravel(), gradient.ravel(), minlength=worlds * skills)
    by_skill = counted.reshape(worlds, skills)
    result = (
        by_skill if population.coupling is None else np.einsum("wkr,wk->wr", population.coupling, by_skill)
    )
    if policy.curvature:
        result = result - policy.curvature * by_skill.sum(axis=1, keepdims=True) * z
    if prompts.features is not None:
        result = result + policy.features * np.einsum("wpr,wp->wr", prompts.features, gradient.sum(axis=0))
    return result
