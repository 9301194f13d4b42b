"""Online direct preference optimisation: the best rollout of each group against its worst.

-log sigmoid(beta ((log p_w - log ref_w) - (log p_l - log ref_l))), summed over tokens inside, mean over the groups that
have a pair. Loss: Rafailov et al. 2023 (arXiv 2305.18290); on pairs sampled from the policy and labelled as it trains:
Guo et al. 2024 (2402.04792), here by the verifier. Advantages and the recipe's aggregation play no part.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from simulators.minirun.advantages import varies
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.tokens import reference
from simulators.minirun.settings import Recipe


def online_dpo(batch: Scored, recipe: Recipe, longest: int) -> tuple[Tensor, Tensor]:
    """Loss [] and which tokens were cut, bool [P, G, L]: none.

    Of rollouts with equal rewards the first is taken; a group has no pair where all are equal.
    """
    log_ratios = torch.where(batch.mask, batch.logp - reference(batch), 0.0).sum(dim=2)
    best = log_ratios.gather(1, batch.rewards.argmax(dim=1, keepdim=True))
    worst = log_ratios.gather(1, batch.rewards.argmin(dim=1, keepdim=True))
    terms = -logsigmoid(recipe.beta * (best - worst))
    pairs = (varies(batch.rewards) & batch.kept)[:, None]
    loss = torch.where(pairs, terms, 0.0).sum() / pairs.sum().clamp(min=1)
    return loss, torch.zeros_like(batch.mask)
