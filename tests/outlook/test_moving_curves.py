"""Draws with a tail and a move are the curve families, drawn one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forecast import curves
from forecast.outlook.draws import CurveDraws

SIZE = 40
COMPUTE = np.array([1.0, 30.0, 250.0, 700.0, 1_000.0])


def draws(seed: int = 0, **added: np.ndarray) -> CurveDraws:
    rng = np.random.default_rng(seed)
    floor = rng.uniform(0.0, 0.4, SIZE)
    return CurveDraws(
        floor=floor,
        ceiling=rng.uniform(floor, 0.8),
        exponent=rng.uniform(0.5, 4.0, SIZE),
        midpoint=rng.uniform(20.0, 3_000.0, SIZE),
        noise=np.full(SIZE, 0.01),
        drift=rng.normal(0, 0.02, SIZE),
        fitted_upto=1_000.0,
        **added,
    )


def second(seed: int, sign: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "move": sign * rng.uniform(0.0, 0.2, SIZE),
        "second_exponent": rng.uniform(1.0, 12.0, SIZE),
        "second_midpoint": rng.uniform(50.0, 4_000.0, SIZE),
    }


def one_by_one(family, of: CurveDraws, *names: str, **other: np.ndarray) -> np.ndarray:
    return np.array(
        [
            [
                family(c, *(float((other.get(name, getattr(of, name, None)))[k]) for name in names))
                for c in COMPUTE
            ]
            for k in range(SIZE)
        ]
    )


BASE = ("floor", "ceiling", "exponent", "midpoint")
MOVE = ("move", "second_exponent", "second_midpoint")


def test_a_tail_makes_a_burr_curve() -> None:
    of = draws(tail=np.random.default_rng(5).uniform(0.2, 3, SIZE))
    np.testing.assert_allclose(
        of.curve(COMPUTE), one_by_one(curves.burr, of, *BASE, "tail"), rtol=1e-12, atol=1e-14
    )


def test_a_tail_with_exponent_one_makes_a_power_law() -> None:
    of = draws()
    as_burr = replace(of, tail=of.exponent, exponent=np.ones(SIZE))
    np.testing.assert_allclose(
        as_burr.curve(COMPUTE), one_by_one(curves.power_law, of, *BASE), rtol=1e-12, atol=1e-14
    )


def test_a_tail_of_one_and_no_move_is_the_sigmoid_at_every_compute() -> None:
    plain = draws()
    none = {"move": np.zeros(SIZE), "second_exponent": np.ones(SIZE), "second_midpoint": np.ones(SIZE)}
    far = np.geomspace(0.1, 1e9, 20)
    np.testing.assert_allclose(
        draws(tail=np.ones(SIZE), **none).curve(far), plain.curve(far), rtol=1e-12, atol=1e-14
    )


@pytest.mark.parametrize("tail", [False, True])
def test_an_upward_move_makes_a_second_rise(tail: bool) -> None:
    of = draws(**second(6, 1), **({"tail": np.ones(SIZE)} if tail else {}))
    expected = one_by_one(curves.second_rise, of, *BASE, *MOVE)
    assert expected.max() <= 1
    np.testing.assert_allclose(of.curve(COMPUTE), expected, rtol=1e-12, atol=1e-14)


def test_a_downward_move_makes_a_collapse_that_stops_at_zero() -> None:
    of = draws(**second(7, -1))
    expected = one_by_one(curves.collapse, of, *BASE, *MOVE, move=-of.move)
    assert (expected < 0).any()
    np.testing.assert_allclose(of.curve(COMPUTE), np.clip(expected, 0, 1), rtol=1e-12, atol=1e-14)


def test_a_move_adds_to_a_burr_curve_and_the_drift_to_both() -> None:
    tail = np.random.default_rng(8).uniform(0.2, 3, SIZE)
    move = second(9, 1)
    far = np.array([1_000.0, 5_000.0])
    of = draws(tail=tail, **move)
    base = curves.burr(far, *(getattr(of, name)[:, None] for name in (*BASE, "tail")))
    done = 1 / (1 + (of.second_midpoint[:, None] / far) ** of.second_exponent[:, None])
    expected = base + of.move[:, None] * done + of.drift[:, None] * np.log(far / 1_000.0)
    assert expected.max() < 1
    assert expected.min() > 0
    np.testing.assert_allclose(of.curve(far), expected, rtol=1e-12)


def test_curves_stay_within_the_scale_however_far() -> None:
    far = np.geomspace(1e-3, 1e30, 50)
    for sign in (-1, 1):
        large = second(10, sign)
        large["move"] = large["move"] * 5
        value = draws(tail=np.full(SIZE, 0.3), **large).curve(far)
        assert np.isfinite(value).all()
        assert value.min() >= 0
        assert value.max() <= 1
