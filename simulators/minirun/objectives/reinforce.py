"""REINFORCE: A log p; and the same with each token's importance ratio: r A.

Williams 1992 (Machine Learning 8, 229-256); for language models Ahmadian et al. 2024 (arXiv 2402.14740).
r_t = p(token) / p_behaviour(token), so that the gradients are A grad log p and r A grad log p.

Where behaviour and policy differ, `importance` is the gradient of the expected reward for answers of one token. For
longer ones it corrects each token alone, not the prefix that led to it nor what followed: it is the gradient of the sum
over positions of the reward expected when the policy chooses that one token and the behaviour all others. That
first-order surrogate is what PPO clips (Schulman et al. 2017, 1707.06347, eq. 6).
"""

from __future__ import annotations

import torch
from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.tokens import advantage, log_ratio
from simulators.minirun.settings import Recipe


def reinforce(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut, bool [P, G, L]: none."""
    loss = -aggregate(advantage(batch) * batch.logp, batch.mask, batch.kept, recipe.aggregation, longest)
    return loss, torch.zeros_like(batch.mask)


def importance(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut, bool [P, G, L]: none."""
    terms = advantage(batch) * log_ratio(batch).exp()
    loss = -aggregate(terms, batch.mask, batch.kept, recipe.aggregation, longest)
    return loss, torch.zeros_like(batch.mask)
