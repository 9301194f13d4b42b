"""Which prompts come next: epochs in random order, without those that have been retired."""

from __future__ import annotations

import numpy as np

from simulators.skills.population import Array, Whole


class PromptQueue:
    """Draws batches of training prompts for W worlds.

    Parameters
    ----------
    worlds, prompts : int
    retire_above : float or None
        Share of accepted rollouts from which on a prompt is not drawn again.
    rng : numpy.random.Generator
    """

    def __init__(
        self, worlds: int, prompts: int, retire_above: float | None, rng: np.random.Generator
    ) -> None:
        self._prompts = prompts
        self._retire_above = retire_above
        self._rng = rng
        self._retired = np.zeros((worlds, prompts), dtype=bool)
        self._waiting = [np.empty(0, dtype=np.int64) for _ in range(worlds)]

    @property
    def retired(self) -> Array:
        """Share of prompts [W] that are not drawn any more."""
        return self._retired.mean(axis=1)

    def next(self, count: int, worlds: Whole | None = None) -> Whole:
        """Prompts [W, count] of the next batch, for all worlds or these."""
        numbers = range(len(self._waiting)) if worlds is None else worlds
        return np.stack([self._draw(world, count) for world in numbers])

    def visited(self, index: Whole, rate: Array, worlds: Whole | None = None) -> None:
        """Take note of the share of accepted rollouts `rate` [W, P] on prompts `index` [W, P]."""
        if self._retire_above is None:
            return
        rows = (np.arange(len(index)) if worlds is None else worlds)[:, None]
        self._retired[np.broadcast_to(rows, index.shape), index] |= rate >= self._retire_above
        for world in np.flatnonzero(self._retired.all(axis=1)):
            self._retired[world] = False

    def _draw(self, world: int, count: int) -> Whole:
        parts, missing = [], count
        waiting = self._waiting[world]
        while missing > 0:
            waiting = waiting[~self._retired[world, waiting]]
            if not waiting.size:
                waiting = self._rng.permutation(np.flatnonzero(~self._retired[world]))
            parts.append(waiting[:missing])
            waiting = waiting[missing:]
            missing -= parts[-1].size
        self._waiting[world] = waiting
        return np.concatenate(parts)
