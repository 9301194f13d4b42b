"""Do the named worlds do what their names say?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forecast.curves import second_rise, sigmoid
from forecast.errors import InputError
from forecast.inference.curve_fit import fit_curve
from simulators.skills.context import room
from simulators.skills.overrides import override
from simulators.skills.population import draw_population
from simulators.skills.presets import PRESETS, preset
from simulators.skills.settings import Settings
from simulators.skills.standing import approaches_ceiling, ceiling
from simulators.skills.training import History, train


def curves(settings: Settings, worlds: int = 2, seed: int = 0) -> tuple[History, np.ndarray, np.ndarray]:
    """History, exact pass rates and proxies [world, evaluation], after step 0."""
    population = draw_population(settings, worlds, np.random.default_rng(seed))
    history = train(population, settings, np.random.default_rng(seed + 1))
    solved = history.held_out.solved.mean(axis=2).T[:, 1:]
    return history, solved, history.held_out.accepted.mean(axis=2).T[:, 1:]


def distance(history: History, y: np.ndarray) -> float:
    """Root mean square distance of a curve from the closest sigmoid."""
    found = fit_curve("sigmoid", history.used.rollouts[1:, 0], y)
    assert found is not None
    return float(np.sqrt(found.sse / len(y)))


def test_smooth_is_a_sigmoid_whose_ceiling_a_fit_overstates() -> None:
    settings = preset("smooth")
    history, solved, _ = curves(settings, worlds=3)
    population = draw_population(settings, 3, np.random.default_rng(0))
    limit = ceiling(population.held_out, room(settings.context, settings.prompts.steps))
    assert approaches_ceiling(settings)
    for world in range(3):
        found = fit_curve("sigmoid", history.used.rollouts[1:, world], solved[world])
        assert found is not None
        assert np.sqrt(found.sse / solved.shape[1]) <= 0.007
        assert 1.0 <= found.exponent <= 2.0
        assert found.ceiling > limit[world] > solved[world, -1]


def test_gated_stays_flat_and_then_rises_again() -> None:
    history, solved, _ = curves(preset("gated"))
    compute = history.used.rollouts[1:, 0]
    for y in solved:
        assert distance(history, y) > 0.03
        plateau = (compute > 1e5) & (compute < 3e5)
        assert plateau.sum() >= 4
        assert np.ptp(y[plateau]) < 0.08
        assert y[-1] - y[plateau].max() > 0.2


def test_a_hidden_gate_cannot_be_told_from_a_ceiling() -> None:
    settings = preset("hidden-gate")
    history, solved, _ = curves(settings)
    population = draw_population(settings, 2, np.random.default_rng(0))
    limit = ceiling(population.held_out, room(settings.context, settings.prompts.steps))
    for world, y in enumerate(solved):
        # The fit is as good as that of a world without a gate, and its ceiling is far below the true one.
        assert distance(history, y) <= 0.008
        found = fit_curve("sigmoid", history.used.rollouts[1:, world], y)
        assert found is not None
        assert limit[world] - found.ceiling > 0.25


def test_a_gap_gives_a_shoulder() -> None:
    history, solved, _ = curves(preset("gap"))
    for y in solved:
        assert distance(history, y) > 0.02
        assert y[-1] > 0.88


def test_hacked_falls_while_its_proxy_rises() -> None:
    _, solved, proxy = curves(preset("hacked"))
    for true, accepted in zip(solved, proxy, strict=True):
        assert true.max() > 0.5
        assert true[-1] < 0.02
        assert accepted[-1] > 0.99
        assert (np.diff(accepted[true.argmax() :]) > -1e-3).all()


def test_a_noisy_verifier_slows_and_does_not_cap() -> None:
    clean, noisy = preset("smooth"), preset("noisy-verifier")
    _, quick, _ = curves(replace(clean, recipe=replace(clean.recipe, steps=1500)))
    _, slow, _ = curves(replace(noisy, recipe=replace(noisy.recipe, steps=1500)))
    assert (slow[:, -1] < quick[:, -1] - 0.03).all()
    # Twice the steps make up for it.
    _, longer, _ = curves(noisy)
    assert (longer[:, -1] > quick[:, -1] - 0.01).all()


def test_overfit_holds_train_above_held_out() -> None:
    history, solved, _ = curves(preset("overfit"))
    assert (history.train.solved[-1] - solved[:, -1] > 0.3).all()


def test_interference_ends_far_below_the_bound() -> None:
    settings = preset("interference")
    assert not approaches_ceiling(settings)
    _, solved, _ = curves(settings)
    assert (solved[:, -1] < 0.7).all()


def test_worst_case_ensembles_prevent_over_optimisation() -> None:
    base = preset("reward-model")
    model = base.verifier.reward_model
    assert model is not None
    fallen = {}
    for members, aggregate in ((1, "mean"), (4, "worst")):
        changed = replace(model, members=members, aggregate=aggregate)
        settings = replace(base, verifier=replace(base.verifier, reward_model=changed))
        _, solved, proxy = curves(replace(settings, recipe=replace(settings.recipe, steps=2000)), worlds=8)
        fallen[aggregate] = solved[:, -1] < 0.5 * solved.max(axis=1)
        # Over-optimised is what the reward model goes on liking.
        assert (proxy[fallen[aggregate], -1] > 0.6).all()
    assert fallen["mean"].mean() >= 0.8
    assert fallen["worst"].mean() <= 0.4


def test_every_preset_has_a_line_about_it_and_unknown_ones_are_refused() -> None:
    assert all(entry.about for entry in PRESETS.values())
    with pytest.raises(InputError, match=r"expected smooth \| gated"):
        preset("nothing")


def test_overrides_reach_every_depth_and_keep_the_rest() -> None:
    base = preset("smooth")
    texts = {
        "recipe.rollouts": "16",
        "recipe.advantage": "rloo",
        "recipe.retire_above": ".9",
        "policy.rank": "none",
        "prompts.gate_rate": "1e-3,1e-2",
        "prompts.pass_rates": ".1,.5",
        "verifier.reward_model.members": "4",
        "context.limit": "inf",
    }
    changed = override(base, texts)
    assert changed.recipe == replace(base.recipe, rollouts=16, advantage="rloo", retire_above=0.9)
    assert changed.prompts == replace(base.prompts, gate_rate=(1e-3, 1e-2), pass_rates=(0.1, 0.5))
    assert changed.verifier.reward_model.members == 4
    assert (changed.context, changed.costs) == (base.context, base.costs)
    without = override(changed, {"verifier.reward_model": "none"})
    assert without.verifier.reward_model is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("recip.steps", "3", "no such setting"),
        ("recipe.step", "3", "no such setting"),
        ("recipe", "3", "names a group"),
        ("recipe.steps.more", "3", "no settings of its own"),
        ("recipe.steps", "3.5", "steps cannot be that"),
        ("recipe.steps", "-1", "steps is out of range"),
        ("recipe.learning_rate", "nan", "learning_rate is out of range"),
        ("prompts.gate_rate", ".1", "LOWEST,HIGHEST"),
        ("policy.rank", "0", "rank is out of range"),
        ("verifier.reward_model.aggregate", "median", "unknown aggregate"),
    ],
)
def test_wrong_overrides_name_the_setting(name: str, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        override(preset("smooth"), {name: text})


def test_the_shapes_used_here_are_those_of_the_forecaster() -> None:
    # A second rise is what the gated preset shows: two sigmoids describe what one does not.
    history, solved, _ = curves(preset("gated"), worlds=1)
    from scipy.optimize import curve_fit

    compute = history.used.rollouts[1:, 0]

    def two(c, floor, ceiling, exponent, log_midpoint, rise, second, log_second):
        return second_rise(
            c, floor, ceiling, exponent, np.exp(log_midpoint), rise, second, np.exp(log_second)
        )

    found, _ = curve_fit(two, compute, solved[0], p0=[0.1, 0.5, 2.0, 10.5, 0.4, 3.0, 14.0], maxfev=20_000)
    residual = np.sqrt(np.mean((two(compute, *found) - solved[0]) ** 2))
    assert residual < 0.02 < distance(history, solved[0])
    assert sigmoid(1e5, 0.1, 0.5, 2.0, np.exp(10.5)) < 0.5
