"""Advantages: what is subtracted from rewards, and what the rest is divided by.

| recipe | baseline | scale |
|---|---|---|
| GRPO, Shao et al. 2024 (arXiv 2402.03300) | group | group |
| Dr. GRPO, Liu et al. 2025 (2503.20783) | group | none |
| RLOO, Ahmadian et al. 2024 (2402.14740) | leave_one_out | none |
| REINFORCE++, Hu 2025 (2501.03262) | batch | batch |
| REINFORCE++-baseline (the same), Magistral (2506.10910), ScaleRL (2510.13786) | group | batch |
| PPO, Schulman et al. 2017 (1707.06347), GAE with gamma = lambda = 1 | value | batch or none |
"""

from __future__ import annotations

import torch
from torch import Tensor

from forecast.errors import InputError
from simulators.minirun.settings import Recipe

# Added to standard deviations: it bounds what one odd rollout counts where all the others agree.
FLOOR = 1e-4


def varies(rewards: Tensor) -> Tensor:
    """Whether the rewards of each group differ: bool [P] of [P, G].

    Compared and not computed from a variance, which rounding keeps from being zero.
    """
    return rewards.amax(dim=1) > rewards.amin(dim=1)


def advantages(
    rewards: Tensor,
    recipe: Recipe,
    kept: Tensor | None = None,
    values: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Advantage of each rollout, or of each token where the baseline is the value.

    Parameters
    ----------
    rewards : tensor [P, G]
    recipe : Recipe
        Its `baseline` and `scale`.
    kept : bool tensor [P], optional
        Groups that the mean and the sd of the batch are taken over; by default all.
    values, mask : tensors [P, G, L], optional
        Predicted reward before each token, and which tokens count; both needed where the baseline is the value.

    Returns
    -------
    tensor [P, G], or [P, G, L] where the baseline is the value
        Exactly zero where a group's rewards are all equal and the baseline is of the group. Carries no gradient.

    Notes
    -----
    Standard deviations are the population's (ddof 0): of the rewards within the group, or of the baselined rewards
    over the kept part of the batch (over its tokens, where each has its own).
    """
    kept = torch.ones_like(rewards[:, 0], dtype=torch.bool) if kept is None else kept
    if recipe.baseline == "value":
        if values is None or mask is None:
            raise InputError("the value baseline needs values and a mask", fix="pass values and mask")
        result = torch.where(mask, rewards[:, :, None] - values.detach(), 0.0)
        counted = mask & kept[:, None, None]
    else:
        result = _baselined(rewards, recipe.baseline, kept)
        counted = kept[:, None].expand_as(rewards)
    if recipe.scale == "group":
        spread = rewards.std(dim=1, correction=0) + FLOOR
        return result / spread.view(-1, *[1] * (result.ndim - 1))
    if recipe.scale == "batch":
        mean = _mean(result, counted)
        return result / (_mean((result - mean) ** 2, counted).sqrt() + FLOOR)
    return result


def _baselined(rewards: Tensor, baseline: str, kept: Tensor) -> Tensor:
    if baseline == "none":
        return rewards.clone()
    if baseline == "batch":
        return rewards - _mean(rewards, kept[:, None].expand_as(rewards))
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    if baseline == "leave_one_out":
        # r - mean of the others = G / (G - 1) (r - mean of all).
        rollouts = rewards.shape[1]
        centred = centred * (rollouts / (rollouts - 1))
    # The mean of equal numbers may be off by a rounding error, which division by FLOOR would blow up.
    return torch.where(varies(rewards)[:, None], centred, 0.0)


def _mean(entries: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of the entries that count; zero where none does."""
    return torch.where(counted, entries, 0.0).sum() / counted.sum().clamp(min=1)
