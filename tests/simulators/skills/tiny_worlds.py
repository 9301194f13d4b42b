"""Worlds written down, not drawn: prompts are given chains of skills, skills have given probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulators.skills.acceptance import acceptance
from simulators.skills.context import room
from simulators.skills.gradient import Behaviour, Gradient, policy_gradient
from simulators.skills.network import skill_logits, step_logits, step_probability
from simulators.skills.population import ALWAYS, Population, PromptSet
from simulators.skills.rollouts import Groups, sample_groups
from simulators.skills.settings import Policy, Prompts, Recipe, Settings, Verifier
from simulators.skills.training import exploiting

Chains = Sequence[Sequence[int]]
"""Skill of every step of every prompt."""


def logit(rate):
    return np.log(rate) - np.log1p(-np.asarray(rate))


def prompt_set(chains: Chains, skills: int, worlds: int = 1, slip: float = 0.0) -> PromptSet:
    """The same prompts in every world, without difficulty."""
    steps, count = max(map(len, chains)), len(chains)
    skill = np.zeros((steps, worlds, count), dtype=np.int64)
    length = np.array([len(chain) for chain in chains])
    for prompt, chain in enumerate(chains):
        skill[: len(chain), :, prompt] = np.array(chain)[:, None]
    within = np.broadcast_to(np.arange(steps)[:, None, None] < length, skill.shape)
    shape = (worlds, count)
    return PromptSet(
        skill=skill + skills * np.arange(worlds)[:, None],
        difficulty=np.where(within, 0.0, -ALWAYS),
        top=np.where(within, 1 - slip, 1.0),
        length=np.tile(length, (worlds, 1)),
        wrong_reference=np.zeros(shape, dtype=bool),
        exploit_logit=np.zeros(shape),
        features=None,
        stratum=np.zeros(shape, dtype=np.int64),
    )


def population(chains: Chains, rates: Sequence[float], worlds: int = 1, slip: float = 0.0) -> Population:
    """Skill k is passed with probability ``rates[k]``; held out is one prompt of each different chain."""
    once = sorted({tuple(chain) for chain in chains})
    train, held_out = (prompt_set(of, len(rates), worlds, slip) for of in (chains, once))
    return Population(np.tile(logit(rates), (worlds, 1)), None, train, held_out, None)


def one_skill(rate: float, length: int, count: int, worlds: int = 1) -> Population:
    """`count` prompts of `length` steps, all of one skill; rate is that of a whole prompt."""
    return population([[0] * length] * count, [rate ** (1 / length)], worlds)


def settings(world: Population, rollouts: int, verifier: Verifier | None = None, **recipe) -> Settings:
    """Plain gradient ascent on every prompt at once, unless `recipe` says otherwise."""
    prompts = Prompts(
        skills=world.skill_logit.shape[1],
        train=world.train.count,
        held_out=world.held_out.count,
        chain_longest=len(world.train.skill),
        slip=0.0,
    )
    recipe = {"prompts": world.train.count, "rollouts": rollouts} | recipe
    return Settings(prompts=prompts, verifier=verifier or Verifier(), recipe=Recipe(**recipe))


def behaviour(world: Population, made: Settings, z: NDArray | None = None) -> Behaviour:
    """Of the policy z steps from the start, on the training prompts."""
    z = np.zeros((world.worlds, world.parameters)) if z is None else z
    x = step_logits(skill_logits(world, Policy(), z), world.train, Policy(), z)
    exploits = np.full((world.worlds, made.verifier.exploits), made.verifier.exploit_logit)
    return Behaviour(step_probability(x, world.train.top), exploiting(exploits, world.train.exploit_logit))


def rollouts(world: Population, made: Settings, seed: int) -> Groups:
    """One group of rollouts on every training prompt, of the policy before training."""
    by = behaviour(world, made)
    return sample_groups(
        by.steps.failing,
        world.train.length,
        by.exploiting,
        acceptance(made.verifier, world, world.train),
        room(made.context, made.prompts.steps),
        made.recipe.rollouts,
        np.random.default_rng(seed),
    )


def group_gradients(world: Population, made: Settings, seed: int) -> Gradient:
    """Gradient of one step, every group's part times the number of groups."""
    groups = rollouts(world, made, seed)
    found = policy_gradient(groups, world.train.length, behaviour(world, made), None, None, made.recipe)
    return replace(found, steps=found.steps * world.train.count)
