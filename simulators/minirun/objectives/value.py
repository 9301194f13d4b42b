"""Loss of the value head: half the squared error of the reward predicted before each token.

With gamma = lambda = 1 the return at every token is the reward. Schulman et al. 2017 (arXiv 1707.06347), without the
clipping of values that some implementations add.
"""

from __future__ import annotations

from torch import Tensor

from simulators.minirun.objectives.aggregation import aggregate


def value_loss(values: Tensor, rewards: Tensor, mask: Tensor, kept: Tensor) -> Tensor:
    """Mean over tokens of (value - reward)^2 / 2, tensor []; to be weighed by the recipe's `value_weight`.

    Parameters
    ----------
    values : tensor [P, G, L]
    rewards : tensor [P, G]
    mask : bool tensor [P, G, L]
    kept : bool tensor [P]
    """
    errors = 0.5 * (values - rewards[:, :, None]) ** 2
    return aggregate(errors, mask, kept, "token", longest=values.shape[2])
