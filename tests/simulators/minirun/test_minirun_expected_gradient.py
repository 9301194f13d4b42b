"""Is the expected gradient of each objective what theory says, where every group can be written down?

A softmax policy over answers of one or two symbols out of three: expectations are sums over all groups, weighed by
their probability under the behaviour, and gradients are finite differences of functions written in NumPy.
"""
# ruff: noqa: E402

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import comb

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from simulators.minirun.advantages import advantages
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.registry import loss
from simulators.minirun.settings import Recipe

ON_POLICY = ["reinforce", "importance", "clipped", "cispo", "gspo", "topr"]
LONGEST = 2


@dataclass(frozen=True)
class Task:
    """All answers [n, 2] and which of their tokens were chosen; after an end nothing is."""

    answers: np.ndarray
    mask: np.ndarray
    rewards: np.ndarray

    def token_logp(self, theta: np.ndarray) -> np.ndarray:
        """Of each token [n, 2] under logits of the first symbol (3) and of the second given the first (3 x 3)."""
        table = theta.reshape(4, 3)
        logp = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
        first, second = self.answers.T
        return np.where(self.mask, np.stack([logp[0, first], logp[1 + first, second]], axis=1), 0)

    def probability(self, theta: np.ndarray) -> np.ndarray:
        return np.exp(self.token_logp(theta).sum(axis=1))


PAIRS = np.array(list(itertools.product(range(3), repeat=2)))
# "fixed": always two symbols; "ends": the symbol 0 ends the answer; "one": one symbol.
TASKS = {
    "fixed": Task(PAIRS, np.ones((9, 2), dtype=bool), np.array([1, 0, 0, 0, 1, 1, 0, 0, 1.0])),
    "ends": Task(
        np.array([[0, 0], *PAIRS[3:].tolist()]),
        np.array([[True, False]] + [[True, True]] * 6),
        np.array([1, 0, 1, 0, 0, 0, 1.0]),
    ),
    "one": Task(np.array([[0, 0], [1, 0], [2, 0]]), np.array([[True, False]] * 3), np.array([1, 0, 0.0])),
}
THETA = np.random.default_rng(1).normal(0, 0.7, size=12)
OTHER = THETA + np.random.default_rng(2).normal(0, 0.6, size=12)


