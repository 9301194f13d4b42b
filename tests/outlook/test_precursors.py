"""Signs of a coming fall: on signals made by hand, where it is known whether and when each must fire."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.outlook.precursors import FALSE_ALARMS, Precursor, precursors
from forecast.runs.table import ComputeAxis, Metric, Runs

N = 40
COMPUTE = 100.0 * np.arange(1, N + 1)


def runs(held_out: Any = None, metric: Metric | None = None, **signals: Any) -> Runs:
    value = np.full(N, 0.5) if held_out is None else np.asarray(held_out)
    parts = [
        pd.DataFrame({"run": "r", "compute": COMPUTE[: len(v)], "signal": name, "value": v})
        for name, v in signals.items()
    ]
    table = pd.DataFrame({"run": "r", "compute": COMPUTE, "value": value})
    return Runs(table, metric or Metric("acc"), ComputeAxis("gpu_hours"), signals=pd.concat(parts))


def one(*args: Any, upto: float | None = None, **signals: Any) -> Precursor:
    (found,) = precursors(runs(*args, **signals), "r", upto)
    return found


def at(*places: int, value: float, rest: float) -> np.ndarray:
    values = np.full(N, rest)
    values[list(places)] = value
    return values


def noise(sd: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, sd, N)


def test_truncation_fires_at_its_second_evaluation_and_says_so() -> None:
    found = one(truncation=np.where(COMPUTE >= 1100, 0.18, 0.02))
    assert (found.name, found.fired, found.since, found.value) == ("truncation", True, 1200, 0.18)
    assert found.sentence.startswith(
        "18 % of rollouts were cut at the length limit (above 10 % since 1,200 gpu_hours); fires in "
    )
    assert found.sentence.endswith(" of simulated runs without a transition")


def test_a_blip_does_not_fire() -> None:
    found = one(truncation=at(3, 9, 20, value=0.9, rest=0.02))
    assert not found.fired
    assert math.isnan(found.since)
    assert "no alarm" in found.sentence


def test_a_sign_that_goes_away_stays_fired() -> None:
    found = one(truncation=at(10, 11, value=0.5, rest=0.0))
    assert (found.fired, found.since, found.value) == (True, 1200, 0.0)
    assert "was above 10 % at 1,200 gpu_hours" in found.sentence


def test_nothing_after_upto_is_looked_at() -> None:
    signal = at(10, 11, value=0.5, rest=0.0)
    assert not one(truncation=signal, upto=1100).fired
    assert one(truncation=signal, upto=1200).since == 1200


def test_groups_without_variance_fire_when_they_became_many() -> None:
    assert one(zero_variance=np.where(COMPUTE >= 2000, 0.97, 0.4)).since == 2100
    assert not one(zero_variance=np.full(N, 0.97)).fired
    assert not one(zero_variance=np.linspace(0.1, 0.8, N)).fired


def test_entropy_fires_when_it_is_gone_or_explodes() -> None:
    gone = one(entropy=np.where(COMPUTE >= 2000, 0.01, 0.6))
    assert (gone.since, "below 5 %" in gone.sentence) == (2100, True)
    grown = one(entropy=np.where(COMPUTE >= 2000, 1.5, 0.6))
    assert (grown.since, "above 2 times" in grown.sentence) == (2100, True)
    assert not one(entropy=np.linspace(0.6, 0.15, N)).fired


RISING = 0.2 + 0.6 * (1 - np.exp(-COMPUTE / 1500))
HACKED = np.where(COMPUTE <= 2000, RISING, RISING - 0.4 * np.minimum(1, (COMPUTE - 2000) / 1000))


def test_a_proxy_that_rises_while_the_held_out_value_falls_fires() -> None:
    found = one(HACKED + noise(0.01), proxy=RISING + noise(0.01, 1))
    assert found.name == "proxy_gap"
    assert 2100 <= found.since <= 2800
    assert found.value == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize("gap", [-0.2, 0.0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_a_constant_gap_does_not_fire(gap: float, seed: int) -> None:
    assert not one(RISING + noise(0.02, seed), proxy=RISING + gap + noise(0.02, seed + 100)).fired


def test_neither_alone_fires() -> None:
    both_fall = one(HACKED + noise(0.01), proxy=HACKED + 0.1 + noise(0.01, 1))
    overfit = one(np.minimum(RISING, 0.5) + noise(0.01), proxy=RISING + noise(0.01, 1))
    assert not both_fall.fired
    assert not overfit.fired


def test_the_metric_may_be_an_error_rate() -> None:
    errors = Metric("error", kind="error_rate", scale=(1, 0))
    assert one(1 - np.clip(HACKED, 0, 1), metric=errors, proxy=RISING).fired
    assert not one(1 - RISING, metric=errors, proxy=RISING).fired


def test_signals_that_were_hardly_logged_are_passed_over() -> None:
    found = precursors(runs(truncation=[0.5, 0.5], entropy=[1.0, 1.0, 1.0], proxy=[0.1, 0.2, 0.3]), "r")
    assert [sign.name for sign in found] == ["entropy", "proxy_gap"]
    assert not any(sign.fired for sign in found)
    assert {sign.name for sign in found} <= set(FALSE_ALARMS)


def test_an_unknown_run_is_named() -> None:
    with pytest.raises(InputError, match="no such run"):
        precursors(runs(entropy=[1.0]), "q")
