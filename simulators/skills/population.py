"""Worlds before training: skills, and prompts that are chains of them, for several worlds at once.

Arrays over steps come first: ``[step, world, prompt]``. A chain shorter than the longest is filled up with steps
that always pass, so that no array needs a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulators.ranges import check_counts
from simulators.skills.settings import Settings

Array = NDArray[np.float64]
Whole = NDArray[np.int64]

ALWAYS = 500.0
"""Logit of a step that always passes."""
STRATA = ("easy", "medium", "hard", "far", "gated")
"""Classes of held-out prompts: thirds by pass rate before training, beyond the gap, behind a gate."""
_MOST = 0.99


@dataclass(frozen=True)
class PromptSet:
    """Prompts of W worlds, N of each; L steps at most.

    Attributes
    ----------
    skill : array of int [L, W, N]
        Index of the step's skill, counted through all worlds: world * skills + skill.
    difficulty : array [L, W, N]
        Subtracted from the skill's logit; ``-ALWAYS`` where a chain has ended.
    top : array [L, W, N]
        Highest probability of passing: 1 - slip, 0 on unsolvable prompts, 1 where a chain has ended.
    length : array of int [W, N]
        Steps.
    wrong_reference : array of bool [W, N]
    exploit_logit : array [W, N]
        Added to the logits of all exploits.
    features : array [W, N, R] or None
        The prompt's own direction in parameter space.
    stratum : array of int [W, N]
        Index into `STRATA`.
    """

    skill: Whole
    difficulty: Array
    top: Array
    length: Whole
    wrong_reference: NDArray[np.bool_]
    exploit_logit: Array
    features: Array | None
    stratum: Whole

    @property
    def worlds(self) -> int:
        """Number of worlds W."""
        return self.length.shape[0]

    @property
    def count(self) -> int:
        """Prompts of each world N."""
        return self.length.shape[1]

    def take(self, index: Whole) -> PromptSet:
        """Prompts `index` [W, P] of each world."""
        rows = index + self.count * np.arange(self.worlds)[:, None]

        def chosen(values: np.ndarray) -> np.ndarray:
            if values is self.features:
                return values.reshape(-1, values.shape[-1])[rows]
            return values.reshape(*values.shape[:-2], -1)[..., rows]

        return _mapped(self, chosen)


@dataclass(frozen=True)
class Population:
    """W worlds: what the policy knows before training and what it is asked.

    Attributes
    ----------
    skill_logit : array [W, K]
        theta0 of skills, then of gating skills.
    coupling : array [W, K, R] or None
        W of `Policy`; None is the identity.
    train, held_out : PromptSet
        Drawn from one law.
    exploit_error : array [members, W, exploits] or None
        What each member of a reward model's ensemble adds to an exploit's score.
    """

    skill_logit: Array
    coupling: Array | None
    train: PromptSet
    held_out: PromptSet
    exploit_error: Array | None

    @property
    def worlds(self) -> int:
        """Number of worlds W."""
        return self.skill_logit.shape[0]

    @property
    def parameters(self) -> int:
        """Size R of the policy's parameter vector."""
        return self.skill_logit.shape[1] if self.coupling is None else self.coupling.shape[2]

    def repeat(self, times: int) -> Population:
        """Every world `times` times in a row, for as many seeds of training on the same prompts."""
        check_counts(times=times)
        index = np.repeat(np.arange(self.worlds), times)
        return self.only(index)

    def only(self, worlds: Whole) -> Population:
        """Worlds of these numbers, in this order."""
        skills = self.skill_logit.shape[1]

        def prompts(of: PromptSet) -> PromptSet:
            moved = skills * (np.arange(len(worlds)) - worlds)[:, None]

            def chosen(values: np.ndarray) -> np.ndarray:
                if values is of.features:
                    return values[worlds]
                picked = values[..., worlds, :]
                return picked + moved if values is of.skill else picked

            return _mapped(of, chosen)

        return Population(
            self.skill_logit[worlds],
            None if self.coupling is None else self.coupling[worlds],
            prompts(self.train),
            prompts(self.held_out),
            None if self.exploit_error is None else self.exploit_error[:, worlds],
        )


def draw_population(settings: Settings, worlds: int, rng: np.random.Generator) -> Population:
    """Draw `worlds` worlds.

    Parameters
    ----------
    settings : Settings
    worlds : int
    rng : numpy.random.Generator
        Source of all randomness.
    """
    check_counts(worlds=worlds)
    law, verifier = settings.prompts, settings.verifier
    # A generator for each quantity: what one setting draws leaves the rest of the world as it was.
    of_skills, of_gates, of_coupling, of_errors, of_train, of_held_out = rng.spawn(6)
    skill_logit = of_skills.normal(0.0, law.skill_sd, (worlds, law.skills))
    if law.gate_share > 0:
        low, high = np.log(law.gate_rate)
        rate = np.exp(of_gates.uniform(low, high, (worlds, law.gates)))
        passed = rate / (1 - law.slip)
        skill_logit = np.hstack([skill_logit, np.log(passed / (1 - passed))])
    size = settings.policy.rank or skill_logit.shape[1]
    coupling = None
    if settings.policy.rank is not None:
        coupling = of_coupling.normal(0.0, size**-0.5, (worlds, skill_logit.shape[1], size))
    train = _draw_prompts(settings, skill_logit, size, law.train, of_train)
    held_out = _draw_prompts(settings, skill_logit, size, law.held_out, of_held_out)
    held_out = replace(held_out, wrong_reference=np.zeros_like(held_out.wrong_reference))
    error = None
    if (model := verifier.reward_model) is not None:
        shape = (worlds, verifier.exploits)
        common = of_errors.normal(0.0, np.sqrt(model.shared), shape)
        own = of_errors.normal(0.0, np.sqrt(1 - model.shared), (model.members, *shape))
        error = model.error_sd * (common + own)
    return Population(skill_logit, coupling, train, held_out, error)


