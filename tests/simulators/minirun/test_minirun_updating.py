"""Does an update move what it should, by as much as it should, and nothing else?"""
# ruff: noqa: E402

from __future__ import annotations

import io
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import parts, same, small, weights

from forecast.errors import ForecastError
from simulators.minirun.collecting import Batch
from simulators.minirun.generation import score, states
from simulators.minirun.settings import AGGREGATIONS, RunSettings, Size
from simulators.minirun.training import Run

ON_POLICY = ["importance", "clipped", "cispo", "gspo", "topr"]


def collected(settings: RunSettings, steps: int = 0) -> Batch:
    policy, collector, updater = parts(settings)
    for step in range(steps):
        updater.update(collector.next(policy, step), step)
    return collector.next(policy, steps)


def gradients(settings: RunSettings, batch: Batch) -> torch.Tensor:
    """Of the first update, not clipped."""
    policy, _, updater = parts(settings)
    updater.recipe = replace(settings.recipe, clip_norm=1e9)
    updater.update(batch, 0)
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def near(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool((first - second).abs().max() < 1e-5 * second.abs().max()) and float(second.abs().max()) > 0


@pytest.mark.parametrize("name", ["addmul", "chain"])
@pytest.mark.parametrize("objective", ON_POLICY)
def test_on_policy_ratios_are_one(objective, name):
    settings = small(name, staleness=0, objective=objective, temperature=1.4, overlong="interrupt")
    policy, collector, updater = parts(settings)
    for step in range(4):
        figures = updater.update(collector.next(policy, step), step)
        assert figures["ratio_mean"] == pytest.approx(1, abs=1e-5)
        assert figures["ratio_max"] == pytest.approx(1, abs=1e-5)
        assert figures["lag"] == 0
        if objective != "topr":
            assert figures["clipped"] == 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("objective", ON_POLICY)
def test_on_policy_all_gradients_are_those_of_reinforce(objective, aggregation):
    settings = small("chain", staleness=0, aggregation=aggregation)
    batch = collected(settings)
    plain = small("chain", staleness=0, aggregation=aggregation, objective="reinforce")
    other = small("chain", staleness=0, aggregation=aggregation, objective=objective)
    assert near(gradients(other, batch), gradients(plain, batch))


def test_off_policy_the_ratio_counts():
    settings = small("chain", staleness=4, learning_rate=0.02, warmup=0, clip_low=0.05, clip_high=0.05)
    policy, collector, updater = parts(settings)
    figures = [updater.update(collector.next(policy, step), step) for step in range(8)]
    assert [f["lag"] for f in figures] == [0, 1, 2, 3, 4, 4, 4, 4]
    assert figures[0]["ratio_max"] == pytest.approx(1, abs=1e-5)
    assert all(f["ratio_max"] > 1.05 for f in figures[2:])


def test_a_coarse_generator_head_makes_ratios_differ_from_one():
    settings = small("chain", staleness=0, generator_head="float8")
    policy, collector, updater = parts(settings)
    assert updater.update(collector.next(policy, 0), 0)["ratio_max"] > 1.01
    alike = small("chain", staleness=0, generator_head="float8", trainer_head="float8")
    policy, collector, updater = parts(alike)
    assert updater.update(collector.next(policy, 0), 0)["ratio_mean"] == pytest.approx(1, abs=5e-3)


def test_a_vanishing_rate_leaves_the_weights_alone():
    policy, collector, updater = parts(small(learning_rate=1e-12))
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    for step in range(5):
        updater.update(collector.next(policy, step), step)
    moved = max(float((before[n] - value).abs().max()) for n, value in policy.state_dict().items())
    assert moved <= 5e-12 * 1.1


def test_the_rate_rises_in_equal_steps_and_then_stays():
    # Whatever the gradient, Adam's first step moves each weight by the rate; afterwards by about as much.
    settings = small("chain", learning_rate=1e-2, warmup=4, staleness=0)
    policy, collector, updater = parts(settings)
    moves, rates = [], []
    for step in range(7):
        before = policy.head.weight.detach().clone()
        updater.update(collector.next(policy, step), step)
        moves.append(float((policy.head.weight - before).detach().abs().max()))
        rates.append(updater.optimiser.param_groups[0]["lr"])
    assert moves[0] == pytest.approx(0.25e-2, rel=1e-3)
    assert rates == pytest.approx([0.25e-2, 0.5e-2, 0.75e-2, 1e-2, 1e-2, 1e-2, 1e-2])


def test_without_warm_up_the_first_step_has_the_whole_rate():
    policy, collector, updater = parts(small("chain", learning_rate=1e-2, warmup=0, staleness=0))
    before = policy.head.weight.detach().clone()
    updater.update(collector.next(policy, 0), 0)
    assert float((policy.head.weight - before).detach().abs().max()) == pytest.approx(1e-2, rel=1e-3)


def test_large_gradients_are_cut_to_the_norm_and_small_ones_are_not():
    batch = collected(small("chain", staleness=0))
    for limit in (1e-3, 1e3):
        policy, _, updater = parts(small("chain", staleness=0, clip_norm=limit))
        figures = updater.update(batch, 0)
        held = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        assert float(held.norm()) == pytest.approx(min(figures["grad_norm"], limit), rel=1e-4)


def with_equal_groups(settings: RunSettings) -> tuple[Batch, torch.Tensor]:
    """A batch of which two groups of rewards do not vary."""
    batch = collected(settings)
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.0], [0.0] * 4])
    return replace(batch, rewards=rewards), torch.tensor([True, False, True, False])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize(
    "how",
    [
        {"scale": "group"},
        {"scale": "batch", "objective": "clipped"},
        {"scale": "none", "baseline": "leave_one_out", "objective": "gspo"},
        {"scale": "batch", "baseline": "batch", "objective": "reinforce"},
        {"scale": "batch", "baseline": "value", "objective": "clipped"},
        {"scale": "none", "kl": 0.1, "objective": "clipped"},
        {"scale": "none", "baseline": "none", "objective": "expert_iteration"},
        {"scale": "none", "baseline": "none", "objective": "online_dpo"},
    ],
    ids=lambda how: "-".join(str(word) for word in how.values()),
)
def test_dropping_is_training_on_the_rest_alone(how, aggregation):
    settings = small("chain", staleness=0, aggregation=aggregation, zero_variance="drop", **how)
    batch, varied = with_equal_groups(settings)
    only = replace(batch, rollouts=batch.rollouts[varied], rewards=batch.rewards[varied])
    keeping = replace(settings, recipe=replace(settings.recipe, zero_variance="keep"))
    assert near(gradients(settings, batch), gradients(keeping, only))
    dropped, whole = gradients(settings, batch), gradients(keeping, batch)
    # Groups that do not vary count in what sums are divided by, where they are kept.
    if how != {"scale": "none", "baseline": "none", "objective": "online_dpo"}:
        assert not near(dropped, whole)


