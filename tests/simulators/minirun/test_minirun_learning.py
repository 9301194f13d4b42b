"""Do the runs learn what their tasks are there for: a smooth rise, and a skill that emerges late?"""
# ruff: noqa: E402

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from simulators.minirun.recipes import recipe
from simulators.minirun.settings import RunSettings, Size
from simulators.minirun.tasks.registry import task
from simulators.minirun.training import train
from simulators.minirun.warm_start import cached

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def curves(rows, classes):
    """Steps, mean pass rate, and that of each class."""
    whole = [row for row in rows if "stratum" not in row]
    of_class = {name: [row["pass_rate"] for row in rows if row.get("stratum") == name] for name in classes}
    return [row["pass_rate"] for row in whole], of_class


def test_addmul_rises_from_its_warm_start_towards_three_quarters(tmp_path):
    weights, cost = cached(task("addmul"), Size(), 0, folder=tmp_path)
    rows = train(RunSettings("addmul", recipe=recipe("base"), steps=400), weights)
    whole, _ = curves(rows, task("addmul").classes)
    assert cost["flops"] > 0
    assert 0.15 <= whole[0] <= 0.35
    assert whole[-1] >= 0.62


def test_the_carry_class_emerges_long_after_the_easy_one(tmp_path):
    weights, _ = cached(task("carry_late"), Size(), 0, folder=tmp_path)
    settings = RunSettings("carry_late", recipe=replace(recipe("base"), staleness=0), steps=900)
    whole, of_class = curves(train(settings, weights), task("carry_late").classes)
    plateau = [
        mean
        for mean, easy, carry in zip(whole, of_class["easy"], of_class["carry"], strict=True)
        if easy > 0.9 and carry < 0.05
    ]
    assert plateau
    assert all(0.34 <= mean <= 0.48 for mean in plateau)
    assert whole[-1] >= 0.9
