"""Is the worth of looking what decision theory says it is, for cases that can be worked out another way?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from forecast.outlook.experiments import FEWEST_EFFECTIVE, MOST_DRAWS, Outcome, Worth, worth_of_looking

Draws = tuple[list[Outcome], np.ndarray]
"""Outcomes and utilities; the same before and after, where an experiment uses nothing up."""


def over_seeds(draw: Callable[[np.random.Generator], Draws], seeds: int = 16) -> tuple[np.ndarray, ...]:
    """Mean of gain and p_change over seeds of draws and noise, and the standard errors of these means."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng([41, seed])
        outcomes, utility = draw(rng)
        worth = worth_of_looking(outcomes, utility, utility, rng)
        found.append((worth.gain, worth.p_change))
    values = np.array(found)
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(seeds)


def normal_case(
    rng: np.random.Generator, noise: float, gap: float = 0.01, sds: tuple[float, float] = (0.03, 0.02)
) -> Draws:
    """Two options with independent normal values, of which the first is looked at."""
    size = 1200
    truth = np.column_stack(
        [0.5 + sds[0] * rng.standard_normal(size), 0.5 + gap + sds[1] * rng.standard_normal(size)]
    )
    return [Outcome(truth[:, 0], np.full(size, noise))], truth


@pytest.mark.parametrize("gap", [0.01, -0.02])
@pytest.mark.parametrize("noise", [0.005, 0.02, 0.05])
def test_one_look_at_one_of_two_normal_values(noise: float, gap: float) -> None:
    # Raiffa & Schlaifer 1961: the posterior mean of the option looked at is normal around its prior mean with sd
    # s**2 / sqrt(s**2 + noise**2), so the expected value of the look is the unit normal loss integral times that.
    spread = 0.03**2 / np.hypot(0.03, noise)
    u = abs(gap) / spread
    expected = spread * (norm.pdf(u) - u * norm.sf(u))
    mean, error = over_seeds(lambda rng: normal_case(rng, noise, gap))
    # Four standard errors over seeds, and what choosing by a mean of few draws costs: half the density of equal
    # means times the variance of their difference, with no less than 150 effective draws of 600 in a half.
    bias = 0.5 * norm.pdf(u) / spread * (0.03**2 + 0.02**2) / 150
    assert abs(mean[0] - expected) < 4 * error[0] + bias
    assert 4 * error[0] + bias < 0.5 * expected
    # The look changes the choice when it turns the order of both means round.
    assert abs(mean[1] - norm.sf(u)) < 4 * error[1] + 0.02


ATOMS = np.array([0.16, 0.24, 0.20, 0.25, 0.15])
FIRST = np.array([0.48, 0.50, 0.52, 0.55, 0.60])
SECOND = np.array([0.55, 0.50, 0.57, 0.49, 0.56])
SDS = np.array([0.010, 0.020, 0.045, 0.015, 0.030])
UTILITY = np.array(
    [[0.48, 0.55, 0.53], [0.50, 0.52, 0.53], [0.57, 0.51, 0.53], [0.55, 0.49, 0.53], [0.49, 0.56, 0.53]]
)
"""Five states of the world, what two evaluations would show in each and with which noise, and three options."""


def exactly(densities: np.ndarray, area: float) -> tuple[float, float]:
    """Gain and probability of another choice by quadrature; densities of what is seen, by state, shape (5, points)."""
    joint = ATOMS[:, None] * densities
    score = UTILITY.T @ joint
    leader = int(np.argmax(ATOMS @ UTILITY))
    gain = float(score.max(axis=0).sum() * area) - float((ATOMS @ UTILITY)[leader])
    return gain, float(joint.sum(axis=0)[score.argmax(axis=0) != leader].sum() * area)


def atoms_case(rng: np.random.Generator, looks: int) -> Draws:
    state = rng.choice(len(ATOMS), size=1000, p=ATOMS)
    outcomes = [Outcome(FIRST[state], SDS[state]), Outcome(SECOND[state], np.full(1000, 0.03))]
    return outcomes[:looks], UTILITY[state]


def test_one_look_whose_noise_depends_on_the_truth_against_quadrature() -> None:
    y = np.linspace(0.2, 0.9, 20_001)
    gain, change = exactly(norm.pdf(y, FIRST[:, None], SDS[:, None]), y[1] - y[0])
    mean, error = over_seeds(lambda rng: atoms_case(rng, 1))
    assert abs(mean[0] - gain) < 4 * error[0]
    assert abs(mean[1] - change) < 4 * error[1]
    assert 4 * error[0] < 0.15 * gain


def test_two_looks_against_quadrature() -> None:
    y, x = np.linspace(0.2, 0.9, 701), np.linspace(0.2, 0.9, 351)
    both = (
        norm.pdf(y, FIRST[:, None], SDS[:, None])[:, :, None] * norm.pdf(x, SECOND[:, None], 0.03)[:, None, :]
    )
    gain, change = exactly(both.reshape(5, -1), (y[1] - y[0]) * (x[1] - x[0]))
    mean, error = over_seeds(lambda rng: atoms_case(rng, 2))
    assert abs(mean[0] - gain) < 4 * error[0]
    assert abs(mean[1] - change) < 4 * error[1]
    # Two looks are better than one by more than the test can be wrong.
    one, _ = exactly(norm.pdf(y, FIRST[:, None], SDS[:, None]), y[1] - y[0])
    assert gain - one > 4 * error[0]


