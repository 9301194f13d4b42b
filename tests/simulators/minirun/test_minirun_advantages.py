"""Are advantages those of the papers, and exactly zero where a group has nothing to say?"""
# ruff: noqa: E402

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from simulators.minirun.advantages import advantages, varies
from simulators.minirun.settings import BASELINES, SCALES, Recipe

COMBINATIONS = [
    (baseline, scale)
    for baseline in BASELINES
    for scale in SCALES
    if baseline != "value" and (scale != "group" or baseline in ("group", "leave_one_out"))
]
REWARDS = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.7], [1.0, 1.0, 1.0, 1.0], [0.0, 1.0, -0.5, 0.0]])
KEPT = np.array([True, True, False, True])


def recipe(baseline: str, scale: str) -> Recipe:
    return Recipe(baseline=baseline, scale=scale, rollouts=4, prompts=4)


def by_hand(rewards: np.ndarray, kept: np.ndarray, baseline: str, scale: str) -> np.ndarray:
    """One rollout after the other."""
    baselined = np.zeros_like(rewards)
    for p, g in np.ndindex(rewards.shape):
        if baseline == "group":
            base = np.mean(rewards[p])
        elif baseline == "leave_one_out":
            base = np.mean(np.delete(rewards[p], g))
        else:
            base = np.mean(rewards[kept]) if baseline == "batch" else 0.0
        baselined[p, g] = rewards[p, g] - base
    if scale == "group":
        return baselined / (np.std(rewards, axis=1, keepdims=True) + 1e-4)
    return baselined / (np.std(baselined[kept]) + 1e-4) if scale == "batch" else baselined


@pytest.mark.parametrize(("baseline", "scale"), COMBINATIONS)
def test_advantages_by_hand(baseline, scale):
    found = advantages(torch.tensor(REWARDS), recipe(baseline, scale), torch.tensor(KEPT))
    np.testing.assert_allclose(found.numpy(), by_hand(REWARDS, KEPT, baseline, scale), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", ["batch", "none"])
def test_value_baseline_by_hand(scale):
    random = np.random.default_rng(0)
    values = random.normal(size=(4, 4, 3))
    mask = np.arange(3) < random.integers(1, 4, size=(4, 4))[:, :, None]
    predicted = torch.tensor(values, requires_grad=True)
    arguments = recipe("value", scale), torch.tensor(KEPT), predicted, torch.tensor(mask)
    found = advantages(torch.tensor(REWARDS), *arguments)
    expected = REWARDS[:, :, None] - values
    if scale == "batch":
        expected /= np.std(expected[KEPT][mask[KEPT]]) + 1e-4
    np.testing.assert_allclose(found.numpy()[mask], expected[mask], rtol=1e-12)
    assert not found[torch.tensor(~mask)].any()
    assert not found.requires_grad


def test_value_baseline_needs_values():
    with pytest.raises(InputError, match="values"):
        advantages(torch.tensor(REWARDS), recipe("value", "none"))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("baseline", ["group", "leave_one_out"])
@settings(deadline=None)
@given(reward=st.floats(-2, 2, width=32), rollouts=st.integers(2, 12))
def test_equal_rewards_count_exactly_nothing(baseline, scale, reward, rollouts):
    rewards = torch.full((3, rollouts), reward)
    rewards[0] = torch.arange(rollouts) % 2
    found = advantages(rewards, Recipe(baseline=baseline, scale=scale, rollouts=rollouts))
    assert not found[1:].any()
    assert found[0].all()
    assert varies(rewards).tolist() == [True, False, False]


@settings(deadline=None)
@given(rewards=st.lists(st.floats(0, 1, width=32), min_size=2, max_size=9).filter(lambda r: len(set(r)) > 1))
def test_groups_count_as_much_for_as_against(rewards):
    group = torch.tensor([rewards], dtype=torch.float64)
    for baseline in ("group", "leave_one_out"):
        assert abs(float(advantages(group, recipe(baseline, "none")).sum())) < 1e-12


@pytest.mark.parametrize(("baseline", "scale"), COMBINATIONS)
def test_nothing_kept_is_finite(baseline, scale):
    kept = torch.zeros(4, dtype=torch.bool)
    assert torch.isfinite(advantages(torch.tensor(REWARDS), recipe(baseline, scale), kept)).all()


@pytest.mark.parametrize("baseline", ["batch", "value", "none"])
def test_no_division_by_a_group_that_does_not_vary(baseline):
    with pytest.raises(InputError, match="without variance"):
        recipe(baseline, "group")
