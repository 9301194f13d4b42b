"""Clipped ratios: min(r A, clip(r, 1 - low, 1 + high) A), for each token.

PPO: Schulman et al. 2017 (arXiv 1707.06347, eq. 7); GRPO: Shao et al. 2024 (2402.03300); DAPO, whose upper clip is
higher ("clip-higher"): Yu et al. 2025 (2503.14476). A token whose ratio already moved past the bound that its
advantage pushes it to has no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.tokens import advantage, log_ratio
from simulators.minirun.settings import Recipe


def clipped(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut, bool [P, G, L]."""
    terms, cut = surrogate(log_ratio(batch).exp(), advantage(batch), recipe.clip_low, recipe.clip_high)
    return -aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest), cut


def surrogate(ratio: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """min(r A, clip(r, 1 - low, 1 + high) A), and whether the clip bound.

    Parameters
    ----------
    ratio : tensor [P, G, L]
    advantages : tensor [P, G, 1] or [P, G, L]
    low, high : float

    Returns
    -------
    tensor [P, G, L], bool tensor [P, G, L]
    """
    # The minimum only ever takes the upper bound where A > 0 and the lower where A < 0.
    bounded = torch.where(advantages >= 0, ratio.clamp(max=1 + high), ratio.clamp(min=1 - low))
    cut = torch.where(advantages > 0, ratio > 1 + high, (advantages < 0) & (ratio < 1 - low))
    return bounded * advantages, cut
