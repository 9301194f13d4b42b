"""Is the gradient of every objective that of its closed form, token by token?"""
# ruff: noqa: E402

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings
from hypothesis import strategies as st

from forecast.errors import InputError
from simulators.minirun.advantages import advantages
from simulators.minirun.objectives.batch import Scored
from simulators.minirun.objectives.registry import FAMILIES, loss, needs_reference
from simulators.minirun.objectives.value import value_loss
from simulators.minirun.settings import AGGREGATIONS, OBJECTIVES, Recipe

LONGEST = 6
POLICY_GRADIENT = ["reinforce", "importance", "clipped", "cispo", "gspo", "topr"]


def scene(
    seed: int, spread: float, credit: str = "rollouts", shape: tuple[int, int, int] = (4, 3, 5)
) -> Scored:
    """Random rollouts: ragged masks, both signs of advantage, one group that is not kept."""
    random = np.random.default_rng(seed)
    prompts, rollouts, tokens = shape
    logp = random.uniform(-3, -0.2, size=shape)
    lengths = random.integers(1, tokens + 1, size=(prompts, rollouts))
    kept = np.ones(prompts, dtype=bool)
    kept[random.integers(prompts)] = prompts == 1
    # Distinct rewards, so that the best and the worst of a group are not a matter of order.
    rewards = random.permuted(np.tile(np.linspace(0, 1, rollouts), (prompts, 1)), axis=1)
    return Scored(
        logp=torch.tensor(logp),
        behaviour=torch.tensor(logp - random.uniform(-spread, spread, size=shape)),
        mask=torch.tensor(np.arange(tokens) < lengths[:, :, None]),
        rewards=torch.tensor(rewards),
        advantages=torch.tensor(random.normal(size=shape if credit == "tokens" else shape[:2])),
        kept=torch.tensor(kept),
        reference=torch.tensor(random.uniform(-3, -0.2, size=shape)),
    )


def differentiated(batch: Scored, recipe: Recipe) -> tuple[float, np.ndarray, dict[str, float]]:
    """Loss, dL/dlogp, figures."""
    logp = batch.logp.detach().clone().requires_grad_()
    result = loss(replace(batch, logp=logp), recipe, LONGEST)
    (gradient,) = torch.autograd.grad(result.value, logp)
    return float(result.value.detach()), gradient.numpy(), result.figures


def weights(counted: np.ndarray, how: str) -> np.ndarray:
    """What each token counts in an aggregate."""
    result = np.zeros(counted.shape)
    rollouts = [index for index in np.ndindex(counted.shape[:2]) if counted[index].any()]
    for p, g in rollouts:
        for t in np.flatnonzero(counted[p, g]):
            result[p, g, t] = {
                "token": 1 / counted.sum(),
                "sequence": 1 / len(rollouts) / counted[p, g].sum(),
                "prompt": 1 / len({p for p, _ in rollouts}) / counted[p].sum(),
                "constant": 1 / len(rollouts) / LONGEST,
            }[how]
    return result


def closed_form(batch: Scored, recipe: Recipe) -> tuple[np.ndarray, np.ndarray]:
    """dL/dlogp without the divergence term, and which tokens were cut; rollout by rollout, token by token."""
    logp, behaviour, mask = batch.logp.numpy(), batch.behaviour.numpy(), batch.mask.numpy()
    credits, rewards, kept = batch.advantages.numpy(), batch.rewards.numpy(), batch.kept.numpy()
    counted = mask & kept[:, None, None]
    if recipe.objective == "online_dpo":
        return _dpo(batch, recipe.beta), np.zeros(mask.shape, dtype=bool)
    if recipe.objective == "expert_iteration":
        counted = counted & (rewards > 0.5)[:, :, None]
    weight = weights(counted, recipe.aggregation)
    factor, cut = np.zeros(mask.shape), np.zeros(mask.shape, dtype=bool)
    for p, g, t in zip(*np.nonzero(counted), strict=True):
        a = credits[p, g, t] if credits.ndim == 3 else credits[p, g]
        logs = (logp - behaviour)[p, g][mask[p, g]]
        ratio = np.exp(logs.mean()) if recipe.objective == "gspo" else np.exp(logs[t])
        if recipe.objective == "reinforce":
            factor[p, g, t] = a
        elif recipe.objective == "expert_iteration":
            factor[p, g, t] = 1
        elif recipe.objective == "importance":
            factor[p, g, t] = ratio * a
        elif recipe.objective == "cispo":
            factor[p, g, t], cut[p, g, t] = min(ratio, recipe.ratio_cap) * a, ratio > recipe.ratio_cap
        elif recipe.objective == "topr":
            whole = np.prod(np.exp(logs))
            factor[p, g, t], cut[p, g, t] = (a, False) if a >= 0 else (min(whole, 1) * a, whole > 1)
        else:
            cut[p, g, t] = ratio > 1 + recipe.clip_high if a > 0 else ratio < 1 - recipe.clip_low
            factor[p, g, t] = 0 if cut[p, g, t] else ratio * a
    return -weight * factor, cut


