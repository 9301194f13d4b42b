"""Compute needed for a value: the inverse of the three families that only rise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast import curves

FAMILIES = {
    "sigmoid": (curves.sigmoid, curves.sigmoid_compute_to, ()),
    "burr": (curves.burr, curves.burr_compute_to, (0.4,)),
    "burr, heavy": (curves.burr, curves.burr_compute_to, (6.0,)),
    "power_law": (curves.power_law, curves.power_law_compute_to, ()),
}
every_family = pytest.mark.parametrize(("curve", "compute_to", "tail"), FAMILIES.values(), ids=FAMILIES)


@every_family
@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    share=st.floats(0.001, 0.999),
    floor=st.floats(0.0, 0.4),
    gain=st.floats(0.05, 0.6),
    exponent=st.floats(0.3, 8.0),
    midpoint=st.floats(1e-3, 1e7),
)
def test_the_curve_at_the_answer_has_the_value(
    curve, compute_to, tail, share: float, floor: float, gain: float, exponent: float, midpoint: float
) -> None:
    value = floor + share * gain
    parameters = (floor, floor + gain, exponent, midpoint, *tail)
    # A gap of 0.001 * 0.05 next to a value near 1 has lost 5 digits before it arrives.
    assert curve(compute_to(value, *parameters), *parameters) == pytest.approx(value, abs=1e-11)


@every_family
def test_zero_up_to_the_floor_and_infinite_from_the_ceiling(curve, compute_to, tail) -> None:
    with np.errstate(all="raise"):
        answers = compute_to([0.1, 0.2, 0.6, 0.7], 0.2, 0.6, 1.5, 3000.0, *tail)
    assert answers.tolist() == [0.0, 0.0, np.inf, np.inf]


@every_family
def test_beyond_the_range_of_a_float_is_zero_or_infinite_without_a_warning(curve, compute_to, tail) -> None:
    with np.errstate(all="raise"):
        late = compute_to(0.6 - 1e-12, 0.2, 0.6, 0.001, 3000.0, *tail)
        early = compute_to(0.2 + 1e-12, 0.2, 0.6, 0.001, 3000.0, *tail)
    assert late == np.inf
    if curve is not curves.power_law:  # which rises linearly from its floor, whatever its exponent
        assert early == 0.0


def test_answers_broadcast_over_draws_some_of_which_never_arrive() -> None:
    ceilings = np.array([[0.5], [0.6], [0.7]])
    answers = curves.sigmoid_compute_to([0.45, 0.55], 0.2, ceilings, 1.5, 3000.0)
    assert answers.shape == (3, 2)
    assert np.isinf(answers).tolist() == [[False, True], [False, False], [False, False]]
    assert np.all(np.diff(answers[:, 0]) < 0)
