"""Flags from the command line: once, and as logs grow."""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import Command, fill
from fits_by_hand import fit_by_hand
from weighed_by_hand import curve_runs, hand_weighed, hasty, moved, smooth  # noqa: F401

from forecast.fits import Fit

RLFORECAST = Path(sys.executable).with_name("rlforecast")
COLUMNS = [
    "level",
    "run",
    "state",
    "kind",
    "p_onset",
    "p_ahead",
    "log_bf_rise",
    "log_bf_rise_se",
    "log_bf_collapse",
    "log_bf_collapse_se",
    "cusum",
    "stratum",
    "precursors",
    "since",
    "now",
    "compute",
    "unit",
    "evaluations",
    "horizon",
    "hazard",
    "reason",
]
HEADER = "series,gpu_hours,pass_rate,trials\n"


def lines(name: str, values: np.ndarray, begin: int = 0) -> str:
    return "".join(f"{name},{1000 * (i + 1)},{values[i]:.5f},16000\n" for i in range(begin, len(values)))


def wobbling(curve: np.ndarray) -> np.ndarray:
    return curve + 0.003 * np.random.default_rng(2).standard_normal(len(curve))


FALLS = wobbling(moved(-0.35, 8_000.0))
STILL = wobbling(smooth())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fill(tmp_path, {"points.csv": HEADER + lines("falls", FALLS[:10]) + lines("still", STILL[:9])})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


LOG = ("points.csv", "--run", "series")


@pytest.fixture
def saved(place: Path) -> Fit:
    runs = curve_runs({"falls": moved(-0.35, 8_000.0)[:10], "still": smooth()[:9], "few": smooth()[:3]})
    fit = fit_by_hand(runs, upto=None, pooled=(), refused={"falls": "collapsed"})
    fit.save(place / "fit")
    return fit


# Once


@pytest.mark.usefixtures("hasty")
def test_logs_as_a_table(place: Path, command: Command) -> None:
    answer = command("transitions", *LOG)
    assert answer.code == 0, answer.err
    assert "alarm (collapse)" in answer.out
    assert "prior_only" in answer.out
    assert "per decade of compute: rise=0.05,collapse=0.05" in answer.out
    assert "1 runs without a flag" in answer.out
    assert "19 rows read, 19 kept" in answer.err


@pytest.mark.usefixtures("hasty")
def test_logs_as_csv_with_nothing_else_on_stdout(place: Path, command: Command) -> None:
    answer = command("transitions", *LOG, "--format", "csv", "--seed", 3)
    assert answer.code == 0, answer.err
    table = pd.read_csv(io.StringIO(answer.out)).set_index("run", drop=False)
    assert list(table.columns) == COLUMNS
    assert (table.loc["falls", "state"], table.loc["falls", "kind"]) == ("alarm", "collapse")
    assert table.loc["still", "state"] == "prior_only"
    assert (table["unit"] == "gpu_hours").all()
    assert len(table) == 2
    again = command("transitions", *LOG, "--format", "csv", "--seed", 3)
    assert again.out == answer.out
    assert command("transitions", *LOG, "--format", "csv", "--seed", 4).out != answer.out


@pytest.mark.usefixtures("hasty")
def test_a_saved_fit_as_json_also_runs_that_carry_no_forecast(
    place: Path, command: Command, saved: Fit
) -> None:
    answer = command("transitions", "fit", "--format", "json", "--hazard", "rise=.2", "--horizon", 1e6)
    assert answer.code == 0, answer.err
    rows = {row["run"]: row for row in json.loads(answer.out)}
    assert set(rows) == {"falls", "still", "few"}
    assert list(rows["few"]) == COLUMNS
    assert (rows["falls"]["state"], rows["falls"]["kind"]) == ("alarm", "collapse")
    assert rows["few"]["p_onset"] is None
    assert {row["hazard"] for row in rows.values()} == {"rise=0.2,collapse=0.05"}
    assert {row["horizon"] for row in rows.values()} == {1e6}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--hazard", "often"), "often"),
        (("--hazard", "rise=-1"), "-1"),
        (("--horizon", "5000"), "5000"),
        (("--horizon", "nan"), "nan"),
        (("--floor", "low"), "low"),
        (("--seed", "-1"), "-1"),
    ],
)
@pytest.mark.usefixtures("hasty")
def test_wrong_options_are_one_line(
    place: Path, command: Command, words: tuple[str, str], found: str
) -> None:
    answer = command("transitions", *LOG, *words)
    assert answer.code == 2
    assert answer.out == ""
    assert found in answer.last
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("name", ["transitions", "watch"])
def test_nothing_to_read_is_one_line(place: Path, command: Command, name: str) -> None:
    answer = command(name, "absent.csv")
    assert answer.code == 2
    assert answer.out == ""
    assert len(answer.err.splitlines()) == 1
    assert "absent.csv" in answer.err
    assert "Traceback" not in answer.err