def test_nothing_is_learnt_from_noise_alone() -> None:
    rng = np.random.default_rng(3)
    outcomes, utility = normal_case(rng, noise=1e4)
    worth = worth_of_looking(outcomes, utility, utility, rng)
    assert worth.gain == pytest.approx(0, abs=1e-12)
    assert worth.p_change == 0
    # All draws of the other half agree with such an outcome.
    assert worth.effective == pytest.approx(600, rel=1e-3)


def test_a_tie_that_is_broken_by_chance_is_no_change() -> None:
    for seed in range(6):
        rng = np.random.default_rng([5, seed])
        outcomes, utility = normal_case(rng, noise=1e4, gap=0.0, sds=(0.03, 0.03))
        worth = worth_of_looking(outcomes, utility, utility, rng)
        assert (worth.gain, worth.p_change) == (pytest.approx(0, abs=1e-12), 0)


def test_without_noise_the_truth_is_seen() -> None:
    rng = np.random.default_rng(4)
    outcomes, utility = atoms_case(rng, 1)
    sure = [Outcome(outcomes[0].truth, np.full(1000, 1e-6))]
    worth = worth_of_looking(sure, utility, utility, rng)
    # Five states that are told apart for certain: perfect information, of these very draws.
    assert worth.gain == pytest.approx(utility.max(axis=1).mean() - utility.mean(axis=0).max(), abs=1e-12)
    assert worth.p_change == np.mean(utility.argmax(axis=1) != np.argmax(utility.mean(axis=0)))


@pytest.mark.parametrize("cost", [0.004, 0.5])
def test_what_the_experiment_uses_up_lowers_the_gain_by_as_much(cost: float) -> None:
    outcomes, utility = normal_case(np.random.default_rng(5), noise=0.02)
    free, paid = (
        worth_of_looking(outcomes, utility, utility - less, np.random.default_rng(6)) for less in (0.0, cost)
    )
    assert paid.gain == pytest.approx(free.gain - cost, abs=1e-12)
    assert (paid.p_change, paid.effective) == (free.p_change, free.effective)
    assert paid.gain_se == pytest.approx(free.gain_se)


def test_the_choice_is_made_by_what_is_left_after_the_experiment() -> None:
    rng = np.random.default_rng(9)
    outcomes, now = normal_case(rng, noise=1e4)
    later = now - np.array([0.0, 0.1])  # of the leader too little is left
    worth = worth_of_looking(outcomes, now, later, rng)
    assert worth.p_change == 1
    assert worth.gain == pytest.approx(now[:, 0].mean() - now[:, 1].mean(), abs=1e-12)


def test_a_useless_experiment_gains_nothing_on_average() -> None:
    def draw(rng: np.random.Generator) -> Draws:
        # What is seen has nothing to do with the options; few draws agree with it, so their means scatter.
        utility = 0.5 + 0.03 * rng.standard_normal((400, 3))
        return [Outcome(rng.uniform(0, 1, 400), np.full(400, 0.02))], utility

    mean, error = over_seeds(draw, seeds=60)
    assert mean[0] < 3 * error[0]
    # A draw weighted by its own outcome would gain a fifteenth (one of about fifteen effective draws) of .03 x .85,
    # the expected largest of three: this test sees a quarter of that.
    assert 3 * error[0] < 0.03 * 0.85 / 15


def test_the_stated_error_is_that_of_repetition() -> None:
    def repeat(seed: int) -> Worth:
        rng = np.random.default_rng([42, seed])
        outcomes, utility = normal_case(rng, noise=0.02)
        return worth_of_looking(outcomes, utility, utility, rng)

    found = [repeat(seed) for seed in range(40)]
    scatter = np.std([worth.gain for worth in found], ddof=1)
    # An sd from 40 is known to 11 %; both halves share one set of draws, which may widen it.
    assert 0.6 < scatter / np.mean([worth.gain_se for worth in found]) < 1.5


def test_more_draws_than_needed_are_not_used() -> None:
    rng = np.random.default_rng(7)
    size = MOST_DRAWS + 2001
    truth = 0.5 + 0.02 * rng.standard_normal((size, 2))
    worth = worth_of_looking([Outcome(truth[:, 0], np.full(size, 1e4))], truth, truth - 0.1, rng)
    assert worth.effective == pytest.approx(MOST_DRAWS / 2, rel=1e-3)


def test_too_few_agreeing_draws_are_not_enough_to_choose_by() -> None:
    rng = np.random.default_rng(8)
    outcomes, utility = normal_case(rng, noise=1e-4)
    worth = worth_of_looking(outcomes, utility, utility, rng)
    assert worth.effective < FEWEST_EFFECTIVE
    assert not worth.computed
    assert worth_of_looking(normal_case(rng, noise=0.02)[0], utility, utility, rng).computed
