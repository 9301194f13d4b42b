"""Are counts of rollouts, what they cost and which prompts they are of as if each rollout was drawn by itself?"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from one_by_one import Batch, Logits, Scene, random_scene, repeated, sample, tally
from scipy.stats import chi2_contingency, norm

from simulators.skills.acceptance import acceptance, rates, score_accepted
from simulators.skills.context import room
from simulators.skills.ledger import Ledger, account, empty
from simulators.skills.population import Population, draw_population
from simulators.skills.queue import PromptQueue
from simulators.skills.rollouts import Groups, sample_groups
from simulators.skills.settings import (
    Context,
    Costs,
    Prompts,
    RewardModel,
    Settings,
    Verifier,
)

LIMITED = Context(limit=800.0, length_sd=0.4)


def counts(scene: Scene, policy: Logits, rollouts: int, seed: int) -> Groups:
    behaviour = scene.behaviour(policy)
    return sample_groups(
        behaviour.steps.failing,
        scene.length,
        behaviour.exploiting,
        scene.acceptance,
        room(scene.context, len(scene.top)),
        rollouts,
        np.random.default_rng(seed),
    )


def kinds(groups: Groups) -> np.ndarray:
    """Counts [kind, W, P] of every way to end, by reward."""
    shape = groups.accepted.shape
    parts = (groups.failed, groups.truncated, groups.solved, groups.exploited)
    return np.concatenate([part.reshape(-1, *shape) for part in parts])


# ------------------------------------------------------------------------------------------------ law


@pytest.mark.parametrize(
    ("exploits", "context", "noisy"),
    [(0, Context(), False), (1, Context(limit=800.0, length_sd=0.0), True), (2, LIMITED, True)],
)
def test_means_and_variances_are_those_of_single_rollouts(
    exploits: int, context: Context, noisy: bool
) -> None:
    scene, policy = random_scene(11 + exploits, exploits, context=context, noisy=noisy)
    rollouts, few, many = 4, 2_000, 20_000
    singly = tally(sample(*repeated(scene, policy, few), rollouts, np.random.default_rng(1)), 4, exploits)
    ours = kinds(counts(*repeated(scene, policy, many), rollouts, seed=2)).reshape(-1, 2, many, 4)
    theirs = kinds(singly).reshape(-1, 2, few, 4)
    assert not (theirs.any(axis=2) & ~ours.any(axis=2)).any()
    assert theirs.any(axis=2).sum() > 25
    for moment in (1, 2):
        samples = [
            each if moment == 1 else (each - each.mean(axis=2, keepdims=True)) ** 2 for each in (ours, theirs)
        ]
        error = np.sqrt(sum(each.var(axis=2) / each.shape[2] for each in samples))
        gap = samples[0].mean(axis=2) - samples[1].mean(axis=2)
        # Kinds seen in a handful of groups have no normal error.
        common = theirs.sum(axis=2) > 20
        assert common.sum() > 20
        assert np.abs(gap[common] / error[common]).max() < 4.5
        assert np.abs(gap[~common]).max(initial=0.0) < 0.1


def test_joint_law_is_that_of_single_rollouts() -> None:
    wide = np.ones((2, 1, 1))
    scene = Scene(
        top=0.9 * wide,
        length=np.array([[2]]),
        exploit_logit=np.zeros((1, 1)),
        right=np.array([[0.8]]),
        wrong=np.array([[0.3]]),
        exploit_accepted=np.array([[0.6]]),
        context=Context(limit=550.0, length_sd=0.4),
    )
    policy = Logits(0.4 * wide, np.array([[-1.2]]))
    singly = kinds(tally(sample(*repeated(scene, policy, 15_000), 3, np.random.default_rng(3)), 2, 1))
    ours = kinds(counts(*repeated(scene, policy, 60_000), 3, seed=4))
    seen = [Counter(map(tuple, each[:, :, 0].T.astype(int))) for each in (singly, ours)]
    outcomes = sorted(set(seen[0]) | set(seen[1]))
    table = np.array([[each[outcome] for outcome in outcomes] for each in seen])
    rare = table.sum(axis=0) < 50
    assert np.sum(~rare) > 30
    pooled = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    assert chi2_contingency(pooled).pvalue > 0.01


@pytest.mark.parametrize("rollouts", [1, 3, 1_000])
def test_every_rollout_is_counted_once_and_none_after_the_end_of_a_chain(rollouts: int) -> None:
    for exploits in (0, 2):
        scene, policy = random_scene(5, exploits, context=LIMITED, noisy=True)
        wide, spread = repeated(scene, policy, 50)
        groups = counts(wide, spread, rollouts, seed=5)
        every = kinds(groups)
        assert (every >= 0).all()
        np.testing.assert_array_equal(every, np.round(every))
        np.testing.assert_array_equal(every.sum(axis=0), rollouts)
        after = np.arange(4)[:, None, None] >= wide.length
        assert not groups.failed[:, after].any()
        assert not groups.truncated[after].any()
        by_reward = groups.failed.sum(axis=1) + groups.solved + groups.exploited.sum(axis=1)
        np.testing.assert_array_equal(groups.accepted, by_reward[1])
        np.testing.assert_array_equal(groups.mixed, (by_reward[1] > 0) & (by_reward[1] < rollouts))
        assert not (rollouts == 1 and groups.mixed.any())


@pytest.mark.parametrize("rollouts", [2, 5, 16])
def test_share_of_groups_that_are_mixed(rollouts: int) -> None:
    scene, policy = random_scene(6, 0)
    many = 20_000
    groups = counts(*repeated(scene, policy, many), rollouts, seed=6)
    passing = np.where(
        np.arange(4)[:, None, None] < scene.length, scene.top / (1 + np.exp(-policy.steps)), 1.0
    )
    p = passing.prod(axis=0)
    expected = 1 - (1 - p) ** rollouts - p**rollouts
    got = groups.mixed.reshape(2, many, 4).mean(axis=1)
    assert np.abs((got - expected) / np.sqrt(expected * (1 - expected) / many)).max() < 4


def test_certain_outcomes() -> None:
    scene, policy = random_scene(7, 1, slip=0.0)
    for shift, solved in ((1_000.0, 6), (-1_000.0, 0)):
        never = Logits(np.where(policy.steps < 400, shift, 500.0), np.full((2, 1), -200.0))
        groups = counts(scene, never, 6, seed=7)
        assert (groups.solved[1] == solved).all()
        assert (groups.failed[0, 0] == 6 - solved).all()
        assert not groups.mixed.any()
    groups = counts(scene, Logits(policy.steps, np.full((2, 1), 200.0)), 6, seed=7)
    assert (groups.exploited.sum(axis=(0, 1)) == 6).all()


def test_wrong_references_and_verifier_rates_are_per_prompt() -> None:
    scene, policy = random_scene(8, 0)
    odd = np.arange(4) % 2 == 1
    scene = replace(
        scene,
        right=np.where(odd, 0.0, 1.0) * np.ones((2, 1)),
        wrong=np.where(odd, 1.0, 0.0) * np.ones((2, 1)),
    )
    groups = counts(scene, policy, 50, seed=8)
    assert not groups.solved[1][:, odd].any()
    assert groups.solved[0][:, odd].any()
    assert not groups.failed[0][..., odd].any()
    assert not groups.failed[1][..., ~odd].any()
    assert not groups.solved[0][:, ~odd].any()


def test_take_and_join() -> None:
    scene, policy = random_scene(9, 2, context=LIMITED, noisy=True)
    first, second = (counts(scene, policy, 5, seed=seed) for seed in (1, 2))
    index = np.array([[2, 0, 2], [3, 3, 1]])
    taken = kinds(first.take(index))
    for w, p in np.ndindex(index.shape):
        np.testing.assert_array_equal(taken[:, w, p], kinds(first)[:, w, index[w, p]])
    joined = first.join([second, first])
    np.testing.assert_array_equal(
        kinds(joined), np.concatenate([kinds(first), kinds(second), kinds(first)], axis=2)
    )
    assert joined.rollouts == 5
    np.testing.assert_array_equal(joined.accepted[:, 4:8], second.accepted)


# ------------------------------------------------------------------------------------------------ context


@pytest.mark.parametrize("limit", [700.0, 1_300.0, 200.0])
def test_room_is_that_of_simulated_verbosity(limit: float) -> None:
    context = Context(limit=limit, tokens_per_step=250.0, length_sd=0.5)
    got = room(context, 5)
    n = 400_000
    per_step = 250.0 * np.exp(np.random.default_rng(1).normal(0.0, 0.5, n))
    before = np.ones(n, dtype=bool)
    assert got.fits[0] == 1
    assert got.tokens[0] == 0
    for step in range(5):
        fits = (step + 1) * per_step <= limit
        assert abs(got.fits[step + 1] - fits.mean()) < 4 * np.sqrt(0.25 / n)
        cut = 1 - fits[before].mean() if before.any() else 1.0
        assert abs(got.hazard[step] - cut) < 4 * np.sqrt(0.25 / max(before.sum(), 1))
        if fits.sum() > 1_000:
            used = (step + 1) * per_step[fits]
            assert abs(got.tokens[step + 1] - used.mean()) < 4 * used.std() / np.sqrt(used.size)
        before = fits
    assert got.truncated_tokens == limit
    assert not got.unlimited


def test_room_without_a_limit() -> None:
    got = room(Context(tokens_per_step=100.0, length_sd=0.5), 3)
    np.testing.assert_array_equal(got.fits, 1.0)
    np.testing.assert_array_equal(got.hazard, 0.0)
    np.testing.assert_allclose(got.tokens, 100.0 * np.exp(0.125) * np.arange(4))
    assert got.unlimited


def test_room_that_fits_nothing() -> None:
    got = room(Context(limit=1e-9, length_sd=0.1), 3)
    np.testing.assert_array_equal(got.fits, [1, 0, 0, 0])
    np.testing.assert_array_equal(got.hazard, 1.0)
    assert np.isfinite(got.tokens).all()
    scene, policy = random_scene(3, 0, context=Context(limit=1e-9, length_sd=0.1))
    groups = counts(scene, policy, 7, seed=1)
    assert (groups.truncated[0] == 7).all()


def test_room_of_rollouts_of_one_verbosity() -> None:
    got = room(Context(limit=750.0, tokens_per_step=250.0, length_sd=0.0), 5)
    np.testing.assert_array_equal(got.fits, [1, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(got.hazard, [0, 0, 0, 1, 1])
    np.testing.assert_allclose(got.tokens, 250.0 * np.arange(6))


# ------------------------------------------------------------------------------------------------ ledger


def spent(batch: Batch, scene: Scene, trained: np.ndarray) -> Ledger:
    """Tally of explicit rollouts."""
    totals = np.zeros((4, len(batch)))
    for w, of_world in enumerate(batch):
        for p, group in enumerate(of_world):
            tokens = scene.context.prompt_tokens + sum(each.tokens for each in group)
            totals[:, w] += (
                len(group),
                sum(each.steps for each in group),
                tokens,
                tokens * trained[w, p],
            )
    return Ledger(*totals)


@pytest.mark.parametrize(
    ("exploits", "context"),
    [(0, Context()), (0, Context(limit=650.0, length_sd=0.4)), (1, Context(limit=1_000.0, length_sd=0.3))],
)
def test_account_is_a_tally_of_rollouts(exploits: int, context: Context) -> None:
    scene, policy = repeated(*random_scene(21, exploits, context=context), 750)
    batch = sample(scene, policy, 3, np.random.default_rng(9))
    groups = tally(batch, 4, exploits)
    trained = groups.mixed
    expected = spent(batch, scene, trained)
    got = account(groups, scene.length, room(context, 4), context, trained)
    np.testing.assert_array_equal(got.rollouts, expected.rollouts)
    np.testing.assert_array_equal(got.steps, expected.steps)
    assert groups.truncated.any() == np.isfinite(context.limit)
    for ours, theirs in ((got.generated, expected.generated), (got.trained, expected.trained)):
        gap = ours - theirs
        assert gap.std() > 0
        assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(gap.size)


def test_flops_and_hours_by_hand() -> None:
    context = Context(tokens_per_step=6.0, length_sd=0.0, prompt_tokens=9.0)
    groups = Groups(
        failed=np.array([1.0, 0.0])[:, None, None, None] * np.ones((2, 1, 1, 4)),
        truncated=np.zeros((1, 1, 4)),
        solved=np.array([0.0, 1.0])[:, None, None] * np.ones((2, 1, 4)),
        exploited=np.zeros((2, 0, 1, 4)),
        rollouts=2,
    )
    length = np.ones((1, 4), dtype=int)
    used = empty(1)
    for _ in range(3):
        used = used + account(groups, length, room(context, 1), context, groups.mixed)
    # 3 updates of 4 prompts: 9 tokens read, and twice 6 generated.
    assert used.generated[0] == 252
    assert used.trained[0] == 252
    assert used.rollouts[0] == 24
    assert used.steps[0] == 24
    costs = Costs(parameters=1e9, flops_per_second=1e12, generation_utilisation=0.1, training_utilisation=0.4)
    assert used.flops(costs)[0] == pytest.approx(1e9 * (2 * 252 + 6 * 252))
    assert used.gpu_hours(costs)[0] == pytest.approx((504e9 / 1e11 + 1512e9 / 4e11) / 3600)
    untrained = account(groups, length, room(context, 1), context, np.zeros_like(groups.mixed))
    assert untrained.generated[0] == 84
    assert untrained.trained[0] == 0
    np.testing.assert_array_equal((used * np.array([0.5])).generated, [126.0])


# ------------------------------------------------------------------------------------------------ queue


def test_every_prompt_comes_once_per_epoch() -> None:
    queue = PromptQueue(3, 12, None, np.random.default_rng(1))
    for _ in range(3):
        epoch = np.concatenate([queue.next(4) for _ in range(3)], axis=1)
        np.testing.assert_array_equal(np.sort(epoch, axis=1), np.tile(np.arange(12), (3, 1)))
    first, second = (queue.next(12) for _ in range(2))
    assert (first != second).any()
    assert (first[0] != first[1]).any()


def test_a_batch_larger_than_the_set_takes_whole_epochs() -> None:
    queue = PromptQueue(2, 5, None, np.random.default_rng(2))
    batch = queue.next(12)
    for world in batch:
        np.testing.assert_array_equal(np.sort(world[:5]), np.arange(5))
        np.testing.assert_array_equal(np.sort(world[5:10]), np.arange(5))
    rest = np.concatenate([batch[:, 10:], queue.next(3)], axis=1)
    np.testing.assert_array_equal(np.sort(rest, axis=1), np.tile(np.arange(5), (2, 1)))


def test_only_the_worlds_asked_for_move_on() -> None:
    queue = PromptQueue(3, 6, None, np.random.default_rng(3))
    part = queue.next(2, np.array([2]))
    assert part.shape == (1, 2)
    rest = queue.next(4)
    np.testing.assert_array_equal(np.sort(np.concatenate([part[0], rest[2]])), np.arange(6))


def test_retired_prompts_come_back_when_all_are() -> None:
    queue = PromptQueue(2, 4, 0.9, np.random.default_rng(4))
    index = np.array([[0, 1, 2], [0, 1, 2]])
    queue.visited(index, np.array([[0.9, 1.0, 0.89], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(queue.retired, [0.5, 0.0])
    for _ in range(4):
        batch = queue.next(2)
        np.testing.assert_array_equal(np.sort(batch[0]), [2, 3])
    queue.visited(np.array([[2, 3]]), np.array([[1.0, 0.0]]), np.array([0]))
    np.testing.assert_allclose(queue.retired, [0.75, 0.0])
    assert set(queue.next(3)[0]) == {3}
    queue.visited(np.array([[3]]), np.array([[0.95]]), np.array([0]))
    np.testing.assert_allclose(queue.retired, [0.0, 0.0])
    np.testing.assert_array_equal(np.sort(queue.next(4)[0]), np.arange(4))


def test_a_prompt_that_retires_leaves_the_epoch_under_way() -> None:
    queue = PromptQueue(1, 6, 0.9, np.random.default_rng(6))
    first = queue.next(2)
    waiting = np.setdiff1d(np.arange(6), first)
    queue.visited(waiting[None, :2], np.ones((1, 2)))
    np.testing.assert_array_equal(np.sort(queue.next(2)[0]), waiting[2:])


def test_nothing_retires_where_it_was_not_asked_for() -> None:
    queue = PromptQueue(1, 4, None, np.random.default_rng(5))
    queue.visited(np.array([[0, 1]]), np.ones((1, 2)))
    assert queue.retired[0] == 0


# ------------------------------------------------------------------------------------------------ acceptance


def simulated(model: RewardModel, mu: np.ndarray, rng: np.random.Generator, n: int = 400_000) -> float:
    """Share of answers whose ensemble score is above 0, members' means `mu`."""
    scores = mu + rng.normal(size=(n, model.members))
    score = scores.mean(axis=1) if model.aggregate == "mean" else scores.min(axis=1)
    return float((score > 0).mean())


