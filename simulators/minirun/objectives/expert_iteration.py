"""Expert iteration: log p of the rollouts that were accepted, whatever the advantage.

STaR: Zelikman et al. 2022 (arXiv 2203.14465); ReST-EM: Singh et al. 2023 (2312.06585). Sums and what they are divided
by run over accepted rollouts only. For one accepted rollout drawn from the policy itself, the gradient is that of the
log of the expected reward: E[grad log p | accepted] = grad log P(accepted).
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.settings import Recipe

# Rewards of accepted rollouts are 1; a penalty for length may lower them, or those of others below 0.
ACCEPTED = 0.5


def expert_iteration(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut, bool [P, G, L]: none."""
    accepted = batch.mask & (batch.rewards > ACCEPTED)[:, :, None]
    loss = -aggregate(batch.logp, accepted, batch.kept, recipe.aggregation, longest)
    return loss, torch.zeros_like(batch.mask)
