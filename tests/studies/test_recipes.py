"""Does the study of recipes train what it says, and say what was found whichever way round pairs were compared?"""
# ruff: noqa: E402

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from simulators.minirun import warm_start
from simulators.minirun.settings import Size
from simulators.minirun.tasks.registry import task as named
from studies.executor import Task
from studies.recipe_verdicts import FINDINGS, Findings, against, figure, markdown, runs_of
from studies.recipes import KEPT, TASK, compared, tasks, work


def test_every_recipe_has_its_seeds_and_every_finding_its_recipe():
    names = list(compared())
    planned = tasks(3, 1500, 7)
    assert len(planned) == 3 * len(names) >= 24
    assert {task["seed"] for task in planned} == {7, 8, 9}
    assert names[0] == "base"
    assert {finding.recipe for finding in FINDINGS} <= set(names)
    assert len({repr(recipe) for recipe in compared().values()}) == len(names)


def test_a_task_is_a_run_whose_log_becomes_a_run_table(monkeypatch):
    weights = warm_start.blank(named(TASK), Size(), 0).state_dict()
    monkeypatch.setattr(warm_start, "cached", lambda *_: (weights, {}))
    rows = pd.concat(
        [work(Task(f"scalerl/{seed}", {"recipe": "scalerl", "seed": seed, "steps": 3})) for seed in (0, 1)]
    )
    assert tuple(rows.columns) == KEPT
    runs = runs_of(rows, TASK)
    assert runs.recipes == {"scalerl-s0": "scalerl", "scalerl-s1": "scalerl"}
    assert runs.overall()["step"].tolist() == [1, 2, 3] * 2
    assert set(runs.table["stratum"].dropna()) == set(named(TASK).classes)


def pair(first: str, second: str, difference: float, speed: float, verdict: str) -> dict:
    return {
        "first": first,
        "second": second,
        **{f"difference_q{q}": difference + d for q, d in (("05", -0.01), ("50", 0.0), ("95", 0.01))},
        **{f"speed_q{q}": speed * f for q, f in (("05", 0.8), ("50", 1.0), ("95", 1.25))},
        "p_higher": 0.9 if difference > 0 else 0.1,
        "p_within": 0.3,
        "p_faster": 0.9 if speed > 1 else 0.1,
        "verdict": verdict,
    }


OPPOSITE = {"raises the ceiling": "lowers the ceiling", "only faster": "only slower"}


def turned(row: dict) -> dict:
    other = OPPOSITE | {value: key for key, value in OPPOSITE.items()} | {"not decided": "not decided"}
    middle = row["difference_q50"], row["speed_q50"]
    return pair(row["second"], row["first"], -middle[0], 1 / middle[1], other[row["verdict"]])


def findings(*, base_first: bool) -> Findings:
    names = list(compared())
    rows = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            kind = {"dapo": "raises the ceiling", "grpo": "only slower"}.get(second, "not decided")
            row = pair(first, second, 0.05 if second == "dapo" else -0.003, 0.5, kind)
            rows.append(row if base_first else turned(row))
    level = {name: 0.7 + 0.001 * i for i, name in enumerate(names)}
    recipes = pd.DataFrame(
        {
            "recipe": names,
            **{name: list(level.values()) for name in ("ceiling", "ceiling_q05", "ceiling_q95", "last")},
            "last_sd": 0.01,
            "fallen": [0.2 if name == "scalerl" else 0.01 for name in names],
            "per_update": 4e8,
        }
    )
    compute = np.geomspace(1e9, 1e11, 8)
    log = pd.concat(
        [
            pd.DataFrame(
                {
                    "recipe": name,
                    "seed": 0,
                    "step": range(9),
                    "stratum": None,
                    "pass_rate": np.linspace(0.2, level[name], 9),
                    "trials": 1024,
                    "flops": [0.0, *compute],
                }
            )
            for name in names
        ]
    )
    return Findings(runs_of(log, TASK), 1e11, recipes, pd.DataFrame(rows))


def test_a_pair_says_the_same_from_either_side():
    one, other = findings(base_first=True).pairs, findings(base_first=False).pairs
    for name in ("dapo", "grpo", "ppo"):
        straight, back = against(one, name), against(other, name)
        assert straight["verdict"] == back["verdict"]
        for column in ("difference_q05", "difference_q95", "speed_q05", "speed_q95", "p_higher", "p_faster"):
            assert straight[column] == pytest.approx(back[column])


def test_what_is_written_counts_verdicts_and_names_what_falls():
    found = findings(base_first=True)
    text = markdown(found)
    line = {row.split(" | ")[0].strip("| "): row for row in text.splitlines() if row.startswith("| ")}
    assert "| raises the ceiling |" in line["dapo"]
    assert "| not decided; falls |" in line["scalerl"]
    counts = found.pairs["verdict"].value_counts()
    assert f"Of {len(found.pairs)} pairs, {counts['raises the ceiling']} differ" in text
    drawn = figure(found)
    assert len(drawn.axes) == 4
    drawn.canvas.draw()