def pass_rates(skill_logit: Array, prompts: PromptSet) -> Array:
    """Probability [W, N] of passing all steps before training."""
    x = skill_logit.ravel()[prompts.skill] - prompts.difficulty
    return np.prod(prompts.top / (1 + np.exp(-x)), axis=0)


def _draw_prompts(
    settings: Settings, skill_logit: Array, size: int, count: int, rng: np.random.Generator
) -> PromptSet:
    law = settings.prompts
    worlds, skills = skill_logit.shape
    shape = (worlds, count)
    names = (
        "chain",
        "skill",
        "prompt",
        "step",
        "far",
        "gated",
        "gate",
        "flipped",
        "exploit",
        "features",
        "unsolvable",
    )
    draw = dict(zip(names, rng.spawn(len(names)), strict=True))
    chain = np.minimum(1 + draw["chain"].poisson(law.chain_mean - 1, shape), law.chain_longest)
    frequency = np.arange(1, law.skills + 1, dtype=float) ** -law.skill_decay
    skill = draw["skill"].choice(law.skills, (law.steps, *shape), p=frequency / frequency.sum())
    prompt = draw["prompt"].normal(law.difficulty, law.difficulty_sd, shape)
    step = draw["step"].normal(0.0, law.step_sd, (law.steps, *shape))
    far = draw["far"].random(shape) < law.gap_share
    gated = draw["gated"].random(shape) < law.gate_share
    number = np.arange(law.steps)[:, None, None]
    top = np.where(number < chain, 1 - law.slip, 1.0)

    # From here on, indices count through all worlds.
    first = skills * np.arange(worlds)[:, None]
    chained = PromptSet(
        skill=skill + first,
        difficulty=np.where(number < chain, step, -ALWAYS),
        top=top,
        length=chain,
        wrong_reference=draw["flipped"].random(shape) < settings.verifier.wrong_reference,
        exploit_logit=draw["exploit"].normal(0.0, settings.verifier.exploit_sd, shape),
        features=draw["features"].normal(0.0, size**-0.5, (*shape, size))
        if settings.policy.features > 0
        else None,
        stratum=np.zeros(shape, dtype=np.int64),
    )
    if law.pass_rates is None:
        prompt = prompt + law.gap * far
    else:
        prompt = _matching(draw["prompt"].choice(law.pass_rates, shape), skill_logit, chained)
        far = np.zeros_like(far)
    difficulty = np.where(number < chain, chained.difficulty + prompt, -ALWAYS)

    if law.gate_share > 0:
        here = (number == chain) & gated
        gate = law.skills + draw["gate"].integers(0, law.gates, shape) + first
        chained.skill[:] = np.where(here, gate, chained.skill)
        difficulty = np.where(here, 0.0, difficulty)
        top[here] = 1 - law.slip
    top[0, draw["unsolvable"].random(shape) < law.unsolvable] = 0.0
    drawn = replace(chained, difficulty=difficulty, length=chain + gated)
    return replace(drawn, stratum=_strata(pass_rates(skill_logit, drawn), far, gated))


def _matching(rate: Array, skill_logit: Array, prompts: PromptSet) -> Array:
    """Difficulty [W, N] that gives each prompt this pass rate before training, by bisection."""
    x = skill_logit.ravel()[prompts.skill] - prompts.difficulty
    log_rate = np.log(np.minimum(rate, _MOST * np.prod(prompts.top, axis=0)))
    chain = prompts.difficulty > -ALWAYS
    low, high = np.full(rate.shape, -60.0), np.full(rate.shape, 60.0)
    for _ in range(60):
        middle = (low + high) / 2
        passing = np.sum(
            np.log(prompts.top) - np.logaddexp(0.0, np.where(chain, middle - x, -ALWAYS)), axis=0
        )
        easy = passing > log_rate
        low, high = np.where(easy, middle, low), np.where(easy, high, middle)
    return (low + high) / 2


def _strata(rate: Array, far: NDArray[np.bool_], gated: NDArray[np.bool_]) -> Whole:
    plain = ~(far | gated)
    stratum = np.where(gated, 4, 3)
    for world in range(len(rate)):
        rates = rate[world, plain[world]]
        if rates.size:
            order = np.argsort(np.argsort(rates, kind="stable"), kind="stable")
            stratum[world, plain[world]] = 2 - 3 * order // rates.size
    return stratum


def _mapped(prompts: PromptSet, change: Callable[[np.ndarray], np.ndarray]) -> PromptSet:
    """Apply `change` to every array."""
    values = ((field.name, getattr(prompts, field.name)) for field in fields(prompts))
    changed: dict[str, Any] = {name: None if value is None else change(value) for name, value in values}
    return PromptSet(**changed)
