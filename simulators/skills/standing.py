"""How good a policy is, exactly: no sampling, but the probability of every way in which a rollout can end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulators.skills.acceptance import Acceptance
from simulators.skills.context import Room
from simulators.skills.gradient import Behaviour
from simulators.skills.population import Array, PromptSet
from simulators.skills.settings import Settings


@dataclass(frozen=True)
class Standing:
    """Of a rollout on each prompt; arrays [W, M].

    Attributes
    ----------
    solved : array
        Probability that it is right: the pass rate.
    accepted : array
        Probability that it is accepted: the proxy that training sees.
    truncated, exploited : array
        Probability that it is cut, that it takes an exploit.
    entropy : array
        Of its actions per step, nats.
    """

    solved: Array
    accepted: Array
    truncated: Array
    exploited: Array
    entropy: Array


def stand(behaviour: Behaviour, prompts: PromptSet, acceptance: Acceptance, room: Room) -> Standing:
    """Standing of a policy on prompts.

    Parameters
    ----------
    behaviour : Behaviour
        On these prompts.
    prompts : PromptSet
    acceptance : Acceptance
    room : Room
    """
    steps = behaviour.steps
    number = np.arange(len(steps.passing))[:, None, None]
    within = number < prompts.length
    reached = np.cumprod(steps.passing, axis=0)
    before = np.concatenate([np.ones((1, *reached.shape[1:])), reached[:-1]])
    honest = behaviour.honest
    solved = honest * reached[-1] * room.fits[prompts.length]
    cut = (room.fits[:-1] - room.fits[1:])[:, None, None]
    truncated = honest * (before * cut * within).sum(axis=0)
    exploited = 1 - honest
    accepted = solved * acceptance.right + (honest - solved - truncated).clip(0.0) * acceptance.wrong
    accepted += (behaviour.exploiting * acceptance.exploit[:, :, None]).sum(axis=0)
    accepted = np.minimum(accepted, 1.0)
    tried = before * room.fits[1:, None, None] * within
    each = -(_p_log_p(steps.passing) + _p_log_p(steps.failing))
    entropy = (tried * each).sum(axis=0) / np.maximum(tried.sum(axis=0), 1e-300)
    return Standing(solved, accepted, truncated, exploited, entropy)


def ceiling(prompts: PromptSet, room: Room) -> Array:
    """Limit [W] of the pass rate as every skill is learned: slips, unsolvable prompts and truncation remain.

    Training approaches it where nothing else holds the policy back, see `approaches_ceiling`.
    """
    return (np.prod(prompts.top, axis=0) * room.fits[prompts.length]).mean(axis=1)


def approaches_ceiling(settings: Settings) -> bool:
    """Whether `ceiling` is the limit of long training, rather than a bound.

    So it is if every skill has a parameter of its own, prompts share nothing else and are not memorised, nothing
    pulls back to the start, no exploit is there to be found, and right answers are accepted more often than wrong ones.
    """
    policy, verifier = settings.policy, settings.verifier
    free = policy.rank is None and not (policy.features or policy.curvature or policy.memory)
    honest = verifier.exploits == 0 and verifier.wrong_reference == 0
    model = verifier.reward_model
    informative = verifier.true_positive > verifier.false_positive if model is None else model.separation > 0
    trained = settings.recipe.learning_rate > 0 and settings.recipe.kl == 0
    return free and honest and informative and trained


def _p_log_p(p: Array) -> Array:
    return p * np.log(np.maximum(p, 1e-300))
