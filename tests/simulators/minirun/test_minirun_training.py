"""Is a run the same whenever it is done, however often it is killed, and refused where it is another?"""
# ruff: noqa: E402

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from minirun_tiny import rows_without_seconds, same, small, weights

from forecast.errors import ForecastError, InputError
from simulators.minirun import training
from simulators.minirun.settings import RunSettings, Verifier
from simulators.minirun.tasks.registry import task
from simulators.minirun.training import ABOUT, CHECKPOINT, FILES, LOG, Run, train


def finished(settings: RunSettings) -> Run:
    run = Run(settings, weights(settings))
    while not run.done:
        run.advance()
    return run


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def files(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.parametrize("of", ["base", "dapo", "ppo"])
def test_the_same_settings_give_the_same_rows(of):
    settings = small(of=of)
    torch.manual_seed(1)
    first = finished(settings)
    torch.manual_seed(2)
    second = finished(settings)
    assert rows_without_seconds(first.rows) == rows_without_seconds(second.rows)
    assert same(first.policy.state_dict(), second.policy.state_dict())
    other = finished(replace(settings, seed=1))
    assert not same(first.policy.state_dict(), other.policy.state_dict())


def test_a_vanishing_rate_gives_a_flat_curve():
    settings = small(learning_rate=1e-12, steps=8, heldout=256, samples=8)
    run = finished(settings)
    start = weights(settings)
    assert max(float((start[n] - v).abs().max()) for n, v in run.policy.state_dict().items()) < 1e-10
    entropies = [row["val_entropy"] for row in run.rows if "val_entropy" in row]
    # Of 2048 rollouts each; one token's entropy varies by a few tenths of a nat.
    assert np.ptp(entropies) < 0.05


def test_rows_are_the_whole_and_then_its_classes_and_sums_never_fall(tmp_path):
    settings = small(name="mine", seed=4)
    rows = train(settings, weights(settings), tmp_path / "run")
    assert log(tmp_path / "run") == rows
    assert files(tmp_path / "run") == set(FILES)
    kinds = [row.get("stratum") for row in rows]
    steps = [row["step"] for row in rows]
    assert kinds == [None, *task("addmul").classes] * len(set(steps))
    assert sorted(set(steps)) == settings.evaluated
    for row in rows:
        assert (row["recipe"], row["seed"], row["task"]) == ("mine", 4, "addmul")
        assert row["flops"] == row["gen_flops"] + row["train_flops"]
        assert row["trials"] > 0
    for name in ("tokens", "flops", "rollouts", "train_tokens", "eval_flops", "device_seconds"):
        sums = [row[name] for row in rows]
        assert sums == sorted(sums)
        assert sums[-1] > 0
    assert rows[0]["flops"] == rows[0]["tokens"] == rows[0]["device_seconds"] == 0


def test_what_training_showed_is_averaged_between_evaluations(monkeypatch):
    settings = small(steps=6, points=2)
    run = Run(settings, weights(settings))
    seen = []
    original = run.updater.update

    def update(batch, step):
        seen.append(batch.figures | original(batch, step))
        return seen[-1]

    monkeypatch.setattr(run.updater, "update", update)
    while not run.done:
        run.advance()
    whole = [row for row in run.rows if "stratum" not in row]
    assert [row["step"] for row in whole] == [0, 1, 6]
    assert "loss" not in whole[0]
    assert whole[1]["loss"] == seen[0]["loss"]
    for name in ("loss", "lag", "train_reward", "response_length"):
        assert whole[2][name] == pytest.approx(np.mean([each[name] for each in seen[1:]]))
    assert whole[2]["ratio_max"] == max(each["ratio_max"] for each in seen[1:])


def test_the_folder_says_what_it_holds(tmp_path):
    settings = small("chain", seed=2)
    train(settings, weights(settings), tmp_path, cost={"flops": 5.0, "seconds": 1.0})
    about = json.loads((tmp_path / ABOUT).read_text())
    assert RunSettings.from_plain(about["settings"]) == settings
    assert about["task"]["classes"] == list(task("chain").classes)
    assert about["task"]["ceiling"] == 1.0
    assert about["warm_start"] == {"flops": 5.0, "seconds": 1.0}
    # A layer of width d has 12 d^2 matrix parameters, the head d for each of 26 symbols.
    assert about["matmul_parameters"] == 12 * 16**2 + 16 * 26
    assert torch.__version__.startswith(about["versions"]["torch"].split("+")[0])


def test_progress_is_reported_after_each_update():
    settings = small(steps=5)
    said = []
    train(settings, weights(settings), report=lambda *words: said.append(words))
    assert [done for done, _, _ in said] == [1, 2, 3, 4, 5]
    assert all(total == 5 and 0 <= rate <= 1 for _, total, rate in said)


def handed_over(run: Run, settings: RunSettings) -> Run:
    """What a new process would make of its checkpoint."""
    held = io.BytesIO()
    torch.save(run.state(), held)
    held.seek(0)
    fresh = Run(settings, weights(settings))
    fresh.restore(torch.load(held, weights_only=True))
    return fresh


@pytest.mark.parametrize("name", ["addmul", "chain"])
@pytest.mark.parametrize(
    ("of", "how"),
    [
        ("base", {}),
        ("dapo", {"rollouts": 2, "steps": 6}),
        ("scalerl", {"rollouts": 2, "prompts": 8, "staleness": 2, "steps": 6}),
        ("ppo", {"steps": 6}),
        ("expert_iteration", {}),
        ("online_dpo", {"steps": 4}),
        ("grpo", {"generator_head": "float8", "temperature": 1.3, "steps": 6}),
    ],
)
def test_a_run_handed_over_after_every_update_is_the_same_to_the_last_bit(of, how, name):
    settings = small(name, of, **{"steps": 10, "points": 3} | how)
    whole = finished(settings)
    run = handed_over(Run(settings, weights(settings)), settings)
    while not run.done:
        run.advance()
        run = handed_over(run, settings)
    assert same(whole.policy.state_dict(), run.policy.state_dict())
    assert same(whole.updater.reference.state_dict(), run.updater.reference.state_dict())
    assert rows_without_seconds(whole.rows) == rows_without_seconds(run.rows)
    if of == "scalerl":
        assert whole.collector.feed.easy.any()
        logged = [row["set_aside"] for row in whole.rows if "stratum" not in row]
        assert logged[0] == 0
        assert logged[-1] == whole.collector.feed.easy.mean()


@pytest.mark.parametrize("after", [0, 1, 5, 11])
def test_a_run_handed_over_once_is_the_same_to_the_last_bit(after):
    settings = small(steps=12, points=4)
    whole, run = finished(settings), Run(settings, weights(settings))
    for _ in range(after):
        run.advance()
    run = handed_over(run, settings)
    while not run.done:
        run.advance()
    assert same(whole.policy.state_dict(), run.policy.state_dict())
    assert rows_without_seconds(whole.rows) == rows_without_seconds(run.rows)


# One process that never trains itself starts and kills the others: torch is imported once.
KILLING = """
import json, os, signal, sys, time
import torch
torch.set_num_threads(1)
from pathlib import Path
from simulators.minirun import training
from simulators.minirun.settings import RunSettings
training.CHECKPOINT_SECONDS = 0.0
asked = json.loads(sys.argv[1])
settings = RunSettings.from_plain(asked["settings"])
weights = torch.load(asked["weights"], weights_only=True)
folder = Path(asked["folder"])
# Imports what children would import otherwise, seconds each.
torch.optim.AdamW([torch.zeros(1)], lr=1.0)
for wait in asked["waits"]:
    child = os.fork()
    if child == 0:
        training.train(settings, weights, folder)
        os._exit(0)
    begun = time.monotonic()
    while wait["for"] and not (folder / wait["for"]).exists():
        time.sleep(0.0005)
    time.sleep(wait["more"])
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    path = folder / "checkpoint.pt"
    step = torch.load(path, weights_only=True)["step"] if path.exists() else None
    print(json.dumps({"killed": os.WIFSIGNALED(status), "step": step}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_that_was_really_killed_over_and_over_is_taken_up_as_if_nothing_had_been(tmp_path):
    settings = small("chain", "scalerl", steps=40, points=6)
    torch.save(weights(settings), tmp_path / "weights.pt")
    random = np.random.default_rng(0)
    waits = [
        {"for": ABOUT, "more": 0.0},
        {"for": CHECKPOINT, "more": 0.0},
        {"for": LOG, "more": 0.0},
        *({"for": "", "more": float(more)} for more in random.uniform(0.05, 0.35, size=2)),
    ]
    asked = {
        "settings": settings.plain(),
        "weights": str(tmp_path / "weights.pt"),
        "folder": str(tmp_path / "run"),
        "waits": waits,
    }
    done = subprocess.run(
        [sys.executable, "-c", KILLING, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(waits)
    assert all(each["killed"] for each in said[:3])
    steps = [each["step"] or 0 for each in said]
    assert steps == sorted(steps)
    assert any(0 < step < 40 for step in steps)
    rows = train(settings, weights(settings), tmp_path / "run")
    whole = finished(settings)
    assert rows_without_seconds(rows) == rows_without_seconds(whole.rows)
    assert log(tmp_path / "run") == rows
    held = torch.load(tmp_path / "run" / CHECKPOINT, weights_only=True)
    assert same(held["policy"], whole.policy.state_dict())
    assert files(tmp_path / "run") == set(FILES)


def interrupted(settings: RunSettings, folder: Path, after: int) -> None:
    """A run stopped after some updates; its last checkpoint is that of the last evaluation."""

    def report(done, total, rate):
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, weights(settings), folder, report=report)


@pytest.mark.parametrize("after", [1, 4, 6, 11])
def test_an_interrupted_run_is_taken_up(tmp_path, after):
    settings = small(steps=12, points=4)
    interrupted(settings, tmp_path / "run", after)
    assert files(tmp_path / "run") == set(FILES)
    rows = train(settings, weights(settings), tmp_path / "run")
    assert rows_without_seconds(rows) == rows_without_seconds(finished(settings).rows)
    assert log(tmp_path / "run") == rows


def test_a_log_that_lags_behind_the_checkpoint_is_made_up(tmp_path):
    settings = small(steps=12, points=4)
    interrupted(settings, tmp_path, 6)
    kept = (tmp_path / LOG).read_text()
    (tmp_path / LOG).write_text(kept.splitlines(keepends=True)[0] + '{"step": 1, "pa')
    rows = train(settings, weights(settings), tmp_path)
    assert log(tmp_path) == rows
    assert (tmp_path / LOG).read_text().startswith(kept)


def test_a_finished_run_is_not_done_again(tmp_path, monkeypatch):
    settings = small()
    rows = train(settings, weights(settings), tmp_path)
    monkeypatch.setattr(Run, "advance", lambda self: pytest.fail("trained again"))
    said = []
    assert train(settings, weights(settings), tmp_path, report=lambda *words: said.append(words)) == rows
    assert [words[:2] for words in said] == [(6, 6)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda s: replace(s, seed=9), "seed 0"),
        (lambda s: replace(s, steps=9), "steps 6"),
        (lambda s: replace(s, task="carry"), "task 'addmul'"),
        (lambda s: replace(s, verifier=Verifier()), "verifier"),
        (lambda s: replace(s, recipe=replace(s.recipe, kl=0.1)), "kl"),
    ],
)
def test_another_run_does_not_go_on_in_the_folder(tmp_path, change, named):
    settings = small()
    train(settings, weights(settings), tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    other = change(settings)
    with pytest.raises(InputError, match="other settings") as caught:
        train(other, weights(other), tmp_path)
    assert named in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert {name: (tmp_path / name).read_bytes() for name in FILES} == before


@pytest.mark.parametrize("how", ["cut", "text", "empty", "other", "half"])
def test_a_broken_checkpoint_is_one_error_that_names_it(tmp_path, how):
    settings = small()
    train(settings, weights(settings), tmp_path)
    path = tmp_path / CHECKPOINT
    if how == "other":
        torch.save({"something": 1}, path)
    elif how == "half":
        torch.save({n: v for n, v in torch.load(path, weights_only=True).items() if n != "rows"}, path)
    else:
        path.write_bytes({"cut": path.read_bytes()[:-900], "text": b"hello\n", "empty": b""}[how])
    with pytest.raises(InputError, match="a damaged one") as caught:
        train(settings, weights(settings), tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", '{"settings": 3}'])
def test_broken_settings_are_one_error_that_names_them(tmp_path, text):
    settings = small()
    train(settings, weights(settings), tmp_path)
    (tmp_path / ABOUT).write_text(text)
    with pytest.raises(ForecastError) as caught:
        train(settings, weights(settings), tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_nothing_half_written_is_left_where_writing_fails(tmp_path, monkeypatch):
    settings = small()

    def fail(held, path):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training.torch, "save", fail)
    with pytest.raises(InputError, match="No space left"):
        train(settings, weights(settings), tmp_path / "run")
    assert files(tmp_path / "run") == {ABOUT}
    monkeypatch.undo()
    assert train(settings, weights(settings), tmp_path / "run")[-1]["step"] == 6


def test_between_evaluations_it_is_saved_after_a_while(tmp_path, monkeypatch):
    settings = small(steps=12, points=2)
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    interrupted(settings, tmp_path, 7)
    assert torch.load(tmp_path / CHECKPOINT, weights_only=True)["step"] == 7
    assert {row["step"] for row in log(tmp_path)} == {0, 1}
