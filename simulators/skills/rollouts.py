"""Rollouts of one batch as counts.

Rollouts of a group that failed at the same step with the same reward are interchangeable, so that a group is described
by how many there are of each kind. The counts are drawn one binomial after the other along the chain: exact in law, at
a cost that hardly depends on the number of rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from simulators.skills.acceptance import Acceptance
from simulators.skills.context import Room
from simulators.skills.population import Array, Whole

_COUNTS = ("failed", "truncated", "solved", "exploited")


@dataclass(frozen=True)
class Groups:
    """Counts of rollouts by how they ended. The first axis of most is the reward: 0 rejected, 1 accepted.

    Attributes
    ----------
    failed : array [2, L, W, P]
        First failed at step l.
    truncated : array [L, W, P]
        Cut before step l; never accepted.
    solved : array [2, W, P]
        Passed all steps.
    exploited : array [2, J, W, P]
        Took exploit j.
    rollouts : int
        Of each group.
    """

    failed: Array
    truncated: Array
    solved: Array
    exploited: Array
    rollouts: int

    @cached_property
    def accepted(self) -> Array:
        """Rollouts [W, P] with reward 1."""
        return self.failed[1].sum(axis=0) + self.solved[1] + self.exploited[1].sum(axis=0)

    @cached_property
    def mixed(self) -> np.ndarray:
        """Groups [W, P] whose rewards are not all alike."""
        accepted = self.accepted
        return (accepted > 0) & (accepted < self.rollouts)

    def take(self, index: Whole) -> Groups:
        """Groups `index` [W, P] of each world."""
        world = np.arange(len(index))[:, None]
        chosen: dict[str, Any] = {name: getattr(self, name)[..., world, index] for name in _COUNTS}
        return replace(self, **chosen)

    def join(self, others: list[Groups]) -> Groups:
        """These groups, and those of other batches behind them."""
        batches = [self, *others]
        parts: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in batches], axis=-1) for name in _COUNTS
        }
        return replace(self, **parts)


def sample_groups(
    failing: Array,
    length: Whole,
    exploiting: Array,
    acceptance: Acceptance,
    room: Room,
    rollouts: int,
    rng: np.random.Generator,
) -> Groups:
    """Draw the rollouts of one batch.

    Parameters
    ----------
    failing : array [L, W, P]
        Probability of failing each step.
    length : array of int [W, P]
        Steps of each prompt.
    exploiting : array [J, W, P]
        Probability of each exploit.
    acceptance : Acceptance
    room : Room
    rollouts : int
        Per group.
    rng : numpy.random.Generator
    """
    steps, *shape = failing.shape
    reaching = np.full(shape, rollouts)
    exploited = np.zeros((2, *exploiting.shape))
    left = np.ones(shape)
    for j, chance in enumerate(exploiting):
        taken = _binomial(reaching, np.minimum(chance / left, 1.0), rng)
        reaching -= taken
        left = np.maximum(left - chance, 1e-300)
        exploited[1, j] = _binomial(taken, np.broadcast_to(acceptance.exploit[j][:, None], shape), rng)
        exploited[0, j] = taken - exploited[1, j]

    failed = np.zeros((2, steps, *shape))
    truncated = np.zeros((steps, *shape))
    for step in range(steps):
        running = np.where(length > step, reaching, 0)
        if room.hazard[step] > 0:
            cut = _binomial(running, np.full(shape, room.hazard[step]), rng)
            truncated[step] = cut
            running -= cut
            reaching -= cut
        down = _binomial(running, failing[step], rng)
        reaching -= down
        if acceptance.wrong_never:
            failed[0, step] = down
        else:
            failed[1, step] = _binomial(down, acceptance.wrong, rng)
            failed[0, step] = down - failed[1, step]

    solved = np.zeros((2, *shape))
    solved[1] = reaching if acceptance.right_always else _binomial(reaching, acceptance.right, rng)
    solved[0] = reaching - solved[1]
    return Groups(failed, truncated, solved, exploited, rollouts)


def _binomial(count: np.ndarray, chance: Array, rng: np.random.Generator) -> np.ndarray:
    """Binomial draws; nothing is drawn where there is nothing to draw."""
    drawn = np.zeros_like(count)
    at = np.nonzero(count)
    drawn[at] = rng.binomial(count[at], chance[at])
    return drawn
