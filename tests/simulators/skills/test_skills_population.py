"""Are worlds drawn from the law that their settings describe, and are settings without meaning refused?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chisquare, kstest, norm, poisson

from forecast.errors import InputError
from simulators.skills.population import ALWAYS, STRATA, draw_population, pass_rates
from simulators.skills.settings import (
    Context,
    Costs,
    Policy,
    Prompts,
    Recipe,
    RewardModel,
    Settings,
    Verifier,
)
from simulators.skills.training import train

PLAIN = Prompts(skills=12, train=2_000, held_out=2_000)


def draw(prompts=PLAIN, worlds=4, seed=1, **parts):
    return draw_population(Settings(prompts=prompts, **parts), worlds, np.random.default_rng(seed))


def within(prompts):
    """Which steps belong to a chain [step, world, prompt]."""
    return np.arange(len(prompts.skill))[:, None, None] < prompts.length


def share_agrees(found, share):
    """A share of 0s and 1s lies within 4 standard errors."""
    error = np.sqrt(share * (1 - share) / found.size)
    return abs(found.mean() - share) < 4 * error


# --- The law of prompts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decay", [0.0, 1.0, 2.0])
def test_skills_are_as_frequent_as_a_power_of_their_number(decay):
    world = draw(replace(PLAIN, skill_decay=decay))
    for prompts in (world.train, world.held_out):
        skill = (prompts.skill - 12 * np.arange(4)[:, None])[within(prompts)]
        frequency = np.arange(1, 13.0) ** -decay
        counts = np.bincount(skill, minlength=12)
        assert chisquare(counts, counts.sum() * frequency / frequency.sum()).pvalue > 1e-3


@pytest.mark.parametrize(("mean", "longest"), [(3.0, 8), (1.5, 3), (4.0, 4)])
def test_chains_are_one_and_a_poisson_number_long_and_cut(mean, longest):
    length = draw(replace(PLAIN, chain_mean=mean, chain_longest=longest)).train.length
    number = np.arange(longest)
    chance = poisson.pmf(number, mean - 1)
    chance[-1] += poisson.sf(longest - 1, mean - 1)
    counts = np.bincount(length.ravel() - 1, minlength=longest)
    assert chisquare(counts, counts.sum() * chance).pvalue > 1e-3
    assert (draw(replace(PLAIN, chain_mean=1.0)).train.length == 1).all()


def test_difficulty_varies_over_prompts_and_over_their_steps():
    law = replace(PLAIN, difficulty=0.7, difficulty_sd=1.2, step_sd=0.4, chain_mean=4.0)
    prompts = draw(law, worlds=8).train
    two = prompts.length >= 2
    first, second = prompts.difficulty[0][two], prompts.difficulty[1][two]
    error = np.sqrt(1.6 / two.sum())
    assert first.mean() == pytest.approx(0.7, abs=4 * error)
    assert second.mean() == pytest.approx(0.7, abs=4 * error)
    covariance = np.cov(first, second)
    np.testing.assert_allclose(covariance, [[1.6, 1.44], [1.44, 1.6]], rtol=0.06)
    assert (prompts.difficulty[~within(prompts)] == -ALWAYS).all()
    assert (prompts.top[~within(prompts)] == 1).all()
    assert (prompts.top[within(prompts)] == 1 - law.slip).all()


def test_skills_start_around_zero():
    logit = draw(replace(PLAIN, skills=4_000, skill_sd=0.8)).skill_logit
    assert kstest(logit.ravel() / 0.8, norm.cdf).pvalue > 1e-3


MIXED = replace(PLAIN, gate_share=0.3, gates=3, gate_rate=(1e-3, 0.1), gap_share=0.2, gap=6.0, unsolvable=0.1)


def test_shares_of_gated_far_and_unsolvable_prompts():
    world = draw(MIXED, verifier=Verifier(wrong_reference=0.15))
    for prompts in (world.train, world.held_out):
        last = np.take_along_axis(prompts.skill, prompts.length[None] - 1, axis=0)[0]
        gated = last - 15 * np.arange(4)[:, None] >= 12
        assert share_agrees(gated, 0.3)
        assert (gated == (prompts.stratum == STRATA.index("gated"))).all()
        far = prompts.stratum[~gated] == STRATA.index("far")
        assert share_agrees(far, 0.2)
        assert share_agrees(prompts.top[0] == 0, 0.1)
        for gate in range(3):
            assert share_agrees((last - 15 * np.arange(4)[:, None])[gated] == 12 + gate, 1 / 3)
    assert share_agrees(world.train.wrong_reference, 0.15)
    assert not world.held_out.wrong_reference.any()


def test_far_prompts_are_harder_by_the_gap():
    prompts = draw(MIXED, worlds=8).train
    far, near = prompts.stratum == STRATA.index("far"), prompts.stratum < STRATA.index("far")
    distance = prompts.difficulty[0][far].mean() - prompts.difficulty[0][near].mean()
    error = np.sqrt(1.25 * (1 / far.sum() + 1 / near.sum()))
    assert distance == pytest.approx(6, abs=4 * error)


def test_gates_open_at_the_requested_rate():
    for low, high in [(1e-3, 1e-3), (1e-4, 0.1)]:
        law = Prompts(skills=5, train=1, held_out=1, gate_share=1.0, gates=500, gate_rate=(low, high))
        rate = (1 - law.slip) * expit(draw(law).skill_logit[:, 5:].ravel())
        if low == high:
            np.testing.assert_allclose(rate, low, rtol=1e-12)
        else:
            assert rate.min() > low
            assert rate.max() < high
            assert kstest(np.log(rate / low) / np.log(high / low), "uniform").pvalue > 1e-3


def test_a_gate_is_one_more_step_of_no_difficulty():
    law = replace(PLAIN, gate_share=1.0, gate_rate=(0.02, 0.02))
    prompts = draw(law).train
    last = prompts.length[None] - 1
    assert (np.take_along_axis(prompts.difficulty, last, axis=0) == 0).all()
    assert prompts.length.min() == 2
    assert prompts.length.max() == law.chain_longest + 1
    assert (np.take_along_axis(prompts.top, last, axis=0) == 1 - law.slip).all()


def test_strata_are_thirds_by_pass_rate():
    world = draw(MIXED)
    for prompts in (world.train, world.held_out):
        rate = pass_rates(world.skill_logit, prompts)
        for of_world, stratum in zip(rate, prompts.stratum, strict=True):
            easy, medium, hard = (of_world[stratum == number] for number in range(3))
            assert easy.min() >= medium.max()
            assert medium.min() >= hard.max()
            for third in (easy, medium, hard):
                assert third.size == pytest.approx((stratum < 3).sum() / 3, abs=1.5)


@pytest.mark.parametrize("slip", [0.0, 0.1])
def test_requested_pass_rates_are_hit(slip):
    wanted = (1e-6, 0.01, 0.3, 0.6, 1.0)
    world = draw(replace(PLAIN, pass_rates=wanted, slip=slip))
    for prompts in (world.train, world.held_out):
        rate = pass_rates(world.skill_logit, prompts)
        most = 0.99 * (1 - slip) ** prompts.length
        capped = np.minimum(np.array(wanted)[:, None, None], most)
        distance = np.abs(rate / capped - 1)
        nearest = distance.argmin(axis=0)
        assert distance.min(axis=0).max() < 1e-9
        clear = most > 0.6
        for number in range(5):
            assert share_agrees((nearest == number)[clear], 1 / 5)


def test_a_gate_multiplies_the_requested_pass_rate():
    world = draw(replace(PLAIN, pass_rates=(0.2,), slip=0.02, gate_share=0.5, gate_rate=(0.01, 0.01)))
    rate = pass_rates(world.skill_logit, world.train)
    gated = world.train.stratum == STRATA.index("gated")
    np.testing.assert_allclose(rate[gated], 0.002, rtol=1e-9)
    np.testing.assert_allclose(rate[~gated], 0.2, rtol=1e-9)


def test_pass_rates_multiply_the_steps():
    world = draw(replace(PLAIN, train=20, held_out=20, slip=0.05))
    for number, logits in enumerate(world.skill_logit):
        for prompt in range(20):
            expected = 1.0
            for step in range(world.train.length[number, prompt]):
                skill = world.train.skill[step, number, prompt] - 12 * number
                x = logits[skill] - world.train.difficulty[step, number, prompt]
                expected *= 0.95 / (1 + np.exp(-x))
            assert pass_rates(world.skill_logit, world.train)[number, prompt] == pytest.approx(expected)


def test_training_and_held_out_prompts_are_of_one_law():
    world = draw(MIXED, worlds=20)
    train_rate, held_out_rate = (pass_rates(world.skill_logit, of) for of in (world.train, world.held_out))
    apart = (train_rate - held_out_rate).mean(axis=1)
    error = np.sqrt(train_rate.var(axis=1) / 2_000 + held_out_rate.var(axis=1) / 2_000)
    # One standard normal per world.
    assert np.sum((apart / error) ** 2) < 45
    assert abs(np.sum(apart / error)) < 4 * np.sqrt(20)
    assert not np.array_equal(world.train.skill, world.held_out.skill)


# --- The policy's parameters -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [3, 50])
def test_coupling_and_features_have_variance_one_over_rank(rank):
    law = replace(PLAIN, skills=300, train=300, held_out=2)
    world = draw(law, policy=Policy(rank=rank, features=0.5))
    assert world.parameters == rank
    for values in (world.coupling, world.train.features):
        assert values.shape == (4, 300, rank)
        assert kstest(values.ravel() * np.sqrt(rank), norm.cdf).pvalue > 1e-3


def test_without_a_rank_every_skill_has_a_parameter():
    world = draw(MIXED, policy=Policy(features=1.0))
    assert world.coupling is None
    assert world.parameters == 15
    assert world.train.features.var() * 15 == pytest.approx(1, rel=0.03)
    assert draw().train.features is None


def test_exploits_vary_over_prompts_and_reward_models_agree_in_part():
    model = RewardModel(members=3, error_sd=2.0, shared=0.3)
    law = replace(PLAIN, train=500, held_out=1)
    world = draw(law, worlds=50, verifier=Verifier(exploits=200, exploit_sd=0.7, reward_model=model))
    assert kstest(world.train.exploit_logit.ravel() / 0.7, norm.cdf).pvalue > 1e-3
    covariance = np.cov(world.exploit_error.reshape(3, -1))
    np.testing.assert_allclose(covariance, 4 * (0.3 + 0.7 * np.eye(3)), atol=0.2)
    assert draw().exploit_error is None


# --- Parts of a population ---------------------------------------------------------------------------------------


RICH = Settings(
    prompts=replace(MIXED, train=12, held_out=9),
    policy=Policy(rank=6, features=0.5, memory=1.0),
    verifier=Verifier(
        wrong_reference=0.2,
        exploits=2,
        exploit_logit=-2.0,
        exploit_sd=1.0,
        reward_model=RewardModel(members=2),
    ),
    recipe=Recipe(steps=1, prompts=12),
)


def before_training(world):
    history = train(world, RICH, np.random.default_rng(1), at=[1])
    return history.held_out, history.train


@pytest.mark.parametrize("worlds", [[2], [3, 0], [1, 1, 2]])
def test_a_world_alone_is_the_world_in_the_stack(worlds):
    stack = draw_population(RICH, 4, np.random.default_rng(2))
    alone = stack.only(np.array(worlds))
    assert alone.worlds == len(worlds)
    for whole, part in zip(before_training(stack), before_training(alone), strict=True):
        for name in ("solved", "accepted", "truncated", "exploited", "entropy"):
            np.testing.assert_allclose(
                getattr(part, name)[0], getattr(whole, name)[0][worlds], rtol=1e-12, atol=1e-300
            )
    first = before_training(stack)[0].solved[0]
    assert not np.allclose(first[0], first[1])


def test_repeated_worlds_come_in_a_row():
    stack = draw_population(RICH, 3, np.random.default_rng(2))
    twice = stack.repeat(2)
    assert twice.worlds == 6
    whole, part = before_training(stack)[0], before_training(twice)[0]
    np.testing.assert_array_equal(part.accepted[0], np.repeat(whole.accepted[0], 2, axis=0))
    # They are trained apart.
    assert not np.array_equal(part.accepted[1][0], part.accepted[1][1])
    with pytest.raises(InputError, match="times"):
        stack.repeat(0)


def test_chosen_prompts_keep_all_they_have():
    world = draw_population(RICH, 3, np.random.default_rng(2))
    index = np.array([[3, 3, 0], [11, 1, 2], [5, 6, 7]])
    taken = world.train.take(index)
    for number in range(3):
        for at, prompt in enumerate(index[number]):
            for name in ("skill", "difficulty", "top"):
                np.testing.assert_array_equal(
                    getattr(taken, name)[:, number, at], getattr(world.train, name)[:, number, prompt]
                )
            for name in ("length", "wrong_reference", "exploit_logit", "features", "stratum"):
                np.testing.assert_array_equal(
                    getattr(taken, name)[number, at], getattr(world.train, name)[number, prompt]
                )


def test_a_seed_fixes_the_worlds():
    one, again, other = (pass_rates(w.skill_logit, w.held_out) for w in (draw(), draw(), draw(seed=2)))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    with pytest.raises(InputError, match="worlds"):
        draw(worlds=0)


# --- Settings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "name", "bad"),
    [
        *((Prompts, name, [0, -1, 1.5, True, 10**7]) for name in ("skills", "train", "held_out")),
        *((Prompts, name, [0, 2.0]) for name in ("chain_longest", "gates")),
        (Prompts, "chain_mean", [0.9, 101.0, np.nan]),
        (Prompts, "skill_decay", [-0.1, np.inf]),
        *((Prompts, name, [-0.1, 21.0]) for name in ("skill_sd", "difficulty_sd", "step_sd")),
        (Prompts, "difficulty", [-21.0, np.nan]),
        (Prompts, "gap", [-1.0, 41.0]),
        (Prompts, "slip", [-0.1, 1.0]),
        *((Prompts, name, [-0.1, 1.1]) for name in ("unsolvable", "gap_share", "gate_share")),
        (Prompts, "gate_rate", [(0.0, 0.1), (0.2, 0.1), (0.1, 1.0), (0.1, 0.98), (0.1,)]),
        (Prompts, "pass_rates", [(), (0.0,), (0.5, 1.1), (np.nan,)]),
        (Policy, "rank", [0, 2.5]),
        *((Policy, name, [-0.1, np.inf]) for name in ("features", "curvature", "memory")),
        (Context, "limit", [0.0, -1.0, np.nan]),
        (Context, "tokens_per_step", [0.0, np.inf]),
        (Context, "length_sd", [-0.1, 6.0]),
        (Context, "prompt_tokens", [-1.0]),
        (RewardModel, "members", [0, 1.0]),
        (RewardModel, "aggregate", ["median"]),
        *((RewardModel, name, [-0.1, 51.0]) for name in ("separation", "error_sd")),
        (RewardModel, "shared", [-0.1, 1.1]),
        *(
            (Verifier, name, [-0.1, 1.1, np.nan])
            for name in (
                "true_positive",
                "false_positive",
                "wrong_reference",
                "wrong_reference_accepts",
                "exploit_accepted",
            )
        ),
        (Verifier, "exploits", [-1, 0.5]),
        (Verifier, "exploit_logit", [-51.0, np.inf]),
        (Verifier, "exploit_sd", [-0.1]),
        *((Recipe, name, [0, 1.5, False]) for name in ("steps", "prompts", "rollouts", "refills")),
        (Recipe, "rollouts", [1]),
        (Recipe, "staleness", [-1, 0.5]),
        *(
            (Recipe, name, ["", "other"])
            for name in ("advantage", "credit", "aggregation", "correction", "filter", "optimiser")
        ),
        (Recipe, "ratio_cap", [0.9]),
        *((Recipe, name, [-0.1, np.nan]) for name in ("kl", "learning_rate", "exploit_rate")),
        (Recipe, "retire_above", [-0.1, 1.1]),
        (Costs, "parameters", [0.0, np.inf]),
        (Costs, "flops_per_second", [0.0]),
        *((Costs, name, [0.0, 1.1]) for name in ("generation_utilisation", "training_utilisation")),
    ],
)
def test_settings_without_meaning_are_refused_by_name(part, name, bad):
    for value in bad:
        with pytest.raises(InputError, match=rf"\b{name}\b"):
            part(**{name: value})


def test_settings_at_their_limits_are_allowed():
    Prompts(skills=1, train=1, held_out=1, chain_mean=1.0, slip=0.0, gate_rate=(0.5, 0.99), pass_rates=(1.0,))
    Recipe(rollouts=1, advantage="reinforce")
    Verifier(true_positive=0.0, false_positive=1.0)
    assert Prompts(chain_longest=4, gate_share=0.1).steps == 5
    assert Prompts(chain_longest=4).steps == 4
