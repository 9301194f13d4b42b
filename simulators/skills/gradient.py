"""From the rollouts of a batch to the gradient in the logits of its steps and exploits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulators.skills.advantages import outcome_advantages, process_advantages
from simulators.skills.correction import factor, outside
from simulators.skills.network import StepProbability
from simulators.skills.population import Array, Whole
from simulators.skills.rollouts import Groups
from simulators.skills.settings import Recipe

Factors = tuple[Array | float, Array | float]
"""What the scores of rejected and of accepted rollouts are multiplied by."""


@dataclass(frozen=True)
class Behaviour:
    """Probabilities under one version of the policy, on the prompts of a batch.

    Attributes
    ----------
    steps : StepProbability
    exploiting : array [J, W, P]
        Probability of each exploit.
    """

    steps: StepProbability
    exploiting: Array

    @property
    def honest(self) -> Array:
        """Probability [W, P] of an honest attempt."""
        # Rounding may take a sum of many above 1.
        return np.maximum(1 - self.exploiting.sum(axis=0), 0.0)


@dataclass(frozen=True)
class Gradient:
    """Ascent direction, and what became of the batch.

    Attributes
    ----------
    steps : array [L, W, P]
        In the logits of the batch's steps.
    exploit : array [J, W]
        In the logits of the exploits.
    clipped : array [W]
        Share of actions with a ratio that is clipped or capped.
    """

    steps: Array
    exploit: Array
    clipped: Array


@dataclass(frozen=True)
class _Actions:
    """Actions taken, by the reward of their rollout; in ``sequence`` aggregation each weighs 1 / length.

    `passed` and `failed` are [2, L, W, P], `attempts` [2, W, P] and `exploits` [2, J, W, P].
    """

    passed: Array
    failed: Array
    attempts: Array
    exploits: Array


def policy_gradient(
    groups: Groups,
    length: Whole,
    now: Behaviour,
    then: Behaviour | None,
    start: Behaviour | None,
    recipe: Recipe,
) -> Gradient:
    """Gradient of the surrogate of one batch.

    Parameters
    ----------
    groups : Groups
    length : array of int [W, P]
        Steps of each prompt.
    now : Behaviour
        Of the policy that is updated.
    then : Behaviour or None
        Of the policy that made the rollouts; None if it is the same.
    start : Behaviour or None
        Of the policy before training; needed where `recipe.kl` is above 0.
    recipe : Recipe
    """
    mixed = groups.mixed
    kept = np.ones_like(mixed) if recipe.filter == "keep" else mixed
    share = _shares(groups, length, kept, recipe)
    actions = _actions(groups, length, by_length=recipe.aggregation == "sequence")
    advantage = outcome_advantages(groups.accepted, groups.rollouts, recipe.advantage, kept)

    # Each by the reward of the rollout; rollouts of the policy that is updated count in full.
    on_pass: Factors = (1.0, 1.0)
    on_fail, on_attempt, on_exploit = on_pass, on_pass, on_pass
    clipped = np.zeros(len(length))
    if then is not None:
        ratios = (
            now.steps.passing / then.steps.passing.clip(1e-300),
            now.steps.failing / then.steps.failing,
            now.honest / then.honest.clip(1e-300),
            now.exploiting / then.exploiting.clip(1e-300),
        )
        on_pass, on_fail, on_attempt, on_exploit = (_factors(ratio, recipe) for ratio in ratios)
        clipped = _clipped_share(_actions(groups, length, by_length=False), ratios, kept, recipe)

    if recipe.credit == "outcome":
        passing = _weighed(advantage, on_pass, actions.passed)
        failing = _weighed(advantage, on_fail, actions.failed)
    else:
        counted = _actions(groups, length, by_length=False)
        passed, failed = counted.passed.sum(axis=0), counted.failed.sum(axis=0)
        of_step = process_advantages(passed, passed + failed, recipe.advantage, kept)
        # A step's own verdict gives the sign: passing is never bad, failing never good.
        passing = of_step[1] * on_pass[1] * actions.passed.sum(axis=0)
        failing = of_step[0] * on_fail[0] * actions.failed.sum(axis=0)
    steps = passing * now.steps.pass_score + failing * now.steps.fail_score
    exploit = now.exploiting
    if len(exploit):
        attempts = _weighed(advantage, on_attempt, actions.attempts)
        exploits = _weighed(advantage, on_exploit, actions.exploits)
        exploit = exploits - now.exploiting * (attempts + exploits.sum(axis=0))

    if recipe.kl:
        assert start is not None
        visits = (actions.passed + actions.failed).sum(axis=0)
        choices = actions.attempts.sum(axis=0) + actions.exploits.sum(axis=(0, 1))
        steps -= recipe.kl * visits * _step_kl_slope(now.steps, start.steps)
        exploit -= recipe.kl * choices * _choice_kl_slope(now, start)
    return Gradient(steps * share, (exploit * share).sum(axis=2), clipped)


def _shares(groups: Groups, length: Whole, kept: np.ndarray, recipe: Recipe) -> Array:
    """Weight [W, P] of every action of a group in the batch's mean."""
    if recipe.aggregation == "token":
        total = (kept * _lengths(groups, length)).sum(axis=1, keepdims=True)
        return kept / np.maximum(total, 1.0)
    prompts = np.maximum(kept.sum(axis=1, keepdims=True), 1)
    if recipe.aggregation == "prompt":
        return kept / np.maximum(prompts * _lengths(groups, length), 1.0)
    return kept / (prompts * groups.rollouts)


