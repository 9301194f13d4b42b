"""Which training prompts come next: a shuffled pool, over and over, without those that have become too easy."""

from __future__ import annotations

import numpy as np


class Feed:
    """Prompts of a pool, each once per round.

    Parameters
    ----------
    size : int
        Prompts in the pool.
    rng : numpy.random.Generator
        Shuffles every round.
    """

    def __init__(self, size: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.easy = np.zeros(size, dtype=bool)
        self.order = rng.permutation(size)
        self.at = 0

    def next(self, count: int) -> np.ndarray:
        """Indices [count] of prompts that are not easy.

        Where fewer than `count` are left, all prompts come back: training never stops for want of them.
        """
        if (~self.easy).sum() < count:
            self.easy[:] = False
        taken: list[int] = []
        while len(taken) < count:
            if self.at == len(self.order):
                self.order = self.rng.permutation(len(self.order))
                self.at = 0
            index = int(self.order[self.at])
            self.at += 1
            if not self.easy[index] and index not in taken:
                taken.append(index)
        return np.array(taken)

    def set_aside(self, indices: np.ndarray) -> None:
        """Never draw these again."""
        self.easy[indices] = True
