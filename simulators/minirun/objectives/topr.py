"""Tapered off-policy REINFORCE: w A log p, w = 1 where A >= 0, else the rollout's ratio clipped to [0, 1].

Le Roux et al. 2025 (arXiv 2503.14286). The ratio is that of the whole rollout (product over its tokens), held constant.
What is right is fitted however old it is; what is wrong stops to be pushed down once the policy has left it. They take
the sign from the reward, less a baseline where there is one; here it is the advantage's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.tokens import advantage, log_ratio
from simulators.minirun.settings import Recipe


def topr(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens' ratios were capped (of negative rollouts, all tokens or none), bool [P, G, L]."""
    whole = log_ratio(batch).detach().sum(dim=2, keepdim=True)
    negative = advantage(batch) < 0
    # Clamped before the exponential: a product over many tokens overflows.
    weight = torch.where(negative, whole.clamp(max=0).exp(), 1.0)
    terms = weight * advantage(batch) * batch.logp
    loss = -aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest)
    return loss, (negative & (whole > 0)).expand_as(batch.mask)
