"""From a term per token to one number: which tokens, rollouts and prompts count alike."""

from __future__ import annotations

import torch
from torch import Tensor


def aggregate(per_token: Tensor, mask: Tensor, kept: Tensor, how: str, longest: int) -> Tensor:
    """Aggregate over the tokens that count.

    Parameters
    ----------
    per_token : tensor [P, G, L]
    mask : bool tensor [P, G, L]
        Tokens that count. A rollout without any counts nowhere, nor does a group of such rollouts.
    kept : bool tensor [P]
        Groups that count, in the sum and in what it is divided by.
    how : str
        ``token``: mean over all tokens (DAPO, Yu et al. 2025, arXiv 2503.14476). ``sequence``: mean over rollouts of
        the mean over their tokens (GRPO, Shao et al. 2024, 2402.03300). ``prompt``: mean over groups of the mean over
        their tokens (ScaleRL, 2510.13786). ``constant``: sum over tokens, divided by rollouts x `longest` (Dr. GRPO,
        Liu et al. 2025, 2503.20783).
    longest : int
        Tokens that a rollout may have.

    Returns
    -------
    tensor []
        Zero, with a graph, where nothing counts.
    """
    counted = mask & kept[:, None, None]
    # torch.where and not a product: what is not counted may be infinite, and 0 x inf is no number.
    terms = torch.where(counted, per_token, 0.0)
    if how == "token":
        return terms.sum() / _number(counted)
    if how == "sequence":
        return (terms.sum(dim=2) / _number(counted, 2)).sum() / _number(counted.any(dim=2))
    if how == "prompt":
        of_groups = terms.sum(dim=(1, 2)) / _number(counted, (1, 2))
        return of_groups.sum() / _number(counted.any(dim=2).any(dim=1))
    if how == "constant":
        return terms.sum() / (_number(counted.any(dim=2)) * longest)
    raise ValueError(f"no such aggregation: {how}")


def _number(counted: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Return how many count, at least one, so that nothing divided by it is zero."""
    return counted.sum(dim=dim).clamp(min=1)
