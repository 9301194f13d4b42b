"""Tasks with so few prompts that all of them can be listed."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np

from simulators.minirun.tasks.base import Prompts, Task, Whole, is_heldout


@dataclass(frozen=True, kw_only=True)
class ListedTask(Task):
    """A task whose classes are drawn from lists of keys, each key as likely as any other."""

    def _draw_class(
        self, stratum: int, heldout: bool, count: int, rng: np.random.Generator, distinct: bool
    ) -> Prompts:
        pool = _pool(self, stratum, heldout)
        if distinct:
            keys = rng.choice(pool, size=min(count, len(pool)), replace=False)
        else:
            keys = pool[rng.integers(len(pool), size=count)]
        return self._write(keys, stratum, rng)

    @abstractmethod
    def _list(self, stratum: int) -> Whole:
        """Return all keys of a class."""

    @abstractmethod
    def _write(self, keys: Whole, stratum: int, rng: np.random.Generator) -> Prompts:
        """Write the prompts that keys stand for."""


@cache
def _pool(task: ListedTask, stratum: int, heldout: bool) -> Whole:
    keys = task._list(stratum)
    return keys[is_heldout(keys) == heldout]
