"""A log that grows: the same flags as if it had been there from the start, and no work done twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from weighed_by_hand import changed, curve_runs, hasty, moved, smooth  # noqa: F401

from forecast.outlook import transitions as module
from forecast.outlook.hazard import Hazard
from forecast.outlook.readings import MINIMUM, cut_offs
from forecast.outlook.transitions import Watched
from forecast.runs.table import Floor, Runs

pytestmark = pytest.mark.usefixtures("hasty")
LENGTH = 12
CURVES = {"a": moved(0.25, 9_000.0), "b": smooth()}


def log(n: int, seed: int = 2, **lengths: int) -> Runs:
    """The first n evaluations."""
    whole = curve_runs(CURVES, seed=seed)
    table = whole.table
    kept = [rows.head(lengths.get(str(run), n)) for run, rows in table.groupby("run", sort=False)]
    import pandas as pd

    return replace(whole, table=pd.concat(kept))


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, int]]]:
    """List (run, evaluations) of every first look and of every careful reading."""
    calls: list[tuple[str, int]] = []
    originals = {name: getattr(module, name) for name in ("glance", "weigh")}

    def counting(name: str):
        def call(observations, j, *arguments, **options):
            calls.append((observations.runs[j], int((observations.run == j).sum())))
            return originals[name](observations, j, *arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for name in originals:
            patched.setattr(module, name, counting(name))
        yield calls


def table(watched: Watched):
    return watched.table(horizon=None, hazard=Hazard()).set_index("run", drop=False)


def test_a_growing_log_is_read_where_a_whole_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(log(MINIMUM), seed=1)
    with counted(monkeypatch) as calls:
        for n in range(MINIMUM, LENGTH + 1):
            watched.runs = log(n)
            grown = table(watched)
    whole = table(Watched(log(LENGTH), seed=1))
    assert sorted(calls) == [(run, n) for run in CURVES for n in cut_offs(LENGTH)]
    for run in CURVES:
        assert [r.evaluations for r in watched.flags()[run].readings] == cut_offs(LENGTH)
        for column in ("state", "kind", "now"):
            assert grown.loc[run, column] == whole.loc[run, column], (run, column)
        # The last reading is the same, careful one.
        for column in ("log_bf_rise", "log_bf_collapse", "cusum", "p_onset", "p_ahead"):
            assert grown.loc[run, column] == whole.loc[run, column], (run, column)
    assert grown.loc["a", "state"] == "alarm"


def test_the_latched_state_is_the_highest_that_was_shown_before() -> None:
    watched = Watched(log(MINIMUM), seed=1)
    shown = []
    for n in range(MINIMUM, LENGTH + 1):
        watched.runs = log(n)
        shown.append(table(watched).loc["a"])
    rank = [module.STATES.index(row["state"]) for row in shown]
    assert rank == sorted(rank)
    first = next(row for row in shown if row["state"] == "alarm")
    assert first["now"] == "alarm"
    assert first["since"] == pytest.approx(first["compute"])
    assert shown[-1]["since"] == first["since"]


def test_nothing_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(log(10), seed=1)
    with counted(monkeypatch) as calls:
        first = table(watched)
        assert sorted(calls) == [(run, n) for run in CURVES for n in cut_offs(10)]
        calls.clear()
        again = table(watched)
        watched.table(horizon=1e9, hazard=Hazard(1, 1))
        watched.runs = log(10)
        table(watched)
        assert calls == []
        watched.runs = log(11)
        table(watched)
        assert sorted(calls) == [("a", 11), ("b", 11)]
        calls.clear()
        watched.runs = log(11, b=12)
        table(watched)
        assert calls == [("b", 12)]
    assert first.equals(again)


def test_a_changed_past_is_read_again_from_where_it_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(log(10), seed=1)
    table(watched)
    other = changed(log(10), "b", [0.55, 0.57], 2)
    with counted(monkeypatch) as calls:
        watched.runs = other
        found = table(watched)
    assert sorted(calls) == [("b", 9), ("b", 10)]
    fresh = table(Watched(other, seed=1))
    for column in ("state", "log_bf_rise", "cusum", "p_ahead"):
        assert found.loc["b", column] == fresh.loc["b", column]
    # And what was there before is still known.
    with counted(monkeypatch) as calls:
        watched.runs = log(10)
        table(watched)
    assert calls == []


def test_other_trials_are_another_past(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(log(9), seed=1)
    table(watched)
    runs = log(9)
    other = runs.table.assign(trials=np.where(runs.table["run"] == "a", 100, 16_000))
    with counted(monkeypatch) as calls:
        watched.runs = replace(runs, table=other)
        table(watched)
    assert sorted(calls) == [("a", 8), ("a", 9)]


def test_another_step_0_evaluation_is_another_past(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(log(9), seed=1)
    before = table(watched)
    other = replace(log(9), floors={"a": Floor(0.05, 16_000), "b": Floor(0.3, 16_000)})
    watched.runs = other
    found = table(watched)
    assert found.loc["a", "log_bf_rise"] == table(Watched(other, seed=1)).loc["a", "log_bf_rise"]
    assert found.loc["a", "log_bf_rise"] != before.loc["a", "log_bf_rise"]


def test_a_log_that_starts_again_forgets_what_it_lost() -> None:
    watched = Watched(log(LENGTH), seed=1)
    assert table(watched).loc["a", "state"] == "alarm"
    restarted = changed(log(LENGTH), "a", list(smooth()[4:]), 8)
    watched.runs = restarted
    assert table(watched).loc["a", "state"] != "alarm"


def test_runs_appear_and_go() -> None:
    watched = Watched(log(9).select(["a"]), seed=1)
    assert list(table(watched)["run"]) == ["a"]
    watched.runs = log(9, b=3)
    found = table(watched)
    assert list(found["run"]) == ["a", "b"]
    assert found.loc["b", "reason"].startswith("Only 3 evaluations")
    watched.runs = log(9).select(["b"])
    assert list(table(watched)["run"]) == ["b"]
