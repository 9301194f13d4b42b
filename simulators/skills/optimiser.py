"""Gradient ascent: plain, or Adam."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from simulators.skills.population import Array

DECAY = (0.9, 0.95)
_EPSILON = 1e-8


class Optimiser(Protocol):
    """Turns gradients into what is added to the parameters."""

    def step(self, gradient: Array) -> Array:
        """Change of the parameters, in the shape of the gradient."""


class Sgd:
    """Learning rate times gradient."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def step(self, gradient: Array) -> Array:
        """Change of the parameters."""
        return self._rate * gradient


class Adam:
    """Kingma and Ba 2015 (arXiv 1412.6980, algorithm 1) with the decays `DECAY`."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._mean: Array | float = 0.0
        self._square: Array | float = 0.0
        self._steps = 0

    def step(self, gradient: Array) -> Array:
        """Change of the parameters."""
        first, second = DECAY
        self._steps += 1
        self._mean = first * self._mean + (1 - first) * gradient
        self._square = second * self._square + (1 - second) * gradient**2
        mean = self._mean / (1 - first**self._steps)
        square = self._square / (1 - second**self._steps)
        return self._rate * mean / (np.sqrt(square) + _EPSILON)


def optimiser(name: str, rate: float) -> Optimiser:
    """The optimiser of that name."""
    return Adam(rate) if name == "adam" else Sgd(rate)
