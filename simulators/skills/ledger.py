"""What a run has used: rollouts, tokens, FLOPs, GPU-hours, counted from the rollouts made."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from simulators.skills.context import Room
from simulators.skills.population import Array, Whole
from simulators.skills.rollouts import Groups
from simulators.skills.settings import Context, Costs

GENERATION_FLOPS = 2.0
TRAINING_FLOPS = 6.0
"""Per parameter and token."""


@dataclass(frozen=True)
class Ledger:
    """Totals [W] since the start of training.

    A prompt is read once for all its rollouts. What a filter drops was generated, not trained on. Tokens of rollouts
    that ended by themselves are means given their number of steps.

    Attributes
    ----------
    rollouts, steps, generated, trained : array [W]
        Rollouts and their steps; tokens read and generated; tokens trained on.
    """

    rollouts: Array
    steps: Array
    generated: Array
    trained: Array

    def __add__(self, other: Ledger) -> Ledger:
        """Sum of two ledgers."""
        return Ledger(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: Array) -> Ledger:
        """Each world times its factor."""
        return Ledger(*(getattr(self, f.name) * factor for f in fields(self)))

    def flops(self, costs: Costs) -> Array:
        """Generation and training together."""
        work = GENERATION_FLOPS * self.generated + TRAINING_FLOPS * self.trained
        return costs.parameters * work

    def gpu_hours(self, costs: Costs) -> Array:
        """At the utilisations of `costs`."""
        seconds = (
            GENERATION_FLOPS * self.generated / costs.generation_utilisation
            + TRAINING_FLOPS * self.trained / costs.training_utilisation
        )
        return costs.parameters * seconds / costs.flops_per_second / 3600


def empty(worlds: int) -> Ledger:
    """Nothing used yet."""
    return Ledger(*(np.zeros(worlds) for _ in fields(Ledger)))


def account(groups: Groups, length: Whole, room: Room, context: Context, trained: np.ndarray) -> Ledger:
    """What a batch used.

    Parameters
    ----------
    groups : Groups
    length : array of int [W, P]
    room : Room
    context : Context
    trained : array of bool [W, P]
        Groups that were trained on.
    """
    failed, solved, truncated = (
        groups.failed[0] + groups.failed[1],
        groups.solved.sum(axis=0),
        groups.truncated,
    )
    exploited = groups.exploited.sum(axis=(0, 1))
    number = np.arange(len(truncated), dtype=float)
    taken = np.tensordot(number + 1, failed, 1) + length * solved + exploited
    tokens = (
        np.tensordot(room.tokens[1:], failed, 1)
        + room.tokens[length] * solved
        + room.tokens[1] * exploited
        + context.prompt_tokens
    )
    if not room.unlimited:
        taken += np.tensordot(number, truncated, 1)
        tokens += room.truncated_tokens * truncated.sum(axis=0)
    return Ledger(
        rollouts=np.full(len(length), float(groups.rollouts * length.shape[1])),
        steps=taken.sum(axis=1),
        generated=tokens.sum(axis=1),
        trained=(tokens * trained).sum(axis=1),
    )
