"""Advantages from counts. Rewards are 0 or 1, so that a group has two of them: rejected and accepted.

Where a quantity is centred on the group, the accepted rollouts' advantage is never negative, and that of the rejected
never positive.
"""

from __future__ import annotations

import numpy as np

from simulators.skills.population import Array


def outcome_advantages(accepted: Array, rollouts: int, kind: str, kept: np.ndarray) -> Array:
    """Advantage [2, W, P] of rejected and accepted rollouts.

    Parameters
    ----------
    accepted : array [W, P]
        Accepted rollouts of each group.
    rollouts : int
        Of each group.
    kind : str
        See `simulators.skills.settings.Recipe`; ``grpo`` is Shao et al. 2024 (arXiv 2402.03300, eq. 3),
        ``unnormalised`` Liu et al. 2025 (2503.20783), ``batch`` ScaleRL (2510.13786). Standard deviations are the
        population's (ddof 0).
    kept : array of bool [W, P]
        Groups that the batch sd is taken over.
    """
    if kind == "reinforce":
        return np.stack([np.zeros_like(accepted), np.ones_like(accepted)])
    mean = accepted / rollouts
    return np.stack([-mean, 1 - mean]) * _scale(mean, rollouts, kind, kept)


def process_advantages(passed: Array, tried: Array, kind: str, kept: np.ndarray) -> Array:
    """Advantage [2, L, W, P] of failing and passing each step, among the rollouts that reached it.

    Parameters
    ----------
    passed, tried : array [L, W, P]
        Rollouts that passed each step, and that tried it.
    kind, kept
        As in `outcome_advantages`.
    """
    if kind == "reinforce":
        return np.stack([np.zeros_like(passed), np.ones_like(passed)])
    mean = passed / np.maximum(tried, 1)
    return np.stack([-mean, 1 - mean]) * _scale(mean, tried, kind, kept)


def _scale(mean: Array, count: Array | int, kind: str, kept: np.ndarray) -> Array | float:
    """Return what a reward minus the mean of its group is multiplied by."""
    if kind == "unnormalised":
        return 1.0
    if kind == "rloo":
        # r - mean of the others = n / (n - 1) (r - mean of all); one rollout has no others.
        return np.where(np.asarray(count) > 1, count / np.maximum(np.asarray(count) - 1, 1), 0.0)
    variance = mean * (1 - mean)
    if kind == "grpo":
        return np.where(variance > 0, 1 / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0)
    weight = kept * np.asarray(count, dtype=float)
    over = tuple(axis for axis in range(variance.ndim) if axis != variance.ndim - 2)
    total = np.broadcast_to(weight, variance.shape).sum(axis=over)
    pooled = (weight * variance).sum(axis=over) / np.maximum(total, 1.0)
    return np.where(pooled > 0, 1 / np.sqrt(np.where(pooled > 0, pooled, 1.0)), 0.0)[:, None]
