"""Is the gradient from counts that of the surrogate, rollout by rollout, and of the expected reward?"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from one_by_one import Group, Logits, Scene, Surrogate, actions, counted, random_scene, sample, tally

from simulators.skills.acceptance import acceptance
from simulators.skills.context import room
from simulators.skills.correction import factor
from simulators.skills.gradient import Behaviour, Gradient, policy_gradient
from simulators.skills.network import pull_back, skill_logits, step_logits, step_probability
from simulators.skills.population import Population, PromptSet, draw_population
from simulators.skills.rollouts import Groups, sample_groups
from simulators.skills.settings import (
    ADVANTAGES,
    AGGREGATIONS,
    CORRECTIONS,
    CREDITS,
    Context,
    Policy,
    Prompts,
    Recipe,
    Settings,
    Verifier,
)
from simulators.skills.standing import stand
from simulators.skills.training import exploiting

CENTRED = [kind for kind in ADVANTAGES if kind != "reinforce"]
SCENES = {
    "plain": {"exploits": 0, "rollouts": 4},
    "exploit": {"exploits": 1, "rollouts": 5, "context": Context(limit=900.0), "noisy": True},
    "exploits": {
        "exploits": 2,
        "rollouts": 6,
        "context": Context(limit=700.0, length_sd=0.5),
        "noisy": True,
    },
}


@lru_cache
def surrogate(name: str) -> Surrogate:
    """A batch of a policy that has moved since, and a third policy that the KL divergence is to."""
    asked = dict(SCENES[name])
    rollouts = asked.pop("rollouts")
    scene, then = random_scene(3 + asked["exploits"], **asked)
    rng = np.random.default_rng(5 + asked["exploits"])
    batch = sample(scene, then, rollouts, rng)
    now, start = (
        then.moved(rng.normal(0, 0.4, then.steps.shape), rng.normal(0, 0.5, then.exploit.shape))
        for _ in range(2)
    )
    return Surrogate(scene, batch, Recipe(rollouts=rollouts, ratio_cap=1.2), now, then, start)


def asked_for(name: str, **recipe: object) -> Surrogate:
    base = surrogate(name)
    return replace(base, recipe=replace(base.recipe, **recipe))


def assert_same(got: Gradient, expected: tuple[np.ndarray, np.ndarray]) -> None:
    for ours, theirs in zip((got.steps, got.exploit), expected, strict=True):
        if theirs.size:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-7 * max(np.abs(theirs).max(), 1e-3))


@pytest.mark.parametrize("name", SCENES)
def test_scenes_have_what_the_comparison_needs(name: str) -> None:
    base = surrogate(name)
    groups = tally(base.batch, len(base.now.steps), base.now.exploit.shape[1])
    assert groups.mixed.any(axis=1).all()
    assert not groups.mixed.all()
    assert groups.exploited.any() == (name != "plain")
    assert groups.truncated.any() == (name != "plain")
    assert groups.failed[1].any() == (name != "plain")
    assert groups.solved.any()
    ratios = np.array(list(base.ratios()))
    for low, high in ((0.8, 1.2), (0.8, 1.28), (0.0, 1.2)):
        assert 0.1 < np.mean((ratios < low) | (ratios > high)) < 0.9
        # Finite differences need some distance from the corners of the clipped objective.
        assert np.min(np.abs(ratios - low)) > 1e-4
        assert np.min(np.abs(ratios - high)) > 1e-4


@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("correction", CORRECTIONS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_gradient_is_that_of_the_surrogate(
    advantage: str, aggregation: str, correction: str, credit: str
) -> None:
    for name, filtered, kl in itertools.product(SCENES, ("keep", "drop"), (0.0, 0.3)):
        stale = asked_for(
            name,
            advantage=advantage,
            aggregation=aggregation,
            correction=correction,
            credit=credit,
            filter=filtered,
            kl=kl,
        )
        assert_same(counted(stale), stale.gradient())


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("credit", CREDITS)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_on_policy_gradient_is_that_of_the_surrogate_for_every_correction(
    advantage: str, aggregation: str, credit: str, name: str
) -> None:
    base = asked_for(name, advantage=advantage, aggregation=aggregation, credit=credit, kl=0.1)
    base = replace(base, now=base.then)
    expected = base.gradient()
    for correction in CORRECTIONS:
        same = replace(base, recipe=replace(base.recipe, correction=correction))
        assert_same(counted(same, on_policy=True), expected)
        assert_same(counted(same), expected)
        assert not counted(same).clipped.any()


@pytest.mark.parametrize("filtered", ["keep", "drop"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("advantage", CENTRED)
def test_equal_rewards_give_no_gradient(advantage: str, aggregation: str, filtered: str) -> None:
    base = asked_for("exploits", advantage=advantage, aggregation=aggregation, filter=filtered)
    for reward in (0, 1):
        alike = [
            [[replace(each, reward=reward) for each in whole(group)] for group in world]
            for world in base.batch
        ]
        gradient = counted(replace(base, batch=alike))
        assert not gradient.steps.any()
        assert not gradient.exploit.any()


def whole(group: Group) -> Group:
    """With other rollouts in place of truncated ones, which are never accepted."""
    ended = [each for each in group if not each.truncated]
    return [each if not each.truncated else ended[0] for each in group]


# ------------------------------------------------------------------------------------------------ by hand


def one_step(passed: int, failed: int, now: float, then: float, recipe: Recipe) -> float:
    """Gradient of one prompt of one step in its logit; passing is accepted."""
    groups = Groups(
        failed=np.array([failed, 0.0]).reshape(2, 1, 1, 1),
        truncated=np.zeros((1, 1, 1)),
        solved=np.array([0.0, passed]).reshape(2, 1, 1),
        exploited=np.zeros((2, 0, 1, 1)),
        rollouts=passed + failed,
    )
    of_now, of_then = (
        Behaviour(
            step_probability(np.full((1, 1, 1), np.log(p / (1 - p))), np.ones((1, 1, 1))),
            np.zeros((0, 1, 1)),
        )
        for p in (now, then)
    )
    gradient = policy_gradient(
        groups, np.array([[1]]), of_now, None if now == then else of_then, None, recipe
    )
    return float(gradient.steps[0, 0, 0])


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        # Scores are +1/2 and -1/2, and half of the sum of advantage times score is the gradient.
        ("reinforce", 0.25),  # advantages 1, 0
        ("unnormalised", 0.25),  # 1/2, -1/2
        ("rloo", 0.5),  # 1, -1
        ("grpo", 0.5),  # 1, -1: the sd of (1, 0) is 1/2
        ("batch", 0.5),
    ],
)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_one_of_two_rollouts_passes(advantage: str, expected: float, aggregation: str) -> None:
    recipe = Recipe(advantage=advantage, aggregation=aggregation, rollouts=2)
    assert one_step(1, 1, 0.5, 0.5, recipe) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("correction", "expected"),
    [("none", 1.0), ("importance", 1.5), ("ppo", 0.0), ("dapo", 0.0), ("cispo", 1.4)],
)
def test_factor_of_a_good_action_that_became_likelier(correction: str, expected: float) -> None:
    recipe = Recipe(advantage="reinforce", correction=correction, ratio_cap=1.4, rollouts=1)
    # Ratio .6 / .4, advantage 1, score 1 - .6.
    assert one_step(1, 0, 0.6, 0.4, recipe) == pytest.approx(expected * 0.4, rel=1e-12)
    assert factor(np.array([1.5]), recipe, positive=True)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("correction", "expected"),
    [("none", 1.0), ("importance", 0.5), ("ppo", 0.0), ("dapo", 0.0), ("cispo", 0.5)],
)
def test_factor_of_a_bad_action_that_became_rarer(correction: str, expected: float) -> None:
    recipe = Recipe(correction=correction, ratio_cap=1.4, rollouts=2)
    assert factor(np.array([0.5]), recipe, positive=False)[0] == expected
    # Failing: ratio .4 / .8, advantage -1, score -.6. Passing: ratio .6 / .2, advantage 1, score .4.
    of_passing = {"none": 1.0, "importance": 3.0, "ppo": 0.0, "dapo": 0.0, "cispo": 1.4}[correction]
    by_hand = (of_passing * 0.4 + expected * 0.6) / 2
    assert one_step(1, 1, 0.6, 0.2, recipe) == pytest.approx(by_hand, rel=1e-12)


def test_clipping_never_holds_back_a_return() -> None:
    for correction in ("ppo", "dapo"):
        recipe = Recipe(correction=correction)
        ratio = np.array([0.5, 1.25, 1.5])
        high = {"ppo": [0.5, 0.0, 0.0], "dapo": [0.5, 1.25, 0.0]}[correction]
        np.testing.assert_array_equal(factor(ratio, recipe, positive=True), high)
        np.testing.assert_array_equal(factor(ratio, recipe, positive=False), [0.0, 1.25, 1.5])


# ------------------------------------------------------------------------------------------------ clipped share


def mixed_only(base: Surrogate) -> Surrogate:
    """With one reward changed where all are alike: an advantage of 0 has no sign."""

    def mixed(group: Group) -> Group:
        if len({each.reward for each in group}) > 1:
            return group
        first, *others = sorted(group, key=lambda each: each.truncated)
        return [replace(first, reward=1 - first.reward), *others]

    return replace(base, batch=[[mixed(group) for group in world] for world in base.batch])


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("correction", CORRECTIONS)
def test_clipped_share_is_a_count_of_actions(correction: str, aggregation: str, name: str) -> None:
    stale = mixed_only(asked_for(name, correction=correction, aggregation=aggregation))
    expected = stale.clipped()
    assert expected.any() == (correction in ("ppo", "dapo", "cispo"))
    np.testing.assert_allclose(counted(stale).clipped, expected, rtol=1e-12)


@pytest.mark.parametrize("correction", ["ppo", "dapo", "cispo"])
def test_clipped_share_goes_by_the_verdict_on_a_step_where_credit_does(correction: str) -> None:
    # Two exploits: that the choice is an action is then no question.
    stale = mixed_only(asked_for("exploits", correction=correction, credit="process"))
    np.testing.assert_allclose(counted(stale).clipped, at_verdict(stale), rtol=1e-12)


def at_verdict(stale: Surrogate) -> np.ndarray:
    """Share clipped if passing a step counts as good and failing as bad even where all rollouts do alike."""
    shares = []
    for w, world in enumerate(actions(stale.batch, stale.recipe, 2)):
        signed = [
            (a if a.step is None else replace(a, advantage=2.0 * a.outcome - 1), p)
            for p, of_prompt in enumerate(world)
            for a in of_prompt
        ]
        shares.append(np.mean([stale.is_clipped(action, w, p) for action, p in signed]))
    return np.array(shares)


# ------------------------------------------------------------------------------------------------ network


POLICIES = {
    "identity": Policy(),
    "coupling": Policy(rank=3),
    "features": Policy(features=0.7),
    "curvature": Policy(curvature=0.4),
    "all": Policy(rank=3, features=0.7, curvature=0.4),
}


def drawn(policy: Policy, worlds: int = 2, **prompts: object) -> Population:
    law = Prompts(**{"skills": 4, "train": 5, "held_out": 1, "slip": 0.1, "chain_longest": 4, **prompts})
    return draw_population(Settings(prompts=law, policy=policy), worlds, np.random.default_rng(4))


def step_by_step(population: Population, policy: Policy, z: np.ndarray) -> np.ndarray:
    """Logits [L, W, P], each written out."""
    prompts = population.train
    x = np.zeros(prompts.skill.shape)
    for step, w, p in np.ndindex(x.shape):
        k = prompts.skill[step, w, p] - w * population.skill_logit.shape[1]
        moved = z[w, k] if population.coupling is None else population.coupling[w, k] @ z[w]
        x[step, w, p] = population.skill_logit[w, k] + moved - policy.curvature / 2 * z[w] @ z[w]
        x[step, w, p] -= prompts.difficulty[step, w, p]
        if prompts.features is not None:
            x[step, w, p] += policy.features * prompts.features[w, p] @ z[w]
    return x


@pytest.mark.parametrize("name", POLICIES)
def test_logits_and_their_gradient_in_z(name: str) -> None:
    policy = POLICIES[name]
    population = drawn(policy)
    rng = np.random.default_rng(1)
    z = rng.normal(0.0, 0.5, (2, population.parameters))
    gradient = rng.normal(size=population.train.skill.shape)
    theta = skill_logits(population, policy, z)
    memory = rng.normal(size=(2, 5))
    np.testing.assert_allclose(
        step_logits(theta, population.train, policy, z, memory),
        step_by_step(population, policy, z) + memory,
        rtol=1e-12,
    )
    expected = np.zeros_like(z)
    # Subtracting what does not depend on z keeps the 500s of ended chains out of the difference.
    rest = step_by_step(population, policy, np.zeros_like(z))
    for at in np.ndindex(z.shape):
        shift = np.zeros_like(z)
        shift[at] = 1e-4
        up, down = (
            np.sum(gradient * (step_by_step(population, policy, moved) - rest))
            for moved in (z + shift, z - shift)
        )
        expected[at] = (up - down) / 2e-4
    got = pull_back(gradient, population.train, population, policy, z)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("top", [1.0, 0.97, 0.5])
def test_scores_are_derivatives_of_log_probabilities(top: float) -> None:
    x = np.linspace(-8.0, 8.0, 33)
    limit = np.full_like(x, top)
    got = step_probability(x, limit)
    np.testing.assert_allclose(got.passing, top / (1 + np.exp(-x)), rtol=1e-12)
    np.testing.assert_allclose(got.passing + got.failing, 1.0, rtol=1e-15)
    up, down = step_probability(x + 1e-5, limit), step_probability(x - 1e-5, limit)
    for log, score in (
        (np.log(up.passing) - np.log(down.passing), got.pass_score),
        (np.log(up.failing) - np.log(down.failing), got.fail_score),
    ):
        np.testing.assert_allclose(log / 2e-5, score, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("top", [1.0, 0.97, 0.0])
def test_probabilities_of_extreme_logits(top: float) -> None:
    x = np.array([-700.0, -100.0, 100.0, 500.0, 700.0])
    with np.errstate(all="raise", under="ignore"):
        got = step_probability(x, np.full(5, top))
    for values in (got.passing, got.failing, got.pass_score, got.fail_score):
        assert np.isfinite(values).all()
    assert ((got.passing >= 0) & (got.passing <= 1) & (got.failing >= 0) & (got.failing <= 1)).all()
    np.testing.assert_allclose(got.passing[2:], top, rtol=1e-15)
    np.testing.assert_allclose(got.failing[:2], 1.0, rtol=1e-15)
    np.testing.assert_allclose(got.pass_score, [1, 1, 0, 0, 0], atol=1e-40)
    if top == 1:
        np.testing.assert_allclose(got.fail_score, [0, 0, -1, -1, -1], atol=1e-40)
        np.testing.assert_allclose(got.failing[2:4], np.exp([-100.0, -500.0]), rtol=1e-12)


@pytest.mark.parametrize("top", [1.0, 0.97])
def test_small_probabilities_of_passing_are_exact(top: float) -> None:
    x = np.array([-10.0, -20.0, -30.0, -40.0, -100.0])
    np.testing.assert_allclose(
        step_probability(x, np.full(5, top)).passing, top * np.exp(x) / (1 + np.exp(x)), rtol=1e-12
    )


def test_steps_after_the_end_of_a_chain_pass_and_have_no_gradient() -> None:
    population = drawn(Policy())
    prompts = population.train
    ended = np.arange(len(prompts.skill))[:, None, None] >= prompts.length
    assert ended.any()
    x = step_logits(population.skill_logit, prompts, Policy(), np.zeros((2, 4)))
    got = step_probability(x, prompts.top)
    assert (got.passing[ended] == 1).all()
    assert (got.failing[ended] < 1e-200).all()
    assert (got.pass_score[ended] < 1e-200).all()
    for name in SCENES:
        base = surrogate(name)
        outside = np.arange(4)[:, None, None] >= base.scene.length
        assert not counted(asked_for(name, kl=0.1)).steps[outside].any()


# ------------------------------------------------------------------------------------------------ end to end

WORLD = Settings(
    prompts=Prompts(skills=3, train=4, held_out=1, slip=0.1, chain_longest=3, difficulty=-0.3),
    policy=Policy(rank=3, features=0.8, curvature=0.3),
    context=Context(limit=800.0, length_sd=0.4),
    verifier=Verifier(
        true_positive=0.9, false_positive=0.2, exploits=2, exploit_accepted=0.7, exploit_sd=0.4
    ),
)


class Trial:
    """Many batches on the same prompts, for one policy that has moved from its start."""

    def __init__(self, settings: Settings, batches: int, exploit: tuple[float, ...], seed: int = 2) -> None:
        rng = np.random.default_rng(seed)
        self.settings = settings
        self.one = draw_population(settings, 1, rng)
        self.many = self.one.repeat(batches)
        self.z = rng.normal(0.0, 0.5, (1, self.one.parameters))
        self.exploit = np.array([exploit])
        self.room = room(settings.context, settings.prompts.steps)
        self._rng = rng

    def behaviour(self, population: Population, z: np.ndarray, exploit: np.ndarray) -> Behaviour:
        policy, prompts = self.settings.policy, population.train
        x = step_logits(skill_logits(population, policy, z), prompts, policy, z)
        return Behaviour(step_probability(x, prompts.top), exploiting(exploit, prompts.exploit_logit))

    def gradients(self, recipe: Recipe) -> np.ndarray:
        """In z and the exploits' logits, one row per batch."""
        worlds = self.many.worlds
        z, exploit = np.repeat(self.z, worlds, axis=0), np.repeat(self.exploit, worlds, axis=0)
        behaviour = self.behaviour(self.many, z, exploit)
        prompts: PromptSet = self.many.train
        groups = sample_groups(
            behaviour.steps.failing,
            prompts.length,
            behaviour.exploiting,
            acceptance(self.settings.verifier, self.many, prompts),
            self.room,
            recipe.rollouts,
            self._rng,
        )
        got = policy_gradient(groups, prompts.length, behaviour, None, None, recipe)
        in_z = pull_back(got.steps, prompts, self.many, self.settings.policy, z)
        return np.hstack([in_z, got.exploit.T])

    def accepted(self, at: np.ndarray) -> float:
        z, exploit = at[None, : self.one.parameters], at[None, self.one.parameters :]
        verifier = acceptance(self.settings.verifier, self.one, self.one.train)
        behaviour = self.behaviour(self.one, z, exploit)
        return float(stand(behaviour, self.one.train, verifier, self.room).accepted.mean())

    def expected(self) -> np.ndarray:
        """Gradient of the exact expected reward."""
        at = np.concatenate([self.z[0], self.exploit[0]])
        shifts = 1e-5 * np.eye(at.size)
        return np.array([(self.accepted(at + s) - self.accepted(at - s)) / 2e-5 for s in shifts])


