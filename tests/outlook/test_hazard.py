"""How often transitions are expected: what is understood, and the first of two Poisson processes."""

import numpy as np
import pytest

import forecast as fc
from forecast.errors import InputError
from forecast.outlook.hazard import Hazard


@pytest.mark.parametrize(
    ("text", "rise", "collapse"),
    [
        ("rise=.1,collapse=.02", 0.1, 0.02),
        (" collapse = 0.02 , rise = 1e-1 ", 0.1, 0.02),
        (".2", 0.2, 0.2),
        ("0", 0.0, 0.0),
        ("rise=.3", 0.3, 0.05),
        ("collapse=0", 0.05, 0.0),
        ("10", 10.0, 10.0),
    ],
)
def test_a_hazard_is_read_by_kind_or_for_both(text: str, rise: float, collapse: float) -> None:
    assert Hazard.parse(text) == Hazard(rise, collapse)
    assert Hazard.parse(str(Hazard.parse(text))) == Hazard(rise, collapse)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "often",
        "rise",
        "rise=",
        "=.1",
        "jump=.1",
        "rise=.1=.2",
        "rise=.1,rise=.2",
        "rise=.1,.2",
        ".1,.2",
        "rise=.1,",
        "rise=.1;collapse=.2",
        "rise=-.1",
        "nan",
        "collapse=inf",
        "10.5",
    ],
)
def test_what_is_no_hazard_is_refused_with_what_was_found(text: str) -> None:
    with pytest.raises(InputError) as raised:
        Hazard.parse(text)
    message = str(raised.value)
    assert "\n" not in message
    assert "hazard" in message
    assert "expected" in message


@pytest.mark.parametrize("rate", [-0.01, 10.01, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", ["rise", "collapse"])
def test_rates_outside_the_scale_are_refused(kind: str, rate: float) -> None:
    with pytest.raises(InputError, match=kind):
        Hazard(**{kind: rate})


def test_it_is_at_hand_under_the_name_of_the_package_and_does_not_change() -> None:
    assert fc.Hazard is Hazard
    assert fc.Hazard() == Hazard(0.05, 0.05)
    with pytest.raises(AttributeError):
        fc.Hazard().rise = 0.2  # type: ignore[misc]


@pytest.mark.parametrize(("rise", "collapse"), [(0.05, 0.05), (0.4, 0.1), (0.0, 0.7), (2.0, 5.0)])
@pytest.mark.parametrize("decades", [0.1, 1.2, 3.0])
def test_the_first_move_is_that_of_two_poisson_processes(
    rise: float, collapse: float, decades: float
) -> None:
    worlds, cells = 40_000, 300
    rng = np.random.default_rng([1, int(10 * decades), int(100 * rise)])
    # Events in thin slices of compute, and which kind comes first: no formula of an exponential.
    rates = np.array([rise, collapse]) * decades / cells
    first = {"rise": 0, "collapse": 0}
    waiting = worlds
    for _ in range(cells):
        events = rng.random((waiting, 2)) < -np.expm1(-rates)
        both = events.all(axis=1)
        coin = rng.random(waiting) < rise / (rise + collapse)
        first["rise"] += int((events[:, 0] & (~both | coin)).sum())
        first["collapse"] += int((events[:, 1] & (~both | ~coin)).sum())
        waiting = int((~events.any(axis=1)).sum())
    found = Hazard(rise, collapse).within(decades)
    for kind, count in first.items():
        p = found[kind]
        assert abs(count / worlds - p) <= 4.5 * np.sqrt(p * (1 - p) / worlds) + 1e-12, kind
    assert sum(found.values()) == pytest.approx(1 - waiting / worlds, abs=4.5 * 0.5 / np.sqrt(worlds))


def test_nothing_is_expected_without_a_rate_or_without_room() -> None:
    assert Hazard(0, 0).within(100) == {"rise": 0.0, "collapse": 0.0}
    assert Hazard(1, 2).within(0) == {"rise": 0.0, "collapse": 0.0}
    assert Hazard(1, 2).within(-3) == {"rise": 0.0, "collapse": 0.0}
    assert Hazard(0, 1).within(2)["rise"] == 0
    everything = Hazard(10, 10).within(1e9)
    assert everything == {"rise": pytest.approx(0.5), "collapse": pytest.approx(0.5)}
