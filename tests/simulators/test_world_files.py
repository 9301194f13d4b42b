"""Does our own reader find in the logs of a world what the world holds?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forecast.errors import InputError
from forecast.runs.read import read_runs
from forecast.runs.table import COLUMNS, Runs
from simulators.evaluations import Evaluations
from simulators.files import OWNED, save_world, write_logs
from simulators.transitions import Transition
from simulators.worlds import World, draw_world

READ = [column for column in COLUMNS if not column.startswith("source")]


def draw(seed: int, models: int = 1, **evaluations) -> World:
    return draw_world(
        2,
        2,
        models=models,
        transition=Transition("either", share=0.5),
        evaluations=Evaluations(**evaluations),
        rng=np.random.default_rng(seed),
    )


@pytest.mark.parametrize("seed", range(6))
def test_logs_with_restarts_read_as_the_run_table(tmp_path: Path, seed: int) -> None:
    world = draw(
        seed,
        models=1 + seed % 2,
        start=(0.0, 1_500.0)[seed % 2],
        spacing=("even", "log")[seed // 2 % 2],
        floors=seed % 3 > 0,
        restarts=3.0,
        missing=0.15,
        glitches=0.05,
    )
    write_logs(world, tmp_path)
    runs = read_runs(tmp_path / "runs.toml")
    pd.testing.assert_frame_equal(runs.table[READ], world.runs.table[READ])
    assert dict(runs.floors) == dict(world.runs.floors)
    assert runs.metric == world.runs.metric
    assert runs.compute.unit == world.runs.compute.unit
    # The receipts speak of the restarts: the logs really repeat steps.
    lost = int(world.log["superseded"].sum())
    assert lost > 0
    assert sum(sum(receipt.dropped.values()) for receipt in runs.receipts) == lost


def test_a_log_is_written_in_the_order_of_the_run(tmp_path: Path) -> None:
    world = draw(7, start=0.0, restarts=3.0)
    write_logs(world, tmp_path)
    name = world.log.groupby("run")["superseded"].sum().idxmax()
    lines = (tmp_path / "logs" / f"{name}.jsonl").read_text().splitlines()
    records = pd.DataFrame([json.loads(line) for line in lines])
    assert (records["gpu_hours"][0], records["step"][0]) == (0, 0)
    assert records["pass_rate"][0] == world.runs.floors[str(name)].value
    rows = world.log[world.log["run"] == name]
    assert records["step"].tolist()[1:] == rows["step"].tolist()
    assert (np.diff(records["step"]) < 1).sum() == rows["attempt"].max() - 1
    # A counter restored from the checkpoint: a step always has the same compute.
    assert records.groupby("step")["gpu_hours"].nunique().eq(1).all()
    assert records["recipe"].eq(world.runs.recipes[str(name)]).all()


def test_a_saved_world_is_complete(tmp_path: Path) -> None:
    world = draw(8, restarts=1.0)
    save_world(world, tmp_path / "w", settings={"anything": [1, 2]}, seed=8)
    assert sorted(path.name for path in (tmp_path / "w").iterdir()) == sorted({*OWNED} - {"curves.csv"})
    assert Runs.load(tmp_path / "w" / "runs.parquet").hash() == world.runs.hash()
    truth = pd.read_csv(tmp_path / "w" / "truth.csv")
    numbers = world.truth.select_dtypes("number").columns
    np.testing.assert_array_equal(truth[numbers], world.truth[numbers])
    assert truth["family"].tolist() == world.truth["family"].tolist()
    about = json.loads((tmp_path / "w" / "world.json").read_text())
    assert (about["seed"], about["settings"]) == (8, {"anything": [1, 2]})
    assert about["versions"]["numpy"] == np.__version__
    assert about["runs_sha256"] == world.runs.hash()


def test_a_world_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    world = draw(9)
    with pytest.raises(TypeError):
        save_world(world, tmp_path / "deep" / "w", settings={"bad": object()}, seed=9)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt"):
        save_world(world, tmp_path / "w", settings={}, seed=9, overwrite=True)
    assert (tmp_path / "w" / "notes.txt").read_text() == "mine"