@pytest.mark.parametrize(("advantage", "scale"), [("reinforce", 1.0), ("unnormalised", 4 / 3), ("rloo", 1.0)])
def test_mean_gradient_is_that_of_the_expected_reward(advantage: str, scale: float) -> None:
    trial = Trial(WORLD, 20_000, (-1.0, -0.5))
    assert not trial.room.unlimited
    gradients = scale * trial.gradients(Recipe(advantage=advantage, rollouts=4))
    error = gradients.std(axis=0) / np.sqrt(len(gradients))
    expected = trial.expected()
    assert np.abs(expected).max() > 20 * error.max()
    assert np.abs((gradients.mean(axis=0) - expected) / error).max() < 4


@pytest.mark.parametrize("prompts", [1, 4])
@pytest.mark.parametrize("rollouts", [2, 8, 32])
def test_variance_of_the_gradient(prompts: int, rollouts: int) -> None:
    # With rloo and one step of pass rate p, the gradient of a prompt is the rewards' sample variance (ddof 1), of
    # which the variance is known: (m4 - (G - 3) / (G - 1) s^4) / G. Prompts are alike and independent.
    p, batches = 0.3, 10_000
    x = np.full((1, batches, prompts), np.log(p / (1 - p)))
    scene = Scene(
        top=np.ones_like(x),
        length=np.ones(x.shape[1:], dtype=int),
        exploit_logit=np.zeros(x.shape[1:]),
        right=np.ones(x.shape[1:]),
        wrong=np.zeros(x.shape[1:]),
        exploit_accepted=np.zeros((0, batches)),
    )
    behaviour = scene.behaviour(Logits(x, np.zeros((batches, 0))))
    rng = np.random.default_rng(8)
    groups = sample_groups(
        behaviour.steps.failing,
        scene.length,
        behaviour.exploiting,
        scene.acceptance,
        room(Context(), 1),
        rollouts,
        rng,
    )
    recipe = Recipe(advantage="rloo", rollouts=rollouts)
    got = policy_gradient(groups, scene.length, behaviour, None, None, recipe).steps[0].sum(axis=1)
    square = p * (1 - p)
    fourth = square * (1 - 3 * square)
    expected = (fourth - (rollouts - 3) / (rollouts - 1) * square**2) / (rollouts * prompts)
    deviation = (got - square) ** 2
    assert abs(got.mean() - square) < 4 * np.sqrt(expected / batches)
    assert abs(deviation.mean() - expected) < 4 * deviation.std() / np.sqrt(batches)


def test_variance_without_baseline_falls_with_the_rollouts() -> None:
    # Nothing couples rollouts without a baseline, so that the variance times G is the same for every G.
    trial = Trial(WORLD, 10_000, (-1.0, -0.5))
    scaled = {g: g * trial.gradients(Recipe(advantage="reinforce", rollouts=g)) ** 2 for g in (1, 4, 16)}
    mean = trial.expected()
    values = {g: each.mean(axis=0) - g * mean**2 for g, each in scaled.items()}
    errors = {g: each.std(axis=0) / 100 for g, each in scaled.items()}
    for g in (4, 16):
        assert np.abs((values[g] - values[1]) / np.hypot(errors[g], errors[1])).max() < 4
