"""Clipped importance weights: sg(min(r, cap)) A log p, for each token; sg: held constant.

MiniMax-M1, 2025 (arXiv 2506.13585). Unlike under a clipped surrogate, every token keeps a gradient; a large ratio only
counts no more than the cap. As there, ratios have no lower bound.
"""

from __future__ import annotations

from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.tokens import advantage, log_ratio
from simulators.minirun.settings import Recipe


def cispo(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens' ratios were capped, bool [P, G, L]."""
    ratio = log_ratio(batch).detach().exp()
    terms = ratio.clamp(max=recipe.ratio_cap) * advantage(batch) * batch.logp
    loss = -aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest)
    return loss, ratio > recipe.ratio_cap
