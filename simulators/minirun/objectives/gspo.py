"""Clipped sequence ratios: min(s A, clip(s, 1 - low, 1 + high) A), s = exp(mean over tokens of log r).

Group sequence policy optimisation: Zheng et al. 2025 (arXiv 2507.18071), whose aggregation is ``sequence`` and whose
bounds are far narrower (3e-4, 4e-4 there) than those for ratios of tokens.

Written per token, as their GSPO-token: the ratio of every token has the value s, and the gradient s grad log p(token).
For an advantage per rollout, value and gradient under ``sequence`` are those of the formula above, as
grad s = s mean_t grad log p_t. It also gives every token its own advantage where the baseline is the value, and the
on-policy gradient is that of REINFORCE under every aggregation.
"""

from __future__ import annotations

from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.clipped import surrogate
from simulators.minirun.objectives.tokens import advantage, log_ratio
from simulators.minirun.settings import Recipe


def gspo(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut (all of a rollout, or none), bool [P, G, L]."""
    logs = log_ratio(batch)
    length = batch.mask.sum(dim=2, keepdim=True).clamp(min=1)
    mean = logs.detach().sum(dim=2, keepdim=True) / length
    ratio = (mean + logs - logs.detach()).exp()
    terms, cut = surrogate(ratio, advantage(batch), recipe.clip_low, recipe.clip_high)
    return -aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest), cut
