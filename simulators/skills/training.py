"""The training loop: rollouts, advantages, update, for several worlds at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from forecast.errors import InputError
from simulators.skills.acceptance import acceptance
from simulators.skills.context import room
from simulators.skills.gradient import Behaviour, policy_gradient
from simulators.skills.ledger import Ledger, account, empty
from simulators.skills.network import (
    Parameters,
    pull_back,
    skill_logits,
    step_logits,
    step_probability,
)
from simulators.skills.optimiser import Sgd, optimiser
from simulators.skills.population import Array, Population, PromptSet, Whole
from simulators.skills.queue import PromptQueue
from simulators.skills.rollouts import Groups, sample_groups
from simulators.skills.settings import Settings
from simulators.skills.standing import Standing, stand


@dataclass(frozen=True)
class History:
    """E evaluations of W worlds in training; the first is before any update.

    Attributes
    ----------
    step : array of int [E]
        Updates made.
    used : Ledger
        Arrays [E, W], totals.
    held_out : Standing
        On held-out prompts, arrays [E, W, M].
    train : Standing
        On training prompts, what was memorised included, arrays [E, W], means over prompts.
    batch_reward, mixed, clipped : array [E, W]
        Of the batches since the last evaluation: share of rollouts accepted, of groups with different rewards, of
        actions with a clipped or capped ratio. NaN before training.
    retired : array [E, W]
        Share of training prompts that are not drawn any more.
    """

    step: Whole
    used: Ledger
    held_out: Standing
    train: Standing
    batch_reward: Array
    mixed: Array
    clipped: Array
    retired: Array


def log_spaced(steps: int, points: int = 60) -> list[int]:
    """At most `points` different steps from 1 to `steps`, evenly spaced in the logarithm."""
    return sorted({round(step) for step in np.geomspace(1, steps, points)})


def train(
    population: Population,
    settings: Settings,
    rng: np.random.Generator,
    at: Sequence[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> History:
    """Train a policy in every world of a population.

    Parameters
    ----------
    population : Population
        Drawn with the same `settings.prompts` and `settings.verifier`.
    settings : Settings
    rng : numpy.random.Generator
        Source of all randomness. The result depends on which worlds are trained together.
    at : sequence of int, optional
        Steps after which to evaluate, beside step 0. Default: `log_spaced`.
    progress : callable, optional
        Called with the number of steps done.

    Returns
    -------
    History
    """
    steps = settings.recipe.steps
    at = log_spaced(steps) if at is None else sorted(set(at))
    if not at or at[0] < 1 or at[-1] > steps:
        raise InputError("evaluations must lie within the run", found=list(at), expected=f"1 to {steps}")
    run = _Run(population, settings, rng)
    logged = [run.evaluate(0)]
    due = set(at)
    for step in range(1, at[-1] + 1):
        run.update()
        if step in due:
            logged.append(run.evaluate(step))
        if progress is not None:
            progress(step)
    return _stacked(logged)


class _Run:
    """State of W policies in training."""

    def __init__(self, population: Population, settings: Settings, rng: np.random.Generator) -> None:
        recipe, prompts = settings.recipe, population.train
        self._population, self._settings, self._rng = population, settings, rng
        self._room = room(settings.context, settings.prompts.steps)
        self._acceptance = acceptance(settings.verifier, population, prompts)
        self._held_out_acceptance = acceptance(settings.verifier, population, population.held_out)
        worlds = population.worlds
        self._start = Parameters(
            np.zeros((worlds, population.parameters)),
            np.full((worlds, settings.verifier.exploits), settings.verifier.exploit_logit),
            np.zeros((worlds, prompts.count)),
        )
        self._past = deque([self._start], maxlen=recipe.staleness + 1)
        self._queue = PromptQueue(worlds, prompts.count, recipe.retire_above, rng)
        self._optimiser = optimiser(recipe.optimiser, recipe.learning_rate)
        exploit_rate = recipe.exploit_rate
        self._exploit_optimiser = (
            optimiser(recipe.optimiser, recipe.learning_rate) if exploit_rate is None else Sgd(exploit_rate)
        )
        self._used = empty(worlds)
        # A batch of every prompt once needs no choice, and no copy.
        everything = recipe.prompts == prompts.count and recipe.retire_above is None
        self._whole = np.tile(np.arange(prompts.count), (worlds, 1)) if everything else None
        self._batches: list[Array] = []

    def update(self) -> None:
        """One step of training."""
        policy, recipe = self._settings.policy, self._settings.recipe
        now = self._past[-1]
        index, batch, groups, then = self._generate(self._past[0])
        behaviour = then if now is self._past[0] else self._behave(now, batch, index)
        gradient = policy_gradient(
            groups,
            batch.length,
            behaviour,
            None if behaviour is then else then,
            self._behave(self._start, batch, index) if recipe.kl else None,
            recipe,
        )
        by_parameter = pull_back(gradient.steps, batch, self._population, policy, now.z)
        memory = now.memory
        if policy.memory:
            memory = memory.copy()
            np.add.at(memory, _at(index), policy.memory * gradient.steps.sum(axis=0))
        self._past.append(
            Parameters(
                now.z + self._optimiser.step(by_parameter),
                now.exploit + self._exploit_optimiser.step(gradient.exploit.T),
                memory,
            )
        )
        accepted = groups.accepted.mean(axis=1) / recipe.rollouts
        self._batches.append(np.stack([accepted, groups.mixed.mean(axis=1), gradient.clipped]))

    def evaluate(self, step: int) -> History:
        """Standing after `step` updates, as one entry of a history."""
        now, population = self._past[-1], self._population
        held_out = population.held_out
        standing = stand(self._behave(now, held_out, None), held_out, self._held_out_acceptance, self._room)
        whole = np.broadcast_to(np.arange(population.train.count), population.train.length.shape)
        trained = stand(
            self._behave(now, population.train, whole), population.train, self._acceptance, self._room
        )
        means = Standing(*(getattr(trained, field.name).mean(axis=1) for field in fields(Standing)))
        batches = np.mean(self._batches, axis=0) if self._batches else np.full((3, population.worlds), np.nan)
        self._batches = []
        return History(
            step=np.array(step),
            used=self._used,
            held_out=standing,
            train=means,
            batch_reward=batches[0],
            mixed=batches[1],
            clipped=batches[2],
            retired=self._queue.retired,
        )

    def _generate(self, by: Parameters) -> tuple[Whole, PromptSet, Groups, Behaviour]:
        """Rollouts of the next batch, refilled where the recipe says so, and what they were sampled from."""
        recipe = self._settings.recipe
        if recipe.filter == "refill":
            return self._refilled(by)
        index = self._whole
        if index is None:
            index = self._queue.next(recipe.prompts)
        batch, behaviour, groups = self._sample(by, index)
        self._queue.visited(index, groups.accepted / recipe.rollouts)
        trained = np.ones_like(groups.mixed) if recipe.filter == "keep" else groups.mixed
        self._used += self._spent(groups, batch, trained)
        return index, batch, groups, behaviour

    def _refilled(self, by: Parameters) -> tuple[Whole, PromptSet, Groups, Behaviour]:
        """Batches until each world has its number of mixed groups; all are paid for, the first ones trained on."""
        recipe, worlds = self._settings.recipe, self._population.worlds
        indices, parts, found = [], [], np.zeros(worlds)
        pending = np.arange(worlds)
        for _ in range(recipe.refills):
            index = np.zeros((worlds, recipe.prompts), dtype=np.int64)
            index[pending] = self._queue.next(recipe.prompts, pending)
            batch, _, groups = self._sample(by, index)
            self._queue.visited(index[pending], groups.accepted[pending] / recipe.rollouts, pending)
            drawn = np.isin(np.arange(worlds), pending).astype(float)
            self._used += self._spent(groups, batch, np.zeros_like(groups.mixed)) * drawn
            indices.append(index)
            parts.append(groups)
            found += groups.mixed.sum(axis=1)
            pending = pending[found[pending] < recipe.prompts]
            if not pending.size:
                break
        groups = parts[0].join(parts[1:])
        # A world that was full before the last round has enough mixed groups in front of what came later.
        first = np.argsort(~groups.mixed, axis=1, kind="stable")[:, : recipe.prompts]
        index = np.take_along_axis(np.concatenate(indices, axis=1), first, axis=1)
        batch, groups = self._population.train.take(index), groups.take(first)
        trained = self._spent(groups, batch, groups.mixed).trained
        nothing = np.zeros(worlds)
        self._used += Ledger(nothing, nothing, nothing, trained)
        return index, batch, groups, self._behave(by, batch, index)

    def _sample(self, by: Parameters, index: Whole) -> tuple[PromptSet, Behaviour, Groups]:
        recipe, batch = self._settings.recipe, self._population.train
        if index is not self._whole:
            batch = batch.take(index)
        behaviour = self._behave(by, batch, index)
        groups = sample_groups(
            behaviour.steps.failing,
            batch.length,
            behaviour.exploiting,
            self._acceptance.take(index),
            self._room,
            recipe.rollouts,
            self._rng,
        )
        return batch, behaviour, groups

    def _spent(self, groups: Groups, batch: PromptSet, trained: np.ndarray) -> Ledger:
        return account(groups, batch.length, self._room, self._settings.context, trained)

    def _behave(self, by: Parameters, prompts: PromptSet, index: Whole | None) -> Behaviour:
        """Probabilities on prompts; `index` says which training prompts they are."""
        policy = self._settings.policy
        memory = None if index is None or not policy.memory else by.memory[_at(index)]
        theta = skill_logits(self._population, policy, by.z)
        x = step_logits(theta, prompts, policy, by.z, memory)
        return Behaviour(step_probability(x, prompts.top), exploiting(by.exploit, prompts.exploit_logit))


def exploiting(logits: Array, of_prompt: Array) -> Array:
    """Probability [J, W, P] of each exploit: softmax of 0 (honest) and the exploits' logits."""
    if not logits.size:
        return np.zeros((0, *of_prompt.shape))
    x = logits.T[:, :, None] + of_prompt
    most = np.maximum(x.max(axis=0), 0.0)
    weight = np.exp(x - most)
    return weight / (np.exp(-most) + weight.sum(axis=0))


def _at(index: Whole) -> tuple[Whole, Whole]:
    return np.broadcast_to(np.arange(len(index))[:, None], index.shape), index


def _stacked(logged: list[Any]) -> Any:
    """One object of arrays, from as many as there are entries."""
    first = logged[0]
    if not is_dataclass(first):
        return np.stack(logged)
    changed: dict[str, Any] = {
        f.name: _stacked([getattr(each, f.name) for each in logged]) for f in fields(first)
    }
    return replace(first, **changed)  # type: ignore[type-var]