def test_a_batch_without_any_variance_moves_nothing_when_dropped():
    settings = small("chain", staleness=0, zero_variance="drop")
    batch, _ = with_equal_groups(settings)
    policy, _, updater = parts(settings)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    figures = updater.update(replace(batch, rewards=torch.ones_like(batch.rewards)), 0)
    assert figures["loss"] == figures["grad_norm"] == 0
    assert same(before, policy.state_dict())


def test_better_rollouts_become_likelier():
    settings = small("chain", staleness=0, learning_rate=1e-2, warmup=0)
    batch, _ = with_equal_groups(settings)
    for objective in ("reinforce", "importance", "clipped", "cispo", "gspo", "topr", "online_dpo"):
        policy, _, updater = parts(
            small("chain", staleness=0, learning_rate=1e-2, warmup=0, objective=objective)
        )

        def preference(policy=policy):
            with torch.no_grad():
                whole = score(policy, states(policy, batch.rollouts), batch.rollouts).sum(-1)
            return float(
                whole[0, [0, 3]].mean() - whole[0, [1, 2]].mean() + 2 * whole[2, 2] - 2 * whole[2].mean()
            )

        before = preference()
        updater.update(batch, 0)
        assert preference() > before, objective


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_end_the_run(bad):
    policy, collector, updater = parts(small())
    batch = collector.next(policy, 0)
    with torch.no_grad():
        policy.head.weight[0, 0] = bad
    with pytest.raises(ForecastError, match=r"diverged.*update 4 "):
        updater.update(batch, 3)


