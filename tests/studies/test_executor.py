"""A study gives the same rows however it is run, and what has finished survives whatever stops it."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import work
from rich.console import Console

from forecast.errors import InputError
from forecast.files import locked
from studies.execution.manifest import remove
from studies.execution.progress import task_progress
from studies.executor import Task, TaskFailed, run_tasks


def run(
    folder: Path, tasks: list[Task], function: Callable[..., Any] = work.draws, **options: Any
) -> pd.DataFrame:
    options = {"name": "draws", "settings": {"sets": 5, "prior": "wide"}, "workers": 1} | options
    return run_tasks(function, tasks, folder, **options)


def expected(tasks: list[Task]) -> pd.DataFrame:
    """What a plain loop gives."""
    parts = [work.rows(task["seed"], task.key).assign(task=task.key) for task in tasks]
    table = pd.concat([part for part in parts if len(part)], ignore_index=True)
    return table[["task", "k", "value", "note"]].astype({"note": "str"})


def executions(traces: Path) -> Counter[str]:
    return Counter(path.name.rpartition(".")[0] for path in traces.iterdir())


def parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


@pytest.fixture
def traces(tmp_path, monkeypatch) -> Path:
    """Where executed tasks leave a file each."""
    folder = tmp_path / "traces"
    folder.mkdir()
    monkeypatch.setenv("TEST_TRACES", str(folder))
    return folder


@pytest.fixture(scope="module")
def _finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "parts"
    run(folder, work.tasks(6))
    return folder


@pytest.fixture
def finished(_finished, tmp_path) -> Path:
    """Six finished tasks."""
    return shutil.copytree(_finished, tmp_path / "parts")


def start(folder: Path, *, count: int, seconds: float) -> subprocess.Popen[str]:
    """A study in a process and a process group of its own."""
    return subprocess.Popen(
        [sys.executable, work.__file__, str(folder), str(count), str(seconds)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def members(group: int) -> list[int]:
    """Live processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_are_those_of_a_loop_in_the_order_of_the_tasks(tmp_path, workers):
    tasks = [Task(f"world {seed}", {"seed": seed, "seconds": 0.06 * (6 - seed)}) for seed in range(6)]
    table = run(tmp_path / "parts", tasks, workers=workers)
    pd.testing.assert_frame_equal(table, expected(tasks))


@needs_proc
def test_killed_study_goes_on_where_it_was(tmp_path, traces):
    folder = tmp_path / "parts"
    process = start(folder, count=8, seconds=0.2)
    wait_until(lambda: len(parts(folder)) >= 3)
    process.kill()
    process.communicate()
    # Nobody is left who would work for nobody.
    wait_until(lambda: not members(process.pid))
    done = len(parts(folder))
    before = executions(traces)
    (folder / f".{parts(folder)[0].name}.{process.pid}.tmp").write_bytes(b"half")
    assert 3 <= done < 8

    tasks, console = work.tasks(8, seconds=0.2), Console(file=io.StringIO())
    table = run(folder, tasks, settings={}, console=console)
    assert f"{done} of 8 tasks were done before" in console.file.getvalue()
    assert sum(executions(traces).values()) - sum(before.values()) == 8 - done
    pd.testing.assert_frame_equal(table, expected(tasks))
    assert not list(folder.glob(".*.tmp"))


