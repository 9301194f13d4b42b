"""Each family against its printed formula in plain arithmetic: values, and derivatives by complex step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecast import curves


def _sigmoid(C, R0, A, B, M):
    return R0 + (A - R0) / (1 + (M / C) ** B)


def _burr(C, R0, A, B, M, nu):
    return A - (A - R0) * (1 + (C / M) ** B) ** -nu


def _power_law(C, R0, A, B, M):
    return A - (A - R0) * (1 + C / M) ** -B


def _logistic(C, B2, m2):
    return 1 / (1 + np.exp(-B2 * (np.log(C) - np.log(m2))))


def _second_rise(C, R0, A, B, M, h, B2, m2):
    return _sigmoid(C, R0, A, B, M) + h * _logistic(C, B2, m2)


def _collapse(C, R0, A, B, M, d, B2, m2):
    return _sigmoid(C, R0, A, B, M) - d * _logistic(C, B2, m2)


FIRST = ("floor", "ceiling", "exponent", "midpoint")
FAMILIES: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "sigmoid": (_sigmoid, FIRST),
    "burr": (_burr, (*FIRST, "tail")),
    "power_law": (_power_law, FIRST),
    "second_rise": (_second_rise, (*FIRST, "rise", "second_exponent", "second_midpoint")),
    "collapse": (_collapse, (*FIRST, "drop", "second_exponent", "second_midpoint")),
}
every_family = pytest.mark.parametrize("family", FAMILIES)


def _log_range(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(np.log(low), np.log(high)).map(lambda x: float(np.exp(x)))


COMPUTE = _log_range(1e-3, 1e7)
PARAMETERS = {
    "floor": st.floats(0.0, 0.6),
    "ceiling": st.floats(0.3, 1.0),
    "exponent": _log_range(0.05, 8.0),
    "midpoint": _log_range(1e-2, 1e6),
    "tail": _log_range(0.05, 10.0),
    "rise": st.floats(0.0, 0.4),
    "drop": st.floats(0.0, 0.6),
    "second_exponent": _log_range(0.3, 8.0),
    "second_midpoint": _log_range(1e-2, 1e6),
}


def value_and_gradient(family: str) -> tuple[Callable, Callable]:
    return getattr(curves, family), getattr(curves, f"{family}_gradient")


@every_family
@settings(max_examples=150, derandomize=True, deadline=None)
@given(data=st.data())
def test_value_and_every_derivative_match_the_printed_formula(family: str, data: st.DataObject) -> None:
    formula, names = FAMILIES[family]
    value, gradient = value_and_gradient(family)
    at = {"compute": data.draw(COMPUTE), **{name: data.draw(PARAMETERS[name]) for name in names}}
    # The plain formula cancels near its ends, so it is trusted to some ulps of the pass-rate scale only.
    assert value(**at) == pytest.approx(formula(*at.values()), rel=1e-11, abs=1e-13)
    partials = gradient(**at)
    assert set(partials) == set(at)
    for name in at:
        step = 1e-30 * max(at[name], 1e-3)
        moved = [complex(x, step) if key == name else complex(x) for key, x in at.items()]
        exact = formula(*moved).imag / step
        # Derivatives per relative change of the argument, so that 1e-13 means the same for all of them.
        scale = at[name] if name not in ("floor", "ceiling", "rise", "drop") else 1.0
        assert partials[name] * scale == pytest.approx(exact * scale, rel=1e-9, abs=1e-13), name


EXTREMES = np.array([1e-30, 1e-12, 1.0, 1e12, 1e30])
# Fine enough that some share lands among the denormal numbers, whose products underflow.
ALL_COMPUTE = np.geomspace(1e-30, 1e30, 1201)


@every_family
def test_extreme_compute_and_parameters_raise_no_floating_point_flag(family: str) -> None:
    _, names = FAMILIES[family]
    value, gradient = value_and_gradient(family)
    shape = dict.fromkeys(names, 0.3) | {"floor": 0.1, "ceiling": 0.6}
    for exponent in (1e-3, 1.0, 50.0):
        for midpoint in EXTREMES:
            for tail in (1e-3, 1.0, 50.0):
                parameters = shape | {
                    name: number
                    for name, number in {
                        "exponent": exponent,
                        "midpoint": midpoint,
                        "second_exponent": exponent,
                        "second_midpoint": 1 / midpoint,
                        "tail": tail,
                    }.items()
                    if name in names
                }
                with np.errstate(all="raise"):
                    values = value(ALL_COMPUTE, **parameters)
                    partials = gradient(ALL_COMPUTE, **parameters)
                assert np.all((values >= -0.3) & (values <= 1.0))
                assert all(np.isfinite(p).all() for p in partials.values())


def test_ends_are_exact_and_the_midpoint_is_half_way() -> None:
    assert curves.sigmoid([1e-30, 3000.0, 1e30], 0.1, 0.6, 2.0, 3000.0) == pytest.approx(
        [0.1, 0.35, 0.6], abs=1e-15
    )
    assert curves.power_law([1e-30, 1e30], 0.1, 0.6, 2.0, 3000.0) == pytest.approx([0.1, 0.6], abs=1e-15)
    # 2^-tail of the gain is left at the midpoint.
    assert curves.burr(3000.0, 0.1, 0.6, 2.0, 3000.0, 2.0) == pytest.approx(0.6 - 0.5 / 4)
    assert curves.second_rise(1e30, 0.1, 0.6, 2.0, 3000.0, 0.2, 4.0, 9000.0) == pytest.approx(0.8)
    assert curves.collapse(1e30, 0.1, 0.6, 2.0, 3000.0, 0.2, 4.0, 9000.0) == pytest.approx(0.4)


def test_a_slow_tail_is_not_cut_off_where_the_rise_is_long_over() -> None:
    # 44 decades past the midpoint with exponent 20: (1 + x^20)^-0.01 = x^-0.2 is still 1.6e-9 of the gain.
    x = 1e44
    left = 1.0 - curves.burr(x**0.5, 0.0, 1.0, 20.0, x**-0.5, 0.01)
    assert left == pytest.approx(x**-0.2, rel=1e-6)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    PARAMETERS["floor"],
    PARAMETERS["ceiling"],
    PARAMETERS["exponent"],
    PARAMETERS["midpoint"],
)
def test_burr_with_tail_one_is_the_sigmoid(
    floor: float, ceiling: float, exponent: float, midpoint: float
) -> None:
    compute = np.geomspace(1e-30, 1e30, 61)
    parameters = (floor, ceiling, exponent, midpoint)
    burr, sigmoid = curves.burr(compute, *parameters, tail=1.0), curves.sigmoid(compute, *parameters)
    np.testing.assert_allclose(burr, sigmoid, rtol=0, atol=1e-13)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(
    st.floats(0.0, 0.4),
    st.floats(0.41, 1.0),
    PARAMETERS["exponent"],
    PARAMETERS["midpoint"],
    PARAMETERS["tail"],
)
def test_rising_families_rise_and_stay_between_floor_and_ceiling(
    floor: float, ceiling: float, exponent: float, midpoint: float, tail: float
) -> None:
    compute = np.geomspace(1e-30, 1e30, 301)
    parameters = (floor, ceiling, exponent, midpoint)
    for values in (
        curves.sigmoid(compute, *parameters),
        curves.power_law(compute, *parameters),
        curves.burr(compute, *parameters, tail),
    ):
        assert np.all(np.diff(values) >= -1e-15)
        assert values.min() >= floor - 1e-15
        assert values.max() <= ceiling + 1e-15


@pytest.mark.parametrize("start", [{"floor": 0.55, "midpoint": 50.0}, {"floor": 0.3, "midpoint": 1e-6}])
def test_collapse_describes_a_run_that_starts_at_its_ceiling_and_falls_below_its_floor(start: dict) -> None:
    compute = np.linspace(200, 20_000, 100)
    run = curves.collapse(
        compute, ceiling=0.56, exponent=3.0, drop=0.5, second_exponent=4.0, second_midpoint=6000.0, **start
    )
    assert run[0] == pytest.approx(0.56, abs=0.001)
    assert np.all(np.diff(run[compute > 1000]) < 0)
    assert run[-1] == pytest.approx(0.06, abs=0.005)


@every_family
def test_draws_and_points_broadcast(family: str) -> None:
    _, names = FAMILIES[family]
    value, gradient = value_and_gradient(family)
    rng = np.random.default_rng(3)
    draws = {name: rng.uniform(0.2, 0.5, (7, 1)) for name in names}
    compute = np.array([0.1, 1.0, 10.0])
    together = value(compute, **draws)
    assert together.shape == (7, 3)
    one = {name: draw[4, 0] for name, draw in draws.items()}
    assert together[4, 2] == value(10.0, **one)
    for name, partial in gradient(compute, **draws).items():
        assert partial.shape == (7, 3), name
        assert partial[4, 2] == gradient(10.0, **one)[name], name