@pytest.mark.parametrize("aggregate", ["mean", "worst"])
@pytest.mark.parametrize("members", [1, 4])
def test_rates_are_those_of_simulated_ensembles(members: int, aggregate: str) -> None:
    model = RewardModel(members=members, aggregate=aggregate, separation=1.2, error_sd=1.5, shared=0.4)
    verifier = Verifier(exploits=2, reward_model=model)
    population = drawn(verifier, worlds=3)
    right, wrong, exploit = rates(verifier, population)
    rng = np.random.default_rng(6)
    error = 4 * np.sqrt(0.25 / 400_000)
    assert abs(right - simulated(model, np.full(members, 0.6), rng)) < error
    assert abs(wrong - simulated(model, np.full(members, -0.6), rng)) < error
    assert exploit.shape == (2, 3)
    for j, w in np.ndindex(exploit.shape):
        mu = population.exploit_error[:, w, j] - 0.6
        assert abs(exploit[j, w] - simulated(model, mu, rng)) < error
        assert exploit[j, w] == pytest.approx(score_accepted(model, mu[:, None])[0])


def test_errors_of_members_have_their_sd_and_correlation() -> None:
    model = RewardModel(members=3, error_sd=1.5, shared=0.4)
    population = drawn(Verifier(exploits=4, reward_model=model), worlds=5_000)
    errors = population.exploit_error.reshape(3, -1)
    n = errors.shape[1]
    assert np.abs(errors.mean(axis=1)).max() < 4 * 1.5 / np.sqrt(n)
    assert np.abs(errors.std(axis=1) / 1.5 - 1).max() < 4 / np.sqrt(2 * n)
    correlation = np.corrcoef(errors)[np.triu_indices(3, 1)]
    assert np.abs(correlation - 0.4).max() < 4 * (1 - 0.4**2) / np.sqrt(n)