def test_a_log_that_has_grown_past_the_horizon_is_still_watched(place: Path) -> None:
    log = place / "grows.csv"
    log.write_text(HEADER + lines("falls", FALLS[:8]))
    with watching("grows.csv", "--run", "series", "--every", "1", "--horizon", "8500") as watch:
        assert watch.line().startswith("falls at 8,000 gpu_hours")
        append(log, lines("falls", FALLS[:10], begin=8))
        assert "-> alarm" in watch.line()
        code, err = watch.stop()
    assert code == 0, err
    assert "Traceback" not in err


def test_watching_nothing_is_refused(place: Path) -> None:
    with watching() as watch:
        try:
            assert watch.process.wait(timeout=60) == 2
        except subprocess.TimeoutExpired:
            pytest.fail("it waits")


@pytest.mark.parametrize("name", ["transitions", "watch"])
def test_help_says_how_it_ends(command: Command, name: str) -> None:
    answer = command(name, "--help")
    assert answer.code == 0
    assert "Exit codes: 0" in answer.out
    assert f"rlforecast {name}" in answer.out


# Forecasts


def test_a_forecast_averages_over_transitions(
    place: Path, command: Command, saved: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed = {name: hand_weighed() for name in saved.runs.names}
    monkeypatch.setattr("forecast.outlook.evidence.weigh_fit", lambda fit: weighed)
    words = ("predict", "fit", "--at", "9000,1e7", "--format", "csv")
    plain, averaged = (
        command(*words, *more) for more in ((), ("--transitions", "averaged", "--hazard", ".3"))
    )
    assert plain.code == averaged.code == 0, averaged.err
    one, two = (pd.read_csv(io.StringIO(answer.out)) for answer in (plain, averaged))
    assert list(one.columns) == list(two.columns)
    assert set(one["transitions"]) == {"excluded"}
    assert set(two["transitions"]) == {"averaged"}
    width = [table["q95"] - table["q05"] for table in (one, two)]
    assert (width[1][two["compute"] == 1e7] > width[0][one["compute"] == 1e7]).all()
    table = command("predict", "fit", "--at", "9000", "--transitions", "averaged")
    assert table.code == 0
    assert "still" in table.out


def test_a_hazard_without_averaging_and_unknown_transitions_are_refused(
    place: Path, command: Command, saved: Fit
) -> None:
    answer = command("predict", "fit", "--at", "9000", "--hazard", ".1")
    assert answer.code == 2
    assert "--hazard goes with --transitions averaged" in answer.last
    answer = command("predict", "fit", "--at", "9000", "--transitions", "perhaps")
    assert answer.code == 2
    assert "'perhaps'" in answer.last
    assert "excluded | averaged" in answer.last


# Watch


@pytest.mark.usefixtures("hasty")
def test_watch_once_prints_every_state(place: Path, command: Command) -> None:
    answer = command("watch", *LOG, "--once")
    assert answer.code == 0, answer.err
    printed = answer.out.splitlines()
    assert len(printed) == 2
    assert printed[0].startswith("falls at 10,000 gpu_hours: alarm (collapse). ")
    assert printed[1].startswith("still at 9,000 gpu_hours: prior_only. ")


class Watching:
    """``rlforecast watch`` in a process of its own; lines of stdout as they come."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [RLFORECAST, "watch", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"},
        )
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[str] = queue.Queue()
        for stream, into in ((self.process.stdout, self.lines), (self.process.stderr, self.errors)):
            threading.Thread(target=lambda s=stream, q=into: [q.put(line) for line in s], daemon=True).start()

    def line(self, seconds: float = 120) -> str:
        return self.lines.get(timeout=seconds)

    def error(self, seconds: float = 120) -> str:
        return self.errors.get(timeout=seconds)

    def stop(self) -> tuple[int, str]:
        """Interrupt it while it sleeps; exit code and the rest of stderr."""
        time.sleep(0.5)
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        time.sleep(0.2)
        return code, "".join(self.errors.queue)


@contextmanager
def watching(*words: str) -> Iterator[Watching]:
    one = Watching(*words)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_watch_prints_changes_as_the_log_grows_and_ends_quietly(place: Path) -> None:
    log = place / "grows.csv"
    log.write_text(HEADER + lines("falls", FALLS[:8]))
    with watching("grows.csv", "--run", "series", "--every", "1") as watch:
        first = watch.line()
        assert first.startswith("falls at 8,000 gpu_hours: "), first
        append(log, lines("falls", FALLS[:11], begin=8))
        change = watch.line()
        assert change.startswith("falls at 11,000 gpu_hours: "), change
        assert "-> alarm" in change
        assert "A collapse" in change
        # Half of a line, as a writer without a buffer leaves it.
        half, rest = lines("falls", FALLS[:12], begin=11)[:9], lines("falls", FALLS[:12], begin=11)[9:]
        append(log, half)
        time.sleep(2.5)
        assert watch.process.poll() is None
        append(log, rest + lines("new", STILL[:2]))
        found = watch.line()
        assert found.startswith("new at 2,000 gpu_hours: prior_only. "), found
        code, err = watch.stop()
    assert code == 0, err
    assert "Traceback" not in err
    assert watch.lines.empty()


def test_watch_waits_for_a_log_without_evaluations(place: Path) -> None:
    log = place / "empty.csv"
    log.write_text(HEADER)
    with watching("empty.csv", "--run", "series", "--every", "1") as watch:
        assert watch.error().startswith("waiting: ")
        append(log, lines("a", STILL[:2]))
        assert watch.line().startswith("a at 2,000 gpu_hours: prior_only. Only 2 evaluations")
        code, err = watch.stop()
    assert code == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "half", ['{"step": 3, "gpu_hours": 30', '{"step": 3, "gpu_hours": 3000, "pass_rate": 0.4']
)
def test_half_a_line_of_json_is_not_an_end(place: Path, half: str) -> None:
    log = place / "grows.jsonl"
    record = '{{"step": {0}, "gpu_hours": {0}000, "pass_rate": 0.3{0}, "trials": 16000}}\n'
    log.write_text(record.format(1) + record.format(2) + half)
    with watching("grows.jsonl", "--every", "1") as watch:
        assert watch.line().startswith("grows at 2,000 gpu_hours")
        for text in (half, record.format(3)):
            log.write_text(record.format(1) + record.format(2) + text)
            time.sleep(2.5)
            assert watch.process.poll() is None, list(watch.errors.queue)
        code, err = watch.stop()
    assert code == 0, err
    assert "Traceback" not in err


@pytest.mark.slow
def test_watch_sees_a_log_that_lies_elsewhere(place: Path) -> None:
    fill(
        place,
        {
            "logs/a.csv": "gpu_hours,pass_rate,trials\n1000,0.31000,16000\n",
            "specs/runs.toml": '[[run]]\nname = "a"\npath = "../logs/a.csv"\n',
        },
    )
    with watching("specs/runs.toml", "--every", "1") as watch:
        assert watch.line().startswith("a at 1,000 gpu_hours")
        append(
            place / "logs/a.csv", "".join(f"{1000 * (i + 1)},{FALLS[i]:.5f},16000\n" for i in range(1, 12))
        )
        try:
            assert "alarm" in watch.line()
        except queue.Empty:
            pytest.fail("the log grew, and nothing was read")
        finally:
            watch.stop()
