"""A batch seen token by token: what the families of objectives share."""

from __future__ import annotations

import torch
from torch import Tensor

from forecast.errors import InputError
from simulators.minirun.objectives.batch import Scored


def log_ratio(batch: Scored) -> Tensor:
    """Log-ratio [P, G, L] of the trained to the sampling policy; zero outside the mask.

    Not clamped: it is at most -behaviour, and tokens so rare that exp(-behaviour) overflows are not drawn.
    """
    return torch.where(batch.mask, batch.logp - batch.behaviour, 0.0)


def advantage(batch: Scored) -> Tensor:
    """Advantage [P, G, 1] of rollouts or [P, G, L] of tokens."""
    return batch.advantages if batch.advantages.ndim == 3 else batch.advantages[:, :, None]


def reference(batch: Scored) -> Tensor:
    """Log-probability [P, G, L] under the warm start.

    Raises
    ------
    InputError
        If the batch has none.
    """
    if batch.reference is None:
        raise InputError("the batch has no log-probabilities under the warm start", fix="pass reference")
    return batch.reference