def _lengths(groups: Groups, length: Whole) -> Array:
    """Actions [W, P] of all rollouts of a group: steps tried, and the choice for or against exploits."""
    counted = _actions(groups, length, by_length=False)
    steps = (counted.passed + counted.failed).sum(axis=(0, 1))
    return steps + groups.rollouts if groups.exploited.shape[1] else steps


def _actions(groups: Groups, length: Whole, *, by_length: bool) -> _Actions:
    steps = len(groups.truncated)
    failed, truncated, solved = groups.failed, groups.truncated, groups.solved
    attempts = failed.sum(axis=1) + solved
    attempts[0] += truncated.sum(axis=0)
    if by_length:
        choice = 1 if groups.exploited.shape[1] else 0
        number = np.arange(steps)[:, None, None]
        failed = failed / (number + 1 + choice)
        truncated = truncated / np.maximum(number + choice, 1)
        solved = solved / (length + choice)
        attempts = failed.sum(axis=1) + solved
        attempts[0] += truncated.sum(axis=0)
    passed = np.empty_like(failed)
    later = solved.copy()
    for step in range(steps - 1, -1, -1):
        # Steps after the end of a chain were not taken.
        np.multiply(later, step < length, out=passed[:, step])
        later += failed[:, step]
        later[0] += truncated[step]
    return _Actions(passed, failed, attempts, groups.exploited)


def _factors(ratio: Array, recipe: Recipe) -> Factors:
    """Factor of rejected and accepted rollouts, whose advantages are negative and positive."""
    return factor(ratio, recipe, positive=False), factor(ratio, recipe, positive=True)


def _weighed(advantage: Array, factors: Factors, count: Array) -> Array:
    """Sum over rejected and accepted rollouts of advantage x factor x count."""
    return advantage[0] * factors[0] * count[0] + advantage[1] * factors[1] * count[1]


def _clipped_share(actions: _Actions, ratios: tuple[Array, ...], kept: np.ndarray, recipe: Recipe) -> Array:
    """Share [W] of the actions trained on whose ratio is clipped or capped."""
    # A step is good or bad by its own verdict or by that of its rollout.
    rewards = ((False, True), (False, True))
    verdicts = ((True, True), (False, False)) if recipe.credit == "process" else rewards
    taken = [(actions.passed, verdicts[0]), (actions.failed, verdicts[1])]
    if actions.exploits.shape[1]:
        taken += [(actions.attempts, rewards[0]), (actions.exploits, rewards[1])]
    hit, total = 0.0, 0.0
    for (count, signs), ratio in zip(taken, ratios, strict=False):
        for reward in (0, 1):
            trained = count[reward] * kept
            out = trained * outside(ratio, recipe, positive=signs[reward])
            over = tuple(axis for axis in range(out.ndim) if axis != out.ndim - 2)
            hit, total = hit + out.sum(axis=over), total + trained.sum(axis=over)
    return hit / np.maximum(total, 1e-300)


def _step_kl_slope(now: StepProbability, start: StepProbability) -> Array:
    """d KL(now || start) / dx: dp/dx times the difference of the logits of passing."""
    slope = now.passing * now.pass_score
    moved = np.log(now.passing.clip(1e-300) / start.passing.clip(1e-300))
    return slope * (moved - np.log(now.failing / start.failing))


def _choice_kl_slope(now: Behaviour, start: Behaviour) -> Array:
    """d KL(now || start) / dh_j [J, W, P] = p_j (log(p_j / p0_j) - KL)."""
    log_honest = np.log(now.honest.clip(1e-300) / start.honest.clip(1e-300))
    log_exploit = np.log(now.exploiting.clip(1e-300) / start.exploiting.clip(1e-300))
    divergence = now.honest * log_honest + (now.exploiting * log_exploit).sum(axis=0)
    return now.exploiting * (log_exploit - divergence)
