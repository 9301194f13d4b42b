"""What an objective sees of a batch of rollouts, and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Scored:
    """Rollouts of P prompts x G each, L tokens at most, scored by the policy that is trained.

    Attributes
    ----------
    logp : tensor [P, G, L]
        Log-probability of each token under the policy that is trained; carries the gradient.
    behaviour : tensor [P, G, L]
        The same under the policy that sampled it, as that policy computed it.
    mask : bool tensor [P, G, L]
        Tokens that the policy chose: up to and including the end, without what was forced on it.
    rewards : tensor [P, G]
    advantages : tensor [P, G] or [P, G, L]
    kept : bool tensor [P]
        Groups that count in sums and in what they are divided by.
    reference : tensor [P, G, L] or None
        Log-probability under the warm start; only where an objective or its KL term needs it.
    """

    logp: Tensor
    behaviour: Tensor
    mask: Tensor
    rewards: Tensor
    advantages: Tensor
    kept: Tensor
    reference: Tensor | None = None


@dataclass(frozen=True)
class Loss:
    """To be minimised: a scalar tensor, and figures (plain floats) for the log."""

    value: Tensor
    figures: dict[str, float] = field(default_factory=dict)