def test_a_gradient_that_is_no_number_does_not_reach_the_weights():
    policy, collector, updater = parts(small())
    batch = collector.next(policy, 0)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    rewards = batch.rewards.clone()
    rewards[0, 0] = float("nan")
    with pytest.raises(ForecastError, match="diverged"):
        updater.update(replace(batch, rewards=rewards), 0)
    assert same(before, policy.state_dict())


@pytest.mark.parametrize("of", ["base", "grpo", "online_dpo", "expert_iteration"])
def test_the_value_head_rests_unless_it_is_the_baseline(of):
    policy, collector, updater = parts(small(of=of))
    for step in range(4):
        updater.update(collector.next(policy, step), step)
    assert not policy.value.weight.any()
    assert not policy.value.bias.any()


def test_the_value_head_learns_the_reward():
    settings = small("chain", "ppo", staleness=0, value_weight=5.0, learning_rate=0.02, warmup=0)
    batch, _ = with_equal_groups(settings)
    batch = replace(batch, rewards=torch.full((4, 4), 0.75))
    policy, _, updater = parts(settings)
    for step in range(60):
        updater.update(batch, step)
    with torch.no_grad():
        predicted = policy.value(states(policy, batch.rollouts))[..., 0][batch.rollouts.mask]
    assert predicted.mean() == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize("of", ["grpo", "online_dpo", "base"])
def test_the_reference_never_changes(of):
    policy, collector, updater = parts(small(of=of))
    before = {name: value.clone() for name, value in updater.reference.state_dict().items()}
    start = {name: value.clone() for name, value in policy.state_dict().items()}
    for step in range(4):
        updater.update(collector.next(policy, step), step)
    assert same(before, updater.reference.state_dict())
    assert not same(start, policy.state_dict())


def test_a_divergence_from_the_reference_pulls_the_policy_towards_it():
    heavy = small("chain", "grpo", kl=50.0, staleness=0, learning_rate=3e-3, warmup=0, prompts=16, rollouts=8)
    policy, collector, updater = parts(heavy)
    divergence = [updater.update(collector.next(policy, step), step)["kl"] for step in range(40)]
    assert divergence[0] > 0
    assert sum(divergence[-5:]) < 0.5 * sum(divergence[:5])


def on(device: str) -> RunSettings:
    return small("chain", "grpo", device=device, steps=20, points=3, staleness=2, size=Size(16, 2, 4))


def test_cuda_does_as_the_cpu_does():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    from simulators.minirun.generation import score, states

    settings = on("cuda")
    here, there = Run(on("cpu"), weights(settings)), Run(settings, weights(settings))
    batch = there.collector.next(there.policy, 0)
    found = states(there.policy, batch.rollouts)
    logp = score(there.policy, found, batch.rollouts)
    assert (logp - batch.rollouts.logp).abs().max() < 1e-3
    moved = type(batch.rollouts)(
        *(getattr(batch.rollouts, n).cpu() for n in batch.rollouts.__dataclass_fields__)
    )
    assert (states(here.policy, moved) - found.cpu()).abs().max() < 1e-2
    run, kept = Run(settings, weights(settings)), None
    for step in range(20):
        run.advance()
        if step == 9:
            kept = io.BytesIO()
            torch.save(run.state(), kept)
    assert all(value.isfinite().all() for value in run.policy.state_dict().values())
    assert run.done
    again = Run(settings, weights(settings))
    kept.seek(0)
    again.restore(torch.load(kept, weights_only=True, map_location="cpu"))
    while not again.done:
        again.advance()
    for name, value in run.policy.state_dict().items():
        torch.testing.assert_close(again.policy.state_dict()[name], value, rtol=1e-3, atol=1e-4)
