"""Rollouts drawn one by one, and the surrogate of a batch as a plain function of logits.

Slow and free of counts: every rollout is a list of actions, each with its own probability, advantage and weight, and
gradients are finite differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simulators.skills.acceptance import Acceptance
from simulators.skills.gradient import Behaviour, Gradient, policy_gradient
from simulators.skills.network import step_probability
from simulators.skills.rollouts import Groups
from simulators.skills.settings import Context, Recipe
from simulators.skills.training import exploiting

Array = Any
CLIP = {"ppo": (0.8, 1.2), "dapo": (0.8, 1.28)}
SHIFT = 1e-5


@dataclass(frozen=True)
class Logits:
    """A policy: logits of steps [L, W, P], of exploits [W, J]."""

    steps: Array
    exploit: Array

    def moved(self, steps: Array, exploit: Array) -> Logits:
        return Logits(self.steps + steps, self.exploit + exploit)


@dataclass(frozen=True)
class Scene:
    """Prompts and verifier of W worlds: P prompts of at most L steps, J exploits.

    `top` is [L, W, P], `exploited_accepted` [J, W], the others [W, P].
    """

    top: Array
    length: Array
    exploit_logit: Array
    right: Array
    wrong: Array
    exploit_accepted: Array
    context: Context = field(default_factory=Context)

    @property
    def acceptance(self) -> Acceptance:
        return Acceptance(self.right, self.wrong, self.exploit_accepted)

    def behaviour(self, policy: Logits) -> Behaviour:
        chosen = exploiting(policy.exploit, self.exploit_logit)
        return Behaviour(step_probability(policy.steps, self.top), chosen)


@dataclass(frozen=True)
class Rollout:
    """Choice 0 is an honest attempt, j + 1 exploit j; `passed` are the verdicts on the steps tried."""

    choice: int
    passed: tuple[bool, ...]
    truncated: bool
    reward: int
    tokens: float

    @property
    def steps(self) -> int:
        """An exploit is one step."""
        return len(self.passed) + (self.choice > 0)


Group = list[Rollout]
Batch = list[list[Group]]
"""By world, then prompt."""


def step_chance(x: float, top: float) -> float:
    return top / (1 + math.exp(-x)) if x > -700 else 0.0


def choice_chances(logits: list[float]) -> list[float]:
    """Of an honest attempt, whose logit is 0, and of each exploit."""
    weight = [1.0, *(math.exp(logit) for logit in logits)]
    return [each / sum(weight) for each in weight]


def sample(scene: Scene, policy: Logits, rollouts: int, rng: np.random.Generator) -> Batch:
    """Draw `rollouts` rollouts of every prompt."""
    worlds, prompts = scene.length.shape
    return [
        [[_rollout(scene, policy, w, p, rng) for _ in range(rollouts)] for p in range(prompts)]
        for w in range(worlds)
    ]


def _rollout(scene: Scene, policy: Logits, w: int, p: int, rng: np.random.Generator) -> Rollout:
    chances = choice_chances([h + scene.exploit_logit[w, p] for h in policy.exploit[w]])
    choice, uniform = 0, rng.random()
    while choice < len(chances) - 1 and uniform >= sum(chances[: choice + 1]):
        choice += 1
    per_step = scene.context.tokens_per_step * math.exp(rng.normal(0.0, scene.context.length_sd))
    if choice:
        accepted = rng.random() < scene.exploit_accepted[choice - 1, w]
        return Rollout(choice, (), False, int(accepted), per_step)
    passed: list[bool] = []
    for step in range(scene.length[w, p]):
        if (step + 1) * per_step > scene.context.limit:
            return Rollout(0, tuple(passed), True, 0, scene.context.limit)
        passed.append(rng.random() < step_chance(policy.steps[step, w, p], scene.top[step, w, p]))
        if not passed[-1]:
            break
    accepts = scene.right if all(passed) else scene.wrong
    accepted = rng.random() < accepts[w, p]
    return Rollout(0, tuple(passed), False, int(accepted), len(passed) * per_step)


def tally(batch: Batch, steps: int, exploits: int) -> Groups:
    """Count rollouts by how they ended."""
    shape = (len(batch), len(batch[0]))
    groups = Groups(
        failed=np.zeros((2, steps, *shape)),
        truncated=np.zeros((steps, *shape)),
        solved=np.zeros((2, *shape)),
        exploited=np.zeros((2, exploits, *shape)),
        rollouts=len(batch[0][0]),
    )
    for w, of_world in enumerate(batch):
        for p, group in enumerate(of_world):
            for each in group:
                tried = len(each.passed)
                if each.choice:
                    groups.exploited[each.reward, each.choice - 1, w, p] += 1
                elif each.truncated:
                    groups.truncated[tried, w, p] += 1
                elif all(each.passed):
                    groups.solved[each.reward, w, p] += 1
                else:
                    groups.failed[each.reward, tried - 1, w, p] += 1
    return groups


@dataclass(frozen=True)
class Action:
    """A choice (step None; outcome its number) or a step (outcome 1 passed, 0 failed) of one rollout."""

    step: int | None
    outcome: int
    advantage: float
    weight: float


def actions(batch: Batch, recipe: Recipe, exploits: int) -> list[list[list[Action]]]:
    """Return the actions [world][prompt] that are trained on."""
    return [_of_world(of_world, recipe, exploits > 0) for of_world in batch]


def _of_world(of_world: list[Group], recipe: Recipe, choice: bool) -> list[list[Action]]:
    kept = [
        recipe.filter == "keep" or 0 < sum(each.reward for each in group) < len(group) for group in of_world
    ]
    outcome = compared([[each.reward for each in group] for group in of_world], recipe.advantage, kept)
    verdicts = _verdict_advantages(of_world, recipe.advantage, kept)
    taken: list[list[Action]] = []
    for p, group in enumerate(of_world):
        taken.append([])
        for i, each in enumerate(group if kept[p] else []):
            weight = _weight(recipe.aggregation, each, p, of_world, kept, choice)
            if choice:
                taken[p].append(Action(None, each.choice, outcome[p][i], weight))
            for step, passed in enumerate(each.passed):
                process = recipe.credit == "process"
                advantage = verdicts[p, step][i] if process else outcome[p][i]
                taken[p].append(Action(step, int(passed), advantage, weight))
    return taken


def compared(sets: list[list[int]], kind: str, kept: list[bool]) -> list[list[float]]:
    """Advantage of every reward among those of its set."""
    rewards = [np.array(each, dtype=float) for each in sets]
    if kind == "reinforce":
        return [list(r) for r in rewards]
    centred = [r - np.mean(r) if r.size else r for r in rewards]
    if kind == "unnormalised":
        return [list(c) for c in centred]
    if kind == "rloo":
        return [
            [r[i] - np.mean(np.delete(r, i)) if r.size > 1 else 0.0 for i in range(r.size)] for r in rewards
        ]
    if kind == "grpo":
        return [
            list(c / np.std(r)) if r.size and np.std(r) > 0 else [0.0] * r.size
            for r, c in zip(rewards, centred, strict=True)
        ]
    of_kept = [c for c, keep in zip(centred, kept, strict=True) if keep]
    sd = np.std(np.concatenate(of_kept)) if sum(c.size for c in of_kept) else 0.0
    return [list(c / sd) if sd > 0 else [0.0] * c.size for c in centred]


def _verdict_advantages(
    of_world: list[Group], kind: str, kept: list[bool]
) -> dict[tuple[int, int], dict[int, float]]:
    """By prompt and step: advantage of each rollout that tried the step, by its number."""
    keys, tried = [], []
    for p, group in enumerate(of_world):
        for step in range(max(len(each.passed) for each in group)):
            keys.append((p, step))
            tried.append([i for i, each in enumerate(group) if len(each.passed) > step])
    sets = [[int(of_world[p][i].passed[step]) for i in at] for (p, step), at in zip(keys, tried, strict=True)]
    found = compared(sets, kind, [kept[p] for p, _ in keys])
    return {key: dict(zip(at, of, strict=True)) for key, at, of in zip(keys, tried, found, strict=True)}


def _weight(kind: str, each: Rollout, p: int, of_world: list[Group], kept: list[bool], choice: bool) -> float:
    def size(rollout: Rollout) -> int:
        return len(rollout.passed) + choice

    groups, rollouts = sum(kept), len(of_world[p])
    if kind == "sum":
        return 1 / (groups * rollouts)
    if kind == "sequence":
        return 1 / (groups * rollouts * max(size(each), 1))
    if kind == "prompt":
        return 1 / (groups * max(sum(size(other) for other in of_world[p]), 1))
    return 1 / max(sum(size(other) for q, group in enumerate(of_world) if kept[q] for other in group), 1)


@dataclass(frozen=True)
class Surrogate:
    """Objective of one batch, to be maximised over the logits of `now`."""

    scene: Scene
    batch: Batch
    recipe: Recipe
    now: Logits
    then: Logits
    start: Logits

    def gradient(self, shift: float = SHIFT) -> tuple[Array, Array]:
        """In the steps' logits [L, W, P] and the exploits' [J, W], by central differences."""
        taken = actions(self.batch, self.recipe, self.now.exploit.shape[1])
        steps, exploit = np.zeros(self.now.steps.shape), np.zeros(self.now.exploit.T.shape)
        for w, of_world in enumerate(taken):
            for p, of_prompt in enumerate(of_world):
                for step in range(len(steps)):
                    up, down = (self._value(of_prompt, w, p, step=(step, sign * shift)) for sign in (1, -1))
                    steps[step, w, p] = (up - down) / (2 * shift)
                for j in range(len(exploit)):
                    up, down = (self._value(of_prompt, w, p, exploit=(j, sign * shift)) for sign in (1, -1))
                    exploit[j, w] += (up - down) / (2 * shift)
        return steps, exploit

    def clipped(self) -> Array:
        """Share of actions whose ratio is clipped or capped."""
        taken = actions(self.batch, self.recipe, self.now.exploit.shape[1])
        return np.array(
            [
                np.mean([self.is_clipped(a, w, p) for p, of_prompt in enumerate(of_world) for a in of_prompt])
                for w, of_world in enumerate(taken)
            ]
        )

    def ratios(self) -> Iterator[float]:
        """New to old probability of every action."""
        for w, of_world in enumerate(actions(self.batch, self.recipe, self.now.exploit.shape[1])):
            for p, of_prompt in enumerate(of_world):
                yield from (self._ratio(action, w, p) for action in of_prompt)

    def _ratio(self, action: Action, w: int, p: int) -> float:
        now, then = (
            self._chances(policy, action.step, w, p)[action.outcome] for policy in (self.now, self.then)
        )
        return now / then

    def is_clipped(self, action: Action, w: int, p: int) -> bool:
        ratio = self._ratio(action, w, p)
        if self.recipe.correction == "cispo":
            return ratio > self.recipe.ratio_cap
        low, high = CLIP.get(self.recipe.correction, (0.0, math.inf))
        return (action.advantage > 0 and ratio > high) or (action.advantage < 0 and ratio < low)

    def _value(
        self,
        of_prompt: list[Action],
        w: int,
        p: int,
        step: tuple[int, float] = (0, 0.0),
        exploit: tuple[int, float] = (0, 0.0),
    ) -> float:
        """Part of one prompt, with one logit moved."""
        total = 0.0
        for action in of_prompt:
            at, shift = exploit if action.step is None else step
            moves = action.step is None or action.step == at
            chances = self._chances(self.now, action.step, w, p, (at, shift if moves else 0.0))
            term = self._term(action, chances[action.outcome], w, p)
            if self.recipe.kl:
                start = self._chances(self.start, action.step, w, p)
                term -= self.recipe.kl * sum(
                    q * math.log(q / s) for q, s in zip(chances, start, strict=True) if q > 0
                )
            total += action.weight * term
        return total

    def _term(self, action: Action, chance: float, w: int, p: int) -> float:
        advantage, kind = action.advantage, self.recipe.correction
        if kind == "none":
            return advantage * math.log(chance)
        if kind == "cispo":
            return min(self._ratio(action, w, p), self.recipe.ratio_cap) * advantage * math.log(chance)
        ratio = chance / self._chances(self.then, action.step, w, p)[action.outcome]
        if kind == "importance":
            return ratio * advantage
        low, high = CLIP[kind]
        return min(ratio * advantage, min(max(ratio, low), high) * advantage)

    def _chances(
        self, policy: Logits, step: int | None, w: int, p: int, moved: tuple[int, float] = (0, 0.0)
    ) -> list[float]:
        """Of each outcome of an action."""
        at, shift = moved
        if step is None:
            logits = [float(h + self.scene.exploit_logit[w, p]) for h in policy.exploit[w]]
            logits[at] += shift
            return choice_chances(logits)
        passing = step_chance(float(policy.steps[step, w, p]) + shift, float(self.scene.top[step, w, p]))
        return [1 - passing, passing]


def counted(surrogate: Surrogate, *, on_policy: bool = False) -> Gradient:
    """Gradient of the same batch from counts."""
    scene, now = surrogate.scene, surrogate.now
    return policy_gradient(
        tally(surrogate.batch, len(now.steps), now.exploit.shape[1]),
        scene.length,
        scene.behaviour(now),
        None if on_policy else scene.behaviour(surrogate.then),
        scene.behaviour(surrogate.start) if surrogate.recipe.kl else None,
        surrogate.recipe,
    )


def random_scene(
    seed: int, exploits: int, *, context: Context | None = None, noisy: bool = False, slip: float = 0.1
) -> tuple[Scene, Logits]:
    """Two worlds of four prompts with 1 to 4 steps, and a policy."""
    rng = np.random.default_rng(seed)
    length = np.array([[1, 2, 3, 4], [4, 1, 2, 3]])
    within = np.arange(4)[:, None, None] < length
    x = np.where(within, rng.normal(0.8, 0.8, within.shape), 500.0)
    scene = Scene(
        top=np.where(within, 1 - slip, 1.0),
        length=length,
        exploit_logit=rng.normal(0.0, 0.5, length.shape),
        right=rng.uniform(0.7, 0.9, length.shape) if noisy else np.ones(length.shape),
        wrong=rng.uniform(0.1, 0.3, length.shape) if noisy else np.zeros(length.shape),
        exploit_accepted=rng.uniform(0.3, 0.8, (exploits, 2)),
        context=context or Context(),
    )
    return scene, Logits(x, rng.normal(-1.0, 0.3, (2, exploits)))


def repeated(scene: Scene, policy: Logits, times: int) -> tuple[Scene, Logits]:
    """Every world `times` times in a row."""

    def tile(values: Array, axis: int) -> Array:
        return np.repeat(values, times, axis=axis)

    wide = replace(
        scene,
        top=tile(scene.top, 1),
        length=tile(scene.length, 0),
        exploit_logit=tile(scene.exploit_logit, 0),
        right=tile(scene.right, 0),
        wrong=tile(scene.wrong, 0),
        exploit_accepted=tile(scene.exploit_accepted, 1),
    )
    return wide, Logits(tile(policy.steps, 1), tile(policy.exploit, 0))
