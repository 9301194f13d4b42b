"""Are measurements of a policy with known pass rates what counting rollouts would give?"""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy.stats import binom

from simulators.skills.metrics import (
    best_of_n,
    majority,
    pass_at_k,
    sample_solved,
    unbiased_pass_at_k,
    worst_of_k,
)

RATES = np.array([0.02, 0.3, 0.55, 0.9])
TRIALS = 100_000


def agree(closed, wins):
    """The closed form of each prompt lies within 4 standard errors of what came out, wins [trial, prompt]."""
    error = wins.std(axis=0) / np.sqrt(len(wins))
    assert error.max() < 0.002
    assert np.all(np.abs(closed - wins.mean(axis=0)) < 4 * error + 1e-4)


@pytest.mark.parametrize("k", [1, 2, 5, 16])
def test_pass_at_k_and_worst_of_k_count_rollouts(k):
    rng = np.random.default_rng(1)
    right = rng.random((TRIALS, k, RATES.size)) < RATES
    agree(pass_at_k(RATES[:, None], k), right.any(axis=1))
    agree(worst_of_k(RATES[:, None], k), right.all(axis=1))


def test_pass_at_k_and_worst_of_k_of_certain_and_of_even_prompts():
    rates = np.array([[0.0, 1.0], [0.5, 0.5]])
    np.testing.assert_allclose(pass_at_k(rates, 3), [0.5, 0.875])
    np.testing.assert_allclose(worst_of_k(rates, 3), [0.5, 0.125])
    for measure in (pass_at_k, worst_of_k):
        assert measure(RATES, 1) == pytest.approx(RATES.mean())
        assert measure(np.ones((3, 2, 5)), 4).shape == (3, 2)


@pytest.mark.parametrize("n", [1, 2, 8])
@pytest.mark.parametrize(("accepts", "errs", "exploits"), [(0.9, 0.1, 0.0), (0.8, 0.3, 0.2), (1.0, 0.0, 0.3)])
def test_best_of_n_is_the_answer_a_verifier_picks(n, accepts, errs, exploits):
    rng = np.random.default_rng(2)
    # Exploits take the place of attempts, are always accepted and never right.
    rate = RATES * (1 - exploits)
    accepted = rate * accepts + (1 - exploits - rate) * errs + exploits
    shape = (TRIALS, n, RATES.size)
    exploiting = rng.random(shape) < exploits
    right = ~exploiting & (rng.random(shape) < RATES)
    taken = exploiting | (rng.random(shape) < np.where(right, accepts, errs))
    # A random one of the accepted, or of all.
    picked = np.argmax(taken + rng.random(shape), axis=1)
    wins = np.take_along_axis(right, picked[:, None], axis=1)[:, 0]
    agree(best_of_n(rate[:, None], accepted[:, None], accepts, n), wins)


def test_best_of_n_at_its_ends():
    rate, rng = RATES[:, None], np.random.default_rng(3)
    accepted = rng.uniform(rate * 0.7, 1 - rate * 0.3)
    np.testing.assert_allclose(best_of_n(rate, accepted, 0.7, 1), RATES)
    # A verifier without errors finds one right answer if there is one.
    np.testing.assert_allclose(best_of_n(rate, rate, 1.0, 6), pass_at_k(rate, 6))
    # A verifier at chance chooses at random.
    np.testing.assert_allclose(best_of_n(rate, np.full_like(rate, 0.4), 0.4, 6), RATES)
    np.testing.assert_allclose(best_of_n(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 1.0, 4), 0.5)
    # Of many answers the chosen one is a random accepted one.
    np.testing.assert_allclose(best_of_n(rate, accepted, 0.7, 10_000), 0.7 * RATES / accepted[:, 0])


@pytest.mark.parametrize("alternatives", [1, 2, 8])
@pytest.mark.parametrize("n", [1, 2, 5, 16])
def test_majority_is_the_commonest_answer(n, alternatives):
    rng = np.random.default_rng(4)
    right = rng.random((TRIALS, n, RATES.size)) < RATES
    answer = np.where(right, 0, rng.integers(1, alternatives + 1, right.shape))
    votes = np.stack([(answer == a).sum(axis=1) for a in range(alternatives + 1)])
    # Ties are broken at random.
    wins = np.argmax(votes + rng.random(votes.shape), axis=0) == 0
    agree(majority(RATES[:, None], n, alternatives), wins)


@pytest.mark.parametrize("alternatives", [1, 2, 3, 8])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_majority_by_enumeration(n, alternatives):
    expected = np.zeros(RATES.size)
    for answers in product(range(alternatives + 1), repeat=n):
        most = max(map(answers.count, answers))
        modes = {answer for answer in answers if answers.count(answer) == most}
        if 0 in modes:
            right = answers.count(0)
            chance = RATES**right * ((1 - RATES) / alternatives) ** (n - right)
            expected += chance / len(modes)
    np.testing.assert_allclose(majority(RATES[:, None], n, alternatives), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [7, 64, 128])
def test_majority_against_one_alternative_is_a_binomial_tail(n):
    ties = binom.pmf(n / 2, n, RATES)
    np.testing.assert_allclose(
        majority(RATES[:, None], n, 1), binom.sf(n // 2, n, RATES) + ties / 2, rtol=1e-9
    )
    assert majority(np.array([0.0, 1.0]), n, 1) == pytest.approx(0.5)


@pytest.mark.parametrize(("samples", "k"), [(6, 1), (6, 3), (8, 8)])
def test_unbiased_pass_at_k_is_the_share_of_subsets_with_a_right_answer(samples, k):
    for solved in range(samples + 1):
        hits = [min(chosen) < solved for chosen in combinations(range(samples), k)]
        assert unbiased_pass_at_k(solved, samples, k) == pytest.approx(np.mean(hits))


@pytest.mark.parametrize("k", [1, 4, 16])
def test_unbiased_pass_at_k_is_unbiased(k):
    count = np.arange(17)
    estimate = unbiased_pass_at_k(count, 16, k)
    for rate in RATES:
        assert binom.pmf(count, 16, rate) @ estimate == pytest.approx(1 - (1 - rate) ** k)
    solved = sample_solved(np.tile(RATES, (TRIALS, 1)), 16, np.random.default_rng(5))
    drawn = unbiased_pass_at_k(solved, 16, k)
    error = drawn.std(axis=0) / np.sqrt(TRIALS)
    assert np.all(np.abs(drawn.mean(axis=0) - pass_at_k(RATES[:, None], k)) < 4 * error + 1e-4)


def test_sampled_answers_are_binomial():
    solved = sample_solved(np.tile(RATES, (TRIALS, 1)), 10, np.random.default_rng(6))
    sd = np.sqrt(10 * RATES * (1 - RATES))
    assert np.all(np.abs(solved.mean(axis=0) - 10 * RATES) < 4 * sd / np.sqrt(TRIALS))
    np.testing.assert_allclose(solved.std(axis=0), sd, rtol=0.03)
    assert (solved >= 0).all()
    assert (solved <= 10).all()
    # Rounding may leave a pass rate just outside of 0 to 1.
    ends = sample_solved(np.array([-1e-17, 1 + 1e-15]), 10, np.random.default_rng(7))
    assert ends.tolist() == [0, 10]
