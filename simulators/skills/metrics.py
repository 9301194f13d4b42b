"""What one could measure of a policy whose pass rate on every prompt is known.

Rollouts on a prompt are independent given the policy, so that all of these are closed forms of its pass rate p.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb, exp, lgamma, log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.ranges import check_number
from simulators.skills.population import Array


def pass_at_k(rate: Array, k: int) -> Array:
    """Probability that one of `k` rollouts is right, mean over the last axis: 1 - (1 - p)^k."""
    return (1 - (1 - rate) ** k).mean(axis=-1)


def worst_of_k(rate: Array, k: int) -> Array:
    """Probability that all of `k` rollouts are right, mean over the last axis: p^k."""
    return (rate**k).mean(axis=-1)


def best_of_n(rate: Array, accepted: Array, true_positive: float, n: int) -> Array:
    """Probability that the answer the verifier chooses among `n` is right, mean over the last axis.

    One of the accepted answers is chosen at random, or any answer if none is. With u the probability of being
    accepted, it is (1 - (1 - u)^n) p TPR / u + (1 - u)^n p (1 - TPR) / (1 - u).

    Parameters
    ----------
    rate, accepted : array [..., prompt]
        Probability of a right, and of an accepted rollout.
    true_positive : float
        Probability that a right answer is accepted.
    n : int
    """
    none = (1 - accepted) ** n
    chosen = np.minimum(rate * true_positive / np.maximum(accepted, 1e-300), 1.0)
    otherwise = np.minimum(rate * (1 - true_positive) / np.maximum(1 - accepted, 1e-300), 1.0)
    return ((1 - none) * chosen + none * otherwise).mean(axis=-1)


def majority(rate: Array, n: int, alternatives: int = 8) -> Array:
    """Probability that the commonest of `n` answers is right, mean over the last axis.

    Wrong answers are one of `alternatives` each, with equal probability; ties are broken at random.
    """
    wins = _wins(n, alternatives)
    count = np.arange(n + 1)
    log_choose = np.array([lgamma(n + 1) - lgamma(c + 1) - lgamma(n - c + 1) for c in count])
    p = np.clip(rate, 1e-300, 1 - 1e-16)[..., None]
    log_chance = log_choose + count * np.log(p) + (n - count) * np.log1p(-p)
    return (np.exp(log_chance) @ wins).mean(axis=-1)


def sample_solved(rate: Array, samples: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Right answers among `samples` rollouts on each prompt: an evaluation as one would run it."""
    return rng.binomial(samples, np.clip(rate, 0.0, 1.0))


def unbiased_pass_at_k(solved: ArrayLike, samples: int, k: int) -> Array:
    """Estimate pass@k of each prompt from `solved` of `samples` rollouts.

    1 - C(n - c, k) / C(n, k), Chen et al. 2021 (arXiv 2107.03374, eq. 1).

    Raises
    ------
    InputError
        If k is not within 1 to `samples`.
    """
    check_number("k", k, 1, samples)
    table = np.array([1 - comb(samples - c, k) / comb(samples, k) for c in range(samples + 1)])
    return table[np.asarray(solved)]


@lru_cache(maxsize=32)
def _wins(n: int, alternatives: int) -> Array:
    """Probability that c right answers of `n` are the commonest, c = 0 ... n.

    The n - c wrong answers fall on the alternatives at random. Poisson counts given their sum have that law, so that the
    chance of t alternatives at exactly c and the rest below is a convolution of Poisson probabilities over that of the sum.
    """
    wins = np.zeros(n + 1)
    for c in range(1, n + 1):
        wrong = n - c
        below = np.array([_poisson(j, wrong / alternatives) for j in range(min(c, wrong + 1))])
        for ties in range(min(alternatives, wrong // c) + 1):
            spread = np.ones(1)
            for _ in range(alternatives - ties):
                spread = np.convolve(spread, below)[: wrong + 1]
            at = wrong - ties * c
            if at < spread.size:
                tied = comb(alternatives, ties) * _poisson(c, wrong / alternatives) ** ties
                wins[c] += tied * spread[at] / _poisson(wrong, wrong) / (1 + ties)
    return wins


def _poisson(count: int, mean: float) -> float:
    """Probability of `count`."""
    if mean == 0:
        return float(count == 0)
    return exp(count * log(mean) - mean - lgamma(count + 1))