def test_rates_of_a_verifier_and_of_wrong_references() -> None:
    verifier = Verifier(
        true_positive=0.8,
        false_positive=0.1,
        wrong_reference=0.5,
        wrong_reference_accepts=0.3,
        exploits=1,
        exploit_accepted=0.6,
    )
    population = drawn(verifier, worlds=2)
    flipped = population.train.wrong_reference
    assert flipped.any()
    assert not flipped.all()
    got = acceptance(verifier, population, population.train)
    np.testing.assert_array_equal(got.right, np.where(flipped, 0.0, 0.8))
    np.testing.assert_array_equal(got.wrong, np.where(flipped, 0.3, 0.1))
    np.testing.assert_array_equal(got.exploit, np.full((1, 2), 0.6))
    index = np.array([[3, 1], [0, 0]])
    taken = got.take(index)
    np.testing.assert_array_equal(taken.right, np.take_along_axis(got.right, index, axis=1))
    np.testing.assert_array_equal(taken.wrong, np.take_along_axis(got.wrong, index, axis=1))
    held_out = acceptance(verifier, population, population.held_out)
    assert (held_out.right == 0.8).all()


def test_members_of_one_ensemble_in_closed_form() -> None:
    mu = np.array([[0.5], [-0.2], [1.0], [0.1]])
    mean = score_accepted(RewardModel(members=4, aggregate="mean"), mu)
    worst = score_accepted(RewardModel(members=4, aggregate="worst"), mu)
    assert mean[0] == pytest.approx(norm.cdf(1.4 / 2))
    assert worst[0] == pytest.approx(norm.cdf(0.5) * norm.cdf(-0.2) * norm.cdf(1.0) * norm.cdf(0.1))


def drawn(verifier: Verifier, worlds: int) -> Population:
    law = Prompts(skills=2, train=6, held_out=4)
    return draw_population(Settings(prompts=law, verifier=verifier), worlds, np.random.default_rng(7))
