"""Divergence from the warm start, estimated for each token: ref / p - log(ref / p) - 1 ("k3").

Schulman 2020 ("Approximating KL divergence", joschu.net); a term of the loss in GRPO, Shao et al. 2024 (arXiv
2402.03300, eq. 4).

On tokens drawn from the policy its value is unbiased for KL(p || ref). Its gradient as a loss is not that of the
value, as the tokens are drawn by the policy too and that is not differentiated: E_p[(1 - ref / p) grad log p] =
-E_ref[grad log p], which is the gradient of KL(ref || p), the divergence the other way round. Both vanish at p = ref
and agree there to first order. Tokens drawn from an older policy are not corrected for.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The policy may give a token that an older one drew any probability, so that the ratio may overflow: beyond this its
# token has no gradient.
LARGEST = 20.0


def divergence(logp: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """k3 of each token, tensor [P, G, L], zero outside the mask.

    Parameters
    ----------
    logp, reference : tensor [P, G, L]
        Log-probability of each token under the policy, and under the warm start.
    mask : bool tensor [P, G, L]
    """
    difference = torch.where(mask, reference - logp, 0.0).clamp(max=LARGEST)
    return torch.expm1(difference) - difference
