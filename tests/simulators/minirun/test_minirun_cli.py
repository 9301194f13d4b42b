"""Does the command leave logs that can be fitted, go on where it was, and refuse what cannot be run?"""
# ruff: noqa: E402

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from command import Command, tree

import forecast as fc
from simulators import minirun_cli
from simulators.minirun.table import UNITS, run_table

SMALL = ("--size", "8x1x1", "--prompts", 32, "--samples", 2, "--pool", 64, "--points", 4, "--device", "cpu")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One warm start for all tests here."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return tmp_path


def logs(folder: Path) -> dict[str, list[dict]]:
    found = {}
    for path in sorted(folder.glob("*/log.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = [
            {name: value for name, value in row.items() if not name.endswith("_seconds")} for row in rows
        ]
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A folder with two runs of grpo."""
    folder = tmp_path_factory.mktemp("finished") / "sweep"
    words = ["minirun", "addmul", "--seeds", "2", "--steps", "6", "-o", str(folder), *map(str, SMALL)]
    environment = os.environ | {"PYTHONHASHSEED": "0", "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-m", "studies.cli", *words, "--recipe", "grpo"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"next: rlforecast fit {folder}/runs.toml" in done.stderr
    return folder


@pytest.fixture
def sweep(finished: Path, place: Path) -> Path:
    return Path(shutil.copytree(finished, place / "sweep"))


def test_what_a_sweep_leaves_behind_is_read_and_more_can_be_added(sweep: Path, command: Command) -> None:
    files = {"checkpoint.pt", "log.jsonl", "settings.json"}
    expected = {"runs.toml", *(f"grpo-s{seed}/{name}" for seed in (0, 1) for name in files)}
    assert set(tree(sweep)) == expected | {"grpo-s0", "grpo-s1"}
    first = logs(sweep)
    mine = "slow=dapo:learning_rate=1e-5,prompts=8"
    words = ("--seeds", 1, "--steps", 6, "-o", "sweep", *SMALL, "--recipe", "grpo", "--recipe", mine)
    added = command("minirun", "addmul", *words)
    assert added.code == 0, added.err
    both = logs(sweep)
    assert {name: both[name] for name in first} == first
    about = json.loads((sweep / "slow-s0" / "settings.json").read_text())
    assert about["settings"]["recipe"]["learning_rate"] == 1e-5
    assert about["settings"]["recipe"]["clip_high"] == 0.28
    assert about["warm_start"]["flops"] > 0

    read = fc.read_runs("sweep/runs.toml")
    assert set(read.recipes.values()) == {"grpo", "slow"}
    made = run_table(both)
    columns = ["run", "stratum", "step", "compute", "value", "trials", "recipe", "seed"]
    order = ["run", "stratum", "step"]
    one, other = (
        each.table.sort_values(order)[columns].reset_index(drop=True).astype(object).fillna("")
        for each in (read, made)
    )
    assert one.equals(other)
    assert read.floors == made.floors


def test_every_unit_of_compute_grows(finished: Path) -> None:
    rows = logs(finished)
    for unit in UNITS:
        for _, run in run_table(rows, unit).overall().groupby("run"):
            assert (np.diff(run["compute"]) > 0).all()
            assert run["compute"].iloc[0] > 0
    with pytest.raises(fc.InputError, match="unit"):
        run_table(rows, "miles")


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_to_the_same_end(place: Path, command: Command) -> None:
    words = ["minirun", "addmul", "--recipe", "dapo", "--seeds", "1", "--steps", "120", *map(str, SMALL)]
    words[words.index("--points") + 1] = "12"
    assert command(*words, "-o", "whole").code == 0
    for seconds in (0.0, 0.6):
        process = subprocess.Popen(
            [sys.executable, "-m", "studies.cli", *words, "-o", "killed"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONHASHSEED": "0"},
        )
        until = time.monotonic() + 60
        while not list((place / "killed").glob("*/log.jsonl")) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    answer = command(*words, "-o", "killed")
    assert answer.code == 0, answer.err
    assert logs(place / "killed") == logs(place / "whole")
    assert not [name for name in tree(place / "killed") if ".tmp" in name]


def test_interrupted_it_says_how_to_go_on_and_leaves_no_process(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "studies.cli", "minirun", "addmul", "--steps", "100000", *map(str, SMALL)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONHASHSEED": "0"},
        # A test run in the background ignores the signal, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    until = time.monotonic() + 60
    while not list(place.glob("*/*/log.jsonl")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted. Run the same command to go on" in err
    assert "Traceback" not in err
    workers = subprocess.run(["pgrep", "-f", "simulators.minirun.worker"], capture_output=True, text=True)
    ours = [
        pid
        for pid in workers.stdout.split()
        if Path(f"/proc/{pid}/cwd").exists() and Path(f"/proc/{pid}/cwd").resolve() == place
    ]
    assert ours == []


REFUSED = {
    "unknown task": (["sums"], "addmul"),
    "no task": ([], "--list"),
    "unknown recipe": (["addmul", "--recipe", "ppo2"], "scalerl"),
    "changed without a name": (["addmul", "--recipe", "grpo:kl=0"], "name of its own"),
    "unknown knob": (["addmul", "--recipe", "a=grpo:lr=1"], "learning_rate"),
    "no number": (["addmul", "--recipe", "a=grpo:kl=much"], "'much'"),
    "impossible": (["addmul", "--recipe", "a=grpo:rollouts=1"], "rollouts"),
    "same name": (["addmul", "--recipe", "grpo", "--recipe", "GRPO=dapo"], "two recipes of one name"),
    "a path": (["addmul", "--recipe", "../a=grpo"], "letters"),
    "verifier": (["addmul", "--verifier", "exploit=all"], "unfinished"),
    "verifier share": (["addmul", "--verifier", "false_positive=2"], "0 to 1"),
    "size": (["addmul", "--size", "64"], "64x2x4"),
    "heads": (["addmul", "--size", "64x2x5"], "divide"),
    "device": (["addmul", "--device", "tpu"], "auto | cpu | cuda"),
    "pool": (["addmul", "--pool", "4"], "pool 4"),
}


@pytest.mark.parametrize(("words", "part"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_run_is_one_line(place: Path, command: Command, words: list[str], part: str) -> None:
    answer = command("minirun", *words)
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert part in answer.err
    assert tree(place) == []


def test_folders_of_others_are_left_alone(place: Path, command: Command) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "notes.txt").write_text("keep")
    answer = command("minirun", "addmul", "-o", "mine", *SMALL)
    assert answer.code == 2
    assert "notes.txt" in answer.last
    assert tree(place) == ["mine", "mine/notes.txt"]
    (place / "file").write_text("")
    assert command("minirun", "addmul", "-o", "file", *SMALL).code == 2


def test_other_settings_need_another_folder_or_overwrite(sweep: Path, command: Command) -> None:
    words = ("minirun", "addmul", "--recipe", "grpo", "--seeds", 1, "-o", "sweep", *SMALL)
    before = logs(sweep)
    changed = command(*words, "--steps", 4)
    assert changed.code == 2
    assert "steps 6" in changed.last
    assert logs(sweep) == before
    assert command(*words, "--steps", 4, "--overwrite").code == 0
    after = logs(sweep)
    assert max(row["step"] for row in after["grpo-s0"]) == 4
    assert after["grpo-s1"] == before["grpo-s1"]
    other = command("minirun", "chain", "--seeds", 1, "--recipe", "dapo", "-o", "sweep", *SMALL)
    assert other.code == 2
    assert "another task" in other.last


def test_without_torch_it_says_what_to_install(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minirun_cli, "find_spec", lambda name: None)
    answer = command("minirun", "addmul")
    assert answer.code == 2
    assert "rlforecast[torch]" in answer.last


def test_tasks_and_recipes_are_listed(command: Command) -> None:
    answer = command("minirun", "--list")
    assert answer.code == 0
    for name in ("carry_late", "route", "scalerl", "expert_iteration"):
        assert name in answer.out


def test_what_a_killed_sweep_was_writing_is_no_foreign_file(sweep: Path, command: Command) -> None:
    before = logs(sweep)
    (sweep / ".runs.toml.12345.tmp").write_text("half")
    words = ("minirun", "addmul", "--recipe", "grpo", "--seeds", 2, "--steps", 6, "-o", "sweep", *SMALL)
    assert command(*words).code == 0
    assert logs(sweep) == before
    assert not (sweep / ".runs.toml.12345.tmp").exists()


def test_a_run_begun_anew_is_not_the_one_behind_a_link(sweep: Path, command: Command, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (sweep / "grpo-s0").rename(elsewhere)
    (sweep / "grpo-s0").symlink_to(elsewhere)
    kept = (elsewhere / "checkpoint.pt").read_bytes()
    words = ("minirun", "addmul", "--recipe", "grpo", "--seeds", 1, "--steps", 4, "-o", "sweep", *SMALL)
    assert command(*words, "--overwrite").code == 0
    assert not (sweep / "grpo-s0").is_symlink()
    assert (elsewhere / "checkpoint.pt").read_bytes() == kept


@pytest.mark.parametrize("text", ["{", '{"settings": []}', '{"settings": {"task": "addmul"}}'])
def test_damaged_settings_are_refused_and_begun_anew(sweep: Path, command: Command, text: str) -> None:
    (sweep / "grpo-s0" / "settings.json").write_text(text)
    words = ("minirun", "addmul", "--recipe", "grpo", "--seeds", 1, "--steps", 4, "-o", "sweep", *SMALL)
    answer = command(*words)
    assert answer.code == 2
    assert "cannot be read" in answer.last
    assert command(*words, "--overwrite").code == 0


def test_a_run_that_diverges_does_not_stop_the_others(command: Command, place: Path) -> None:
    answer = command(
        *("minirun", "addmul", "--recipe", "d=base:learning_rate=1e30,clip_norm=1e30", "--recipe", "ok=base"),
        *("--seeds", 1, "--steps", 5, "--jobs", 1, "-o", "sweep", *SMALL),
    )
    assert answer.code == 1
    assert "d-s0: training diverged" in answer.last
    assert max(row["step"] for row in logs(place / "sweep")["ok-s0"]) == 5


def test_a_cache_with_other_weights_is_damaged(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    (kept,) = cache.rglob("addmul*.pt")
    other = tmp_path / "cache" / kept.relative_to(cache)
    other.parent.mkdir(parents=True)
    torch.save({"weights": {}, "cost": "{}"}, other)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answer = command("minirun", "addmul", "--seeds", 1, "--steps", 4, "-o", "sweep", *SMALL)
    assert answer.code != 0
    assert "cached warm start is damaged" in answer.last


@pytest.mark.parametrize(
    "words",
    [
        ("--warm-seed", "9" * 23),
        ("--recipe", f"m=base:warmup={'9' * 400}"),
        ("--size", f"{'9' * 400}x1x4"),
    ],
)
def test_numbers_larger_than_any_machine_holds_are_refused(
    command: Command, place: Path, words: tuple[str, str]
) -> None:
    answer = command("minirun", "addmul", "--steps", 4, "-o", "sweep", *SMALL, *words)
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert not (place / "sweep").exists()


def test_a_disk_that_is_full_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from forecast.errors import InputError
    from simulators.minirun import warm_start

    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos")

    monkeypatch.setattr(warm_start.torch, "save", full)
    with pytest.raises(InputError, match="is the disk full"):
        warm_start.save({}, tmp_path / "checkpoint.pt")
    assert tree(tmp_path) == []