def slope(function: Callable[[np.ndarray], float], at: np.ndarray = THETA, step: float = 1e-5) -> np.ndarray:
    """Central differences."""
    moves = step * np.eye(len(at))
    return np.array([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


def recipe(objective: str, baseline: str = "none", scale: str = "none", **others: object) -> Recipe:
    return Recipe(
        **{"aggregation": "constant", **others}, objective=objective, baseline=baseline, scale=scale
    )


def ascent(
    task: Task,
    chosen: Recipe,
    behaviour: np.ndarray = THETA,
    rollouts: int = 2,
    reference: np.ndarray = OTHER,
) -> np.ndarray:
    """Minus the expected gradient of the loss at THETA over all groups that the behaviour may draw."""
    theta = torch.tensor(THETA, requires_grad=True)
    table = theta.view(4, 3).log_softmax(1)
    first, second = torch.tensor(task.answers).T
    logp = torch.stack([table[0, first], table[1 + first, second]], dim=1)
    drawn, warm = torch.tensor(task.token_logp(behaviour)), torch.tensor(task.token_logp(reference))
    mask, rewards, probability = (
        torch.tensor(task.mask),
        torch.tensor(task.rewards),
        task.probability(behaviour),
    )
    # Any function of what came before the token will do as its value.
    values = torch.stack(
        [torch.full((len(first),), 0.3), torch.tensor([0.9, -0.4, 0.6])[first]], dim=1
    ).double()
    total = torch.zeros((), dtype=torch.float64)
    for group in itertools.product(range(len(first)), repeat=rollouts):
        rows = torch.tensor([group])
        credit = advantages(rewards[rows], chosen, values=values[rows], mask=mask[rows])
        kept = torch.ones(1, dtype=torch.bool)
        batch = Scored(logp[rows], drawn[rows], mask[rows], rewards[rows], credit, kept, warm[rows])
        total = total + np.prod(probability[list(group)]) * loss(batch, chosen, LONGEST).value
    (gradient,) = torch.autograd.grad(-total, theta)
    return gradient.numpy()


def policy_gradient(task: Task) -> np.ndarray:
    """Of the expected reward."""
    return slope(lambda theta: task.probability(theta) @ task.rewards)


def surrogate(
    task: Task, behaviour: np.ndarray, of_tokens: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Slope of E over the behaviour's answers of the sum over tokens of a function of ratio and reward."""

    def value(theta: np.ndarray) -> float:
        ratio = np.exp(task.token_logp(theta) - task.token_logp(behaviour))
        terms = np.where(task.mask, of_tokens(ratio, task.rewards[:, None]), 0)
        return task.probability(behaviour) @ terms.sum(axis=1)

    return slope(value)


def signed(task: Task) -> Task:
    """The same with rewards -1 and 1: both signs of advantage without a baseline."""
    return Task(task.answers, task.mask, 2 * task.rewards - 1)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.abs(expected).max() > 1e-3
    np.testing.assert_allclose(found, expected, atol=1e-8)


@pytest.mark.parametrize("name", ["fixed", "ends"])
@pytest.mark.parametrize("baseline", ["none", "leave_one_out", "value"])
@pytest.mark.parametrize("objective", ON_POLICY)
def test_on_policy_is_the_policy_gradient(objective, baseline, name):
    found = ascent(TASKS[name], recipe(objective, baseline))
    close(found * LONGEST, policy_gradient(TASKS[name]))


@pytest.mark.parametrize("rollouts", [2, 3])
def test_mean_of_the_group_loses_one_rollout(rollouts):
    found = ascent(TASKS["ends"], recipe("reinforce", "group"), rollouts=rollouts)
    close(found * LONGEST, policy_gradient(TASKS["ends"]) * (rollouts - 1) / rollouts)


@pytest.mark.parametrize("rollouts", [2, 3])
def test_sd_of_the_group_weighs_prompts_by_their_pass_rate(rollouts):
    task = TASKS["ends"]
    p = task.probability(THETA) @ task.rewards

    def credit(right: int, reward: int) -> float:
        mean = right / rollouts
        return (reward - mean) / (np.sqrt(mean * (1 - mean)) + 1e-4)

    # E[A(R, k others) grad log p] = sum over k of P(k others are right) (A(1, k) - A(0, k)) grad p.
    others = [comb(rollouts - 1, k) * p**k * (1 - p) ** (rollouts - 1 - k) for k in range(rollouts)]
    weight = sum(chance * (credit(k + 1, 1) - credit(k, 0)) for k, chance in enumerate(others))
    found = ascent(task, recipe("reinforce", "group", "group"), rollouts=rollouts)
    close(found * LONGEST, policy_gradient(task) * weight)
    if rollouts == 2:
        assert weight == pytest.approx(0.5 / (0.5 + 1e-4))


@pytest.mark.parametrize("baseline", ["none", "leave_one_out"])
def test_importance_is_unbiased_off_policy_for_one_token(baseline):
    found = ascent(TASKS["one"], recipe("importance", baseline), OTHER)
    close(found * LONGEST, policy_gradient(TASKS["one"]))


@pytest.mark.parametrize("name", ["fixed", "ends"])
def test_importance_off_policy_is_that_of_one_deviation(name):
    task = TASKS[name]

    def deviations(theta: np.ndarray) -> float:
        """Sum over positions of the reward expected where only that token is chosen by theta."""
        only_first = np.concatenate([theta[:3], OTHER[3:]])
        only_second = np.concatenate([OTHER[:3], theta[3:]])
        return (task.probability(only_first) + task.probability(only_second)) @ task.rewards

    found = ascent(task, recipe("importance"), OTHER) * LONGEST
    close(found, slope(deviations))
    assert np.abs(found - policy_gradient(task)).max() > 0.01


def test_no_correction_off_policy_weighs_by_the_behaviour():
    task = TASKS["ends"]
    close(
        ascent(task, recipe("reinforce"), OTHER) * LONGEST,
        surrogate(task, OTHER, lambda ratio, reward: reward * np.log(ratio)),
    )


@pytest.mark.parametrize("name", ["fixed", "ends"])
def test_clipped_off_policy_is_its_surrogate(name):
    task = signed(TASKS[name])
    expected = surrogate(task, OTHER, lambda r, a: np.minimum(r * a, np.clip(r, 0.8, 1.3) * a))
    unclipped = surrogate(task, OTHER, lambda r, a: r * a)
    assert np.abs(expected - unclipped).max() > 0.01
    close(ascent(task, recipe("clipped", clip_low=0.2, clip_high=0.3), OTHER) * LONGEST, expected)


@pytest.mark.parametrize("name", ["fixed", "ends"])
def test_gspo_off_policy_is_its_surrogate(name):
    task = signed(TASKS[name])

    def value(theta: np.ndarray) -> float:
        logs = task.token_logp(theta) - task.token_logp(OTHER)
        s = np.exp(logs.sum(axis=1) / task.mask.sum(axis=1))
        terms = np.minimum(s * task.rewards, np.clip(s, 0.8, 1.3) * task.rewards)
        return task.probability(OTHER) @ terms

    close(
        ascent(task, recipe("gspo", aggregation="sequence", clip_low=0.2, clip_high=0.3), OTHER), slope(value)
    )


@pytest.mark.parametrize("cap", [1.2, 50.0])
def test_cispo_off_policy_weighs_scores_by_capped_ratios(cap):
    task = signed(TASKS["ends"])
    held = np.minimum(np.exp(task.token_logp(THETA) - task.token_logp(OTHER)), cap)
    found = ascent(task, recipe("cispo", ratio_cap=cap), OTHER)
    close(found * LONGEST, surrogate(task, OTHER, lambda r, a: held * a * np.log(r)))
    uncapped = ascent(task, recipe("importance"), OTHER)
    assert np.allclose(found, uncapped, atol=1e-12) == (cap == 50)


def test_topr_off_policy_tapers_what_is_wrong():
    task = signed(TASKS["ends"])
    whole = task.probability(THETA) / task.probability(OTHER)
    weight = np.where(task.rewards > 0, 1, np.minimum(whole, 1))[:, None]
    assert ((whole > 1) & (task.rewards < 0)).any()
    found = ascent(task, recipe("topr"), OTHER)
    close(found * LONGEST, surrogate(task, OTHER, lambda r, a: weight * a * np.log(r)))


def test_topr_is_exact_on_wrong_answers_that_became_rarer():
    wrong = TASKS["one"].rewards - 1
    task = Task(TASKS["one"].answers, TASKS["one"].mask, np.where(np.arange(3) == 2, wrong, 0))
    behaviour = THETA + np.array([0, 0, 1.0] + [0] * 9)
    close(ascent(task, recipe("topr"), behaviour) * LONGEST, policy_gradient(task))


@pytest.mark.parametrize("rollouts", [1, 2])
@pytest.mark.parametrize("name", ["fixed", "ends"])
def test_expert_iteration_on_policy_points_along_the_policy_gradient(name, rollouts):
    task = TASKS[name]
    p = task.probability(THETA) @ task.rewards
    # The gradient of log p of an accepted rollout, wherever the group has one.
    expected = policy_gradient(task) / p * (1 - (1 - p) ** rollouts)
    found = ascent(task, recipe("expert_iteration"), rollouts=rollouts) * LONGEST
    close(found, expected)
    if rollouts == 1:
        close(found, ascent(task, recipe("reinforce"), rollouts=1) * LONGEST)


def test_expert_iteration_off_policy_fits_what_the_behaviour_got_right():
    task = TASKS["ends"]
    found = ascent(task, recipe("expert_iteration"), OTHER, rollouts=1)
    close(found * LONGEST, surrogate(task, OTHER, lambda r, reward: reward * np.log(r)))


@pytest.mark.parametrize("behaviour", [THETA, OTHER])
def test_online_dpo_is_its_loss_over_all_pairs(behaviour):
    task, beta = TASKS["ends"], 0.7
    reference = -OTHER

    def value(theta: np.ndarray) -> float:
        margin = np.log(task.probability(theta) / task.probability(reference))
        drawn, total = task.probability(behaviour), 0.0
        for w, l in itertools.product(range(7), repeat=2):  # noqa: E741
            if task.rewards[w] > task.rewards[l]:
                total -= 2 * drawn[w] * drawn[l] * np.log1p(np.exp(-beta * (margin[w] - margin[l])))
        return total

    close(ascent(task, recipe("online_dpo", beta=beta), behaviour, reference=reference), slope(value))


@pytest.mark.parametrize("name", ["one", "fixed", "ends"])
def test_divergence_as_a_loss_pulls_like_the_other_divergence(name):
    task = TASKS[name]

    def logs(theta: np.ndarray) -> np.ndarray:
        table = theta.reshape(4, 3)
        return table - np.log(np.exp(table).sum(axis=1, keepdims=True))

    # How often THETA meets each context: the start, and each first symbol that another may follow.
    open_ended = [bool(task.mask[task.answers[:, 0] == symbol, 1].any()) for symbol in range(3)]
    visits = np.array([1, *np.exp(logs(THETA))[0] * open_ended])

    def towards(theta: np.ndarray) -> float:
        return visits @ (np.exp(logs(OTHER)) * (logs(OTHER) - logs(theta))).sum(axis=1)

    def away(theta: np.ndarray) -> float:
        return visits @ (np.exp(logs(theta)) * (logs(theta) - logs(OTHER))).sum(axis=1)

    still = Task(task.answers, task.mask, 0 * task.rewards)
    found = -ascent(still, recipe("reinforce", kl=1.0), rollouts=1) * LONGEST
    close(found, slope(towards))
    assert np.abs(found - slope(away)).max() > 1e-3
    ratio = np.exp(task.token_logp(OTHER) - task.token_logp(THETA))
    k3 = np.where(task.mask, ratio - np.log(ratio) - 1, 0).sum(axis=1)
    assert task.probability(THETA) @ k3 == pytest.approx(away(THETA))