def _dpo(batch: Scored, beta: float) -> np.ndarray:
    mask, rewards = batch.mask.numpy(), batch.rewards.numpy()
    log_ratios = np.where(mask, batch.logp.numpy() - batch.reference.numpy(), 0).sum(axis=2)
    result, groups = np.zeros(mask.shape), np.flatnonzero(batch.kept.numpy() & (np.ptp(rewards, axis=1) > 0))
    for p in groups:
        w, l = np.argmax(rewards[p]), np.argmin(rewards[p])  # noqa: E741
        pull = beta / (1 + np.exp(beta * (log_ratios[p, w] - log_ratios[p, l]))) / len(groups)
        result[p, w], result[p, l] = -pull * mask[p, w], pull * mask[p, l]
    return result


@pytest.mark.parametrize("credit", ["rollouts", "tokens"])
@pytest.mark.parametrize("spread", [0.05, 0.9])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradient_by_hand(objective, aggregation, spread, credit):
    recipe = Recipe(objective=objective, aggregation=aggregation, clip_high=0.28, ratio_cap=1.4)
    for seed in range(3):
        batch = scene(seed, spread, credit)
        expected, cut = closed_form(batch, recipe)
        _, found, figures = differentiated(batch, recipe)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        counted = (batch.mask & batch.kept[:, None, None]).numpy()
        ratio = np.exp((batch.logp - batch.behaviour).numpy())[counted]
        assert figures == pytest.approx(
            {"ratio_mean": ratio.mean(), "ratio_max": ratio.max(), "clipped": cut[counted].mean()}
        )
        if spread > 0.5 and objective in ("clipped", "cispo", "topr"):
            assert figures["clipped"] > 0
        single = replace(batch, logp=batch.logp.float(), behaviour=batch.behaviour.float())
        np.testing.assert_allclose(differentiated(single, recipe)[1], expected, atol=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_divergence_by_hand(objective, aggregation):
    plain = Recipe(objective=objective, aggregation=aggregation)
    weighed = replace(plain, kl=0.3)
    batch = scene(7, 0.3)
    counted = (batch.mask & batch.kept[:, None, None]).numpy()
    ratio = np.exp((batch.reference - batch.logp).numpy())
    weight = weights(counted, aggregation)
    value, gradient, _ = differentiated(batch, plain)
    with_kl, pulled, figures = differentiated(batch, weighed)
    np.testing.assert_allclose(pulled - gradient, 0.3 * weight * (1 - ratio), atol=1e-12)
    assert figures["kl"] == pytest.approx(np.sum(weight * (ratio - 1 - np.log(ratio))))
    assert with_kl - value == pytest.approx(0.3 * figures["kl"])
    assert needs_reference(weighed)
    assert needs_reference(plain) == (objective == "online_dpo")


def test_divergence_survives_a_ratio_that_overflows():
    batch = scene(1, 0.1)
    far = replace(batch, logp=torch.full_like(batch.logp, -500.0).float(), reference=batch.reference.float())
    value, gradient, figures = differentiated(far, Recipe(objective="reinforce", kl=0.1))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert np.isfinite(figures["kl"])


@pytest.mark.parametrize("recipe", [Recipe(objective="online_dpo"), Recipe(kl=0.1)])
def test_a_missing_reference_is_named(recipe):
    with pytest.raises(InputError, match="warm start"):
        loss(replace(scene(0, 0.1), reference=None), recipe, LONGEST)


@pytest.mark.parametrize("credit", ["rollouts", "tokens"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", POLICY_GRADIENT)
def test_on_policy_all_are_reinforce(objective, aggregation, credit):
    batch = scene(3, 0.0, credit)
    _, expected, _ = differentiated(batch, Recipe(objective="reinforce", aggregation=aggregation))
    _, found, figures = differentiated(batch, Recipe(objective=objective, aggregation=aggregation))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert figures == {"ratio_mean": 1, "ratio_max": 1, "clipped": 0}


def test_loss_of_gspo_is_that_of_whole_sequences():
    batch = scene(5, 0.9)
    recipe = Recipe(objective="gspo", aggregation="sequence")
    terms = []
    for p, g in itertools.product(np.flatnonzero(batch.kept), range(3)):
        mask = batch.mask[p, g].numpy()
        s = np.exp((batch.logp - batch.behaviour)[p, g].numpy()[mask].mean())
        a = float(batch.advantages[p, g])
        terms.append(min(s * a, np.clip(s, 0.8, 1.2) * a))
    assert differentiated(batch, recipe)[0] == pytest.approx(-np.mean(terms))


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", POLICY_GRADIENT)
def test_two_rollouts_of_a_three_way_choice(objective, aggregation):
    logits = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(0)[:2].view(1, 2, 1)
    rewards = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    recipe = Recipe(objective=objective, aggregation=aggregation, rollouts=2)
    one = torch.ones(1, 2, 1, dtype=torch.bool)
    batch = Scored(logp, logp.detach(), one, rewards, advantages(rewards, recipe), one[:, 0, 0])
    loss(batch, recipe, 1).value.backward()
    scaled = 0.5 / (0.5 + 1e-4)
    np.testing.assert_allclose(logits.grad.numpy(), [-0.5 * scaled, 0.5 * scaled, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("objective", "ratio", "advantage", "pull"),
    [
        ("clipped", 1.5, 1, 0),
        ("cispo", 1.5, 1, 1.4),
        ("importance", 1.5, 1, 1.5),
        ("gspo", 1.5, 1, 0),
        ("topr", 1.5, 1, 1),
        ("reinforce", 1.5, 1, 1),
        ("clipped", 0.5, -1, 0),
        ("cispo", 0.5, -1, -0.5),
        ("importance", 0.5, -1, -0.5),
        ("gspo", 0.5, -1, 0),
        ("topr", 0.5, -1, -0.5),
        ("topr", 1.5, -1, -1),
        ("clipped", 0.5, 1, 0.5),
        ("clipped", 1.5, -1, -1.5),
    ],
)
def test_one_token(objective, ratio, advantage, pull):
    one = torch.ones(1, 1, 1, dtype=torch.bool)
    logp = torch.full((1, 1, 1), -1.0, dtype=torch.float64)
    credit = torch.tensor([[float(advantage)]])
    batch = Scored(logp, logp - np.log(ratio), one, credit, credit, one[:, 0, 0])
    _, gradient, _ = differentiated(batch, Recipe(objective=objective, ratio_cap=1.4))
    assert -gradient.item() == pytest.approx(pull, abs=1e-12)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", [*POLICY_GRADIENT, "online_dpo"])
def test_equal_rewards_have_exactly_no_gradient(objective, aggregation):
    recipe = Recipe(objective=objective, aggregation=aggregation)
    batch = replace(scene(2, 0.5), rewards=torch.full((4, 3), 0.1))
    batch = replace(batch, advantages=advantages(batch.rewards, recipe))
    assert not differentiated(batch, recipe)[1].any()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_kept_is_zero(objective, aggregation):
    batch = replace(scene(2, 0.5), kept=torch.zeros(4, dtype=torch.bool))
    value, gradient, figures = differentiated(
        batch, Recipe(objective=objective, aggregation=aggregation, kl=0.1)
    )
    assert value == 0
    assert not gradient.any()
    assert set(figures.values()) == {0.0}


def test_expert_iteration_without_an_accepted_rollout_is_zero():
    batch = scene(2, 0.5)
    batch = replace(batch, rewards=batch.rewards * 0)
    value, gradient, _ = differentiated(batch, Recipe(objective="expert_iteration"))
    assert value == 0
    assert not gradient.any()


def test_pairs_take_the_first_of_equals():
    batch = scene(4, 0.1)
    batch = replace(batch, rewards=torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 0, 1]]))
    batch = replace(batch, kept=torch.ones(4, dtype=torch.bool))
    recipe = Recipe(objective="online_dpo")
    _, gradient, _ = differentiated(batch, recipe)
    np.testing.assert_allclose(gradient, closed_form(batch, recipe)[0], atol=1e-12)
    chosen = [[True, False, True], [True, False, True], [False] * 3, [True, True, False]]
    assert gradient.any(axis=2).tolist() == chosen


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_is_masked_may_be_anything(objective):
    recipe = Recipe(objective=objective, kl=0.1)
    batch = scene(6, 0.5)
    wild = {
        name: torch.where(batch.mask, getattr(batch, name), fill)
        for name, fill in {"logp": -1e4, "behaviour": -np.inf, "reference": -np.inf}.items()
    }
    value, gradient, figures = differentiated(batch, recipe)
    assert differentiated(replace(batch, **wild), recipe)[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_array_equal(differentiated(replace(batch, **wild), recipe)[1], gradient)
    assert differentiated(replace(batch, **wild), recipe)[2] == figures


def test_value_loss_by_hand():
    batch = scene(8, 0.1)
    random = np.random.default_rng(0)
    values = torch.tensor(random.normal(size=(4, 3, 5)), requires_grad=True)
    result = value_loss(values, batch.rewards, batch.mask, batch.kept)
    result.backward()
    counted = (batch.mask & batch.kept[:, None, None]).numpy()
    errors = values.detach().numpy() - batch.rewards.numpy()[:, :, None]
    assert result.item() == pytest.approx(0.5 * np.mean(errors[counted] ** 2))
    np.testing.assert_allclose(values.grad.numpy(), np.where(counted, errors, 0) / counted.sum(), atol=1e-15)


def test_every_objective_has_a_loss():
    assert set(FAMILIES) == set(OBJECTIVES)


choices = st.fixed_dictionaries(
    {"objective": st.sampled_from(OBJECTIVES), "aggregation": st.sampled_from(AGGREGATIONS)}
)
FIELDS = ("logp", "behaviour", "mask", "rewards", "advantages", "reference")


@settings(max_examples=40, deadline=None)
@given(chosen=choices, seed=st.integers(0, 99), order=st.permutations(range(3)), wide=st.booleans())
def test_the_order_inside_a_group_is_no_matter(chosen, seed, order, wide):
    recipe = Recipe(**chosen, kl=0.1)
    batch = scene(seed, 0.9 if wide else 0.1)
    shuffled = replace(batch, **{name: getattr(batch, name)[:, order] for name in FIELDS})
    value, gradient, _ = differentiated(batch, recipe)
    found = differentiated(shuffled, recipe)
    assert found[0] == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(found[1], gradient[:, order], atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    chosen=choices, seed=st.integers(0, 99), kept=st.lists(st.booleans(), min_size=4, max_size=4).filter(any)
)
def test_dropping_a_group_is_removing_it(chosen, seed, kept):
    recipe = Recipe(**chosen, kl=0.1, baseline="batch", scale="batch")
    flags = torch.tensor(kept)
    batch = replace(scene(seed, 0.5), kept=flags)
    batch = replace(batch, advantages=advantages(batch.rewards, recipe, flags))
    fewer = replace(batch, **{name: getattr(batch, name)[flags] for name in (*FIELDS, "kept")})
    fewer = replace(fewer, advantages=advantages(fewer.rewards, recipe))
    value, gradient, figures = differentiated(batch, recipe)
    found = differentiated(fewer, recipe)
    assert found[0] == pytest.approx(value, abs=1e-12)
    assert found[2] == pytest.approx(figures, abs=1e-12)
    np.testing.assert_allclose(found[1], gradient[kept], atol=1e-12)
    assert not gradient[~np.array(kept)].any()
