"""Are the steps those of plain gradient ascent and of Adam?"""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulators.skills.optimiser import Adam, Sgd, optimiser


def adam_by_hand(gradients: list[float], rate: float) -> list[float]:
    """Algorithm 1 of Kingma and Ba, for one parameter."""
    mean, square, steps = 0.0, 0.0, []
    for t, gradient in enumerate(gradients, start=1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.95 * square + 0.05 * gradient * gradient
        corrected, spread = mean / (1 - 0.9**t), square / (1 - 0.95**t)
        steps.append(rate * corrected / (math.sqrt(spread) + 1e-8))
    return steps


def test_adam_is_the_published_algorithm() -> None:
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(25, 3, 2)) * np.array([1e-9, 1.0])
    adam = Adam(0.03)
    got = np.array([adam.step(gradient) for gradient in gradients])
    for at in np.ndindex(3, 2):
        expected = adam_by_hand([float(g[at]) for g in gradients], 0.03)
        np.testing.assert_allclose(got[(slice(None), *at)], expected, rtol=1e-12)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e6])
def test_adam_steps_by_its_rate_where_the_gradient_is_constant(size: float) -> None:
    adam = Adam(0.01)
    gradient = size * np.array([[1.0, -2.0]])
    for _ in range(40):
        np.testing.assert_allclose(adam.step(gradient), [[0.01, -0.01]], rtol=2e-4)


def test_first_step_of_adam_is_the_rate_in_the_direction_of_the_gradient() -> None:
    gradient = np.random.default_rng(2).normal(size=(4, 5))
    np.testing.assert_allclose(Adam(0.2).step(gradient), 0.2 * np.sign(gradient), rtol=1e-5)
    np.testing.assert_array_equal(Adam(0.2).step(np.zeros(3)), 0.0)


def test_adam_forgets_a_single_gradient_at_its_decays() -> None:
    # After one gradient g and t - 1 zeros: mean .1 .9^(t-1) g, square .05 .95^(t-1) g^2, both corrected.
    adam = Adam(1.0)
    adam.step(np.array([3.0]))
    for t in range(2, 30):
        mean = 0.1 * 0.9 ** (t - 1) / (1 - 0.9**t)
        root = math.sqrt(0.05 * 0.95 ** (t - 1) / (1 - 0.95**t))
        np.testing.assert_allclose(adam.step(np.zeros(1)), mean / root, rtol=1e-7)


def test_adam_treats_every_parameter_by_itself() -> None:
    gradients = np.random.default_rng(3).normal(size=(10, 4))
    together, alone = Adam(0.1), Adam(0.1)
    for gradient in gradients:
        np.testing.assert_array_equal(together.step(gradient)[2], alone.step(gradient[2:3])[0])


def test_sgd_steps_by_rate_times_gradient_and_remembers_nothing() -> None:
    sgd = Sgd(0.5)
    for _ in range(2):
        np.testing.assert_array_equal(sgd.step(np.array([[2.0, -4.0]])), [[1.0, -2.0]])


def test_optimisers_leave_the_gradient_as_it_was() -> None:
    gradient = np.array([1.0, -2.0])
    for each in (Sgd(0.5), Adam(0.5)):
        for _ in range(3):
            each.step(gradient)
    np.testing.assert_array_equal(gradient, [1.0, -2.0])


def test_optimiser_of_a_name() -> None:
    assert isinstance(optimiser("adam", 0.1), Adam)
    assert isinstance(optimiser("sgd", 0.1), Sgd)
    assert optimiser("sgd", 0.25).step(np.array([4.0]))[0] == 1.0
