"""What stale rollouts count: the factor that the ratio of new to old probability puts on a score.

With ratio r, advantage A and score s = grad log p, the gradient of the surrogate is ``factor A s``.
"""

from __future__ import annotations

import numpy as np

from simulators.skills.population import Array
from simulators.skills.settings import Recipe

CLIP_LOW = 0.2
CLIP_HIGH = {"ppo": 0.2, "dapo": 0.28}


def factor(ratio: Array, recipe: Recipe, *, positive: bool) -> Array:
    """Factor of actions whose advantage is positive (or, if not, negative).

    ``importance``: surrogate rA. ``ppo``: min(rA, clip(r, 1 - .2, 1 + .2) A), Schulman et al. 2017 (arXiv
    1707.06347, eq. 7). ``dapo``: the same with 1 + .28, Yu et al. 2025 (2503.14476, eq. 10). ``cispo``:
    min(r, cap) A log p with the capped ratio held constant, MiniMax 2025 (2506.13585, eq. 4).
    """
    if recipe.correction == "none":
        return np.ones_like(ratio)
    if recipe.correction == "cispo":
        return np.minimum(ratio, recipe.ratio_cap)
    return np.where(outside(ratio, recipe, positive=positive), 0.0, ratio)


def outside(ratio: Array, recipe: Recipe, *, positive: bool) -> np.ndarray:
    """Whether a ratio is clipped or capped."""
    if recipe.correction == "cispo":
        return ratio > recipe.ratio_cap
    if recipe.correction in CLIP_HIGH:
        return ratio > 1 + CLIP_HIGH[recipe.correction] if positive else ratio < 1 - CLIP_LOW
    return np.zeros(ratio.shape, dtype=bool)