@needs_proc
@pytest.mark.parametrize("moment", ["workers start", "tasks run"])
def test_ctrl_c_ends_at_once_without_tracebacks_or_children(tmp_path, moment):
    folder = tmp_path / "parts"
    process = start(folder, count=40, seconds=0.2)
    if moment == "workers start":
        wait_until(lambda: (folder / "manifest.json").exists() and len(members(process.pid)) > 2)
    else:
        wait_until(lambda: len(parts(folder)) >= 2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    done = len(parts(folder))
    lines = err.splitlines()
    assert lines[-1] == f"interrupted: {done} of 40 tasks done, run the same command to go on"
    assert all(line.startswith("draws: ") for line in lines[:-1])
    wait_until(lambda: not members(process.pid), seconds=2)


def test_failing_task_is_named_and_the_rest_kept(tmp_path):
    with pytest.raises(TaskFailed, match="task world 3 failed: ZeroDivisionError: nothing to divide by") as e:
        run(tmp_path, work.tasks(100), work.raises)
    (traceback,) = tmp_path.glob("*.error.txt")
    assert str(traceback) in str(e.value)
    assert "in raises" in traceback.read_text()
    assert e.value.exit_code == 1
    assert len(parts(tmp_path)) == 3
    assert list(run(tmp_path, work.tasks(2), work.raises)["value"]) == [0, 1]
    assert not traceback.exists()


def test_dead_worker_is_one_clear_error(tmp_path):
    with pytest.raises(TaskFailed, match=r"a worker process died .* in one of the tasks world 0, world 1"):
        run(tmp_path, work.tasks(2), work.dies)


def test_results_that_do_not_fit_together_are_refused_with_the_task(tmp_path):
    with pytest.raises(TaskFailed, match="task odd gives other types of columns"):
        run(tmp_path, [Task("even", {"value": 1}), Task("odd", {"value": "one"})], work.echo)
    assert len(parts(tmp_path)) == 1


def test_damaged_parts_are_done_again(finished, traces):
    untouched, first, second, third, fourth, _ = parts(finished)
    first.write_bytes(first.read_bytes()[:-30])
    second.write_bytes(b"")
    flipped = bytearray(third.read_bytes())
    flipped[len(flipped) // 8] ^= 0xFF
    third.write_bytes(flipped)
    fourth.write_bytes(untouched.read_bytes())
    pd.testing.assert_frame_equal(run(finished, work.tasks(6)), expected(work.tasks(6)))
    assert executions(traces) == {f"world {seed}": 1 for seed in (1, 2, 3, 4)}


def test_no_rows_are_a_result(tmp_path, traces):
    folder = tmp_path / "parts"
    for _ in range(2):
        table = run(folder, work.tasks(2), work.nothing)
        assert list(table.columns) == ["task"]
        assert table.empty
    assert executions(traces) == {"world 0": 1, "world 1": 1}


def test_tasks_may_be_added_and_reordered(finished, traces):
    tasks = work.tasks(8)[::-1]
    pd.testing.assert_frame_equal(run(finished, tasks), expected(tasks))
    assert executions(traces) == {"world 6": 1, "world 7": 1}


@pytest.mark.parametrize("change", ["settings", "versions", "parameters", "manifest"])
def test_other_settings_versions_or_parameters_are_refused(finished, traces, change):
    saved, tasks, options = finished / "manifest.json", work.tasks(6), {}
    if change == "settings":
        options = {"settings": {"sets": 8, "prior": "wide"}}
        says = "found sets 5, expected sets 8"
    elif change == "versions":
        document = json.loads(saved.read_text())
        document["versions"]["numpy"] = "1.0"
        saved.write_text(json.dumps(document))
        says = 'found numpy "1.0", expected numpy "'
    elif change == "parameters":
        tasks[0] = Task("world 0", {"seed": 7})
        says = "task world 0 was done with other parameters, found seed 0, expected seed 7"
    else:
        saved.write_text("{")
        says = "damaged"
    with pytest.raises(InputError, match=says) as e:
        run(finished, tasks, **options)
    assert "--overwrite" in e.value.fix
    assert len(parts(finished)) == 6
    assert not executions(traces)


def test_overwriting_starts_over_only_where_settings_differ(finished, traces):
    run(finished, work.tasks(6), overwrite=True)
    assert not executions(traces)
    for _ in range(2):
        run(finished, work.tasks(2), settings={"sets": 8}, overwrite=True)
        assert executions(traces) == {"world 0": 1, "world 1": 1}
    assert len(parts(finished)) == 2


def test_folder_of_somebody_else_is_left_alone(tmp_path):
    other = tmp_path / "theirs.parquet"
    other.write_bytes(b"precious")
    with pytest.raises(InputError, match=r"found no manifest\.json"):
        run(tmp_path, work.tasks(1), overwrite=True)
    assert other.read_bytes() == b"precious"


def test_one_process_at_a_time(tmp_path):
    with locked(tmp_path, "this study"):
        with pytest.raises(InputError, match=f"being run already, found process {os.getpid()} on"):
            run(tmp_path, work.tasks(1))
        with pytest.raises(InputError, match="being run already"):
            remove(tmp_path)
    # A lock file alone, as left by a process that was killed, holds nobody up.
    assert (tmp_path / ".lock").exists()
    run(tmp_path, work.tasks(1))
    remove(tmp_path)
    assert not tmp_path.exists()


def test_workers_are_single_threaded_and_hash_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    table = run(tmp_path, work.tasks(2), work.surroundings)
    assert (table.filter(like="_NUM_THREADS") == "1").all(axis=None)
    text = subprocess.run(
        [sys.executable, "-c", "print(hash('seed'))"],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        check=True,
    )
    assert set(table["hash"]) == {int(text.stdout)}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "NUMBA_NUM_THREADS" not in os.environ


def test_mistakes_are_found_before_any_work(tmp_path):
    with pytest.raises(ValueError, match="a key of its own"):
        run(tmp_path, [*work.tasks(1), *work.tasks(1)])
    with pytest.raises(TypeError, match="top level of a module"):
        run(tmp_path, work.tasks(1), lambda task: [])
    with pytest.raises(TypeError, match="not JSON serializable"):
        Task("a", {"seed": object()})
    with pytest.raises(InputError, match="unknown executor, found slurm, expected local or ray"):
        run(tmp_path, work.tasks(1), executor="slurm")
    assert not list(tmp_path.iterdir())


def test_missing_ray_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r'uv sync --extra cluster, or pip install "rlforecast\[cluster\]"'):
        run(tmp_path, work.tasks(1), executor="ray")


def test_ray_address_without_a_cluster_is_said_at_once(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(InputError, match=f"RAY_ADDRESS={address}: Ray cluster cannot be joined"):
            run(tmp_path, work.tasks(1), executor="ray")


def test_progress_without_a_terminal_is_a_line_now_and_then():
    console = Console(file=io.StringIO(), width=200)
    with task_progress(console, "draws", 200, 90) as progress:
        for count in range(91, 201):
            progress(count)
    lines = console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"draws: {count} of 200 tasks" for count in range(100, 201, 20)
    ]


def test_importing_the_executor_is_light():
    heavy = "{'ray', 'pymc', 'numba', 'pandas', 'torch'}"
    code = f"import sys, studies.executor, studies.study_cli; print({heavy} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "set()\n"


@pytest.fixture
def ray_workers_import_this_folder(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (extra cluster)")
    monkeypatch.setenv("PYTHONPATH", str(Path(work.__file__).parent))
    monkeypatch.setenv("RAY_ADDRESS", "local")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_workers_import_this_folder")
def test_ray_gives_the_same_rows_and_goes_on_with_a_local_study(tmp_path):
    tasks = work.tasks(6)
    run(tmp_path, tasks[:2])
    console = Console(file=io.StringIO(), width=200)
    table = run(tmp_path, tasks, executor="ray", workers=2, console=console)
    pd.testing.assert_frame_equal(table, expected(tasks))
    assert "started Ray on this machine with 2 workers" in console.file.getvalue()
    import ray

    assert not ray.is_initialized()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_workers_import_this_folder")
def test_ray_workers_are_alike_and_what_fails_is_named(tmp_path):
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        table = run(tmp_path / "a", work.tasks(2), work.surroundings, executor="ray", workers=2)
        assert (table.filter(like="_NUM_THREADS") == "1").all(axis=None)
        assert table["hash"].nunique() == 1
        with pytest.raises(TaskFailed, match="task world 3 failed: ZeroDivisionError"):
            run(tmp_path / "b", work.tasks(9), work.raises, executor="ray")
        with pytest.raises(TaskFailed, match="task world 0 failed: WorkerCrashedError"):
            run(tmp_path / "c", work.tasks(1), work.dies, executor="ray")
        with pytest.raises(InputError, match="the Ray cluster lacks GPUs"):
            run(tmp_path / "d", work.tasks(1), executor="ray", gpus_per_task=64)
        assert ray.is_initialized(), "a Ray that was there before is left running"
    finally:
        ray.shutdown()
