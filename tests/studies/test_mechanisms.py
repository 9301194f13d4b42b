"""The study of mechanisms: paired effects, what they are called, and the forecasts beside them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simulators.skills.presets import PRESETS
from studies import mechanisms
from studies.executor import Task
from studies.mechanisms import BASE, BLOCK, KNOBS, effects, figure, forecasts, markdown, tasks, work


def one(knob: str, preset: str = BASE, worlds: int = 2) -> pd.DataFrame:
    steps = "" if "recipe.steps" in knob else " recipe.steps=400"
    task = {"preset": preset, "knob": (knob + steps).strip(), "block": 0, "worlds": worlds, "seed": 4}
    return work(Task("t", task)).assign(knob=knob)


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    knobs = ("", "prompts.slip=.1", "recipe.kl=.2")
    return pd.concat([one(knob) for knob in knobs] + [one("", preset="gap")], ignore_index=True)


def test_every_knob_and_preset_is_tried_on_every_world() -> None:
    made = tasks(20, seed=1)
    assert len({task.key for task in made}) == len(made)
    asked = {(task["preset"], task["knob"]) for task in made}
    assert asked == {(name, "") for name in PRESETS} | {
        (BASE, knob) for knobs in KNOBS.values() for knob in knobs
    }
    for preset, knob in asked:
        own = [task for task in made if (task["preset"], task["knob"]) == (preset, knob)]
        worlds = [BLOCK * task["block"] + k for task in own for k in range(task["worlds"])]
        assert worlds == list(range(20))


def test_knobs_are_settings_that_exist() -> None:
    from simulators.skills.overrides import override
    from simulators.skills.presets import preset

    for knob in (knob for knobs in KNOBS.values() for knob in knobs):
        assert override(preset(BASE), dict(text.split("=") for text in knob.split())) != preset(BASE)


def test_effects_are_differences_on_the_same_worlds(rows: pd.DataFrame) -> None:
    table = effects(rows).set_index("knob")
    slip = table.loc["prompts.slip=.1"]
    worlds = rows[(rows["kind"] == "world") & (rows["preset"] == BASE)].set_index(["knob", "world"])
    change = worlds["last"].loc["prompts.slip=.1"] - worlds["last"].loc[""]
    assert slip["last_effect"] == pytest.approx(change.mean())
    assert slip["last_error"] == pytest.approx(12.706 * change.std(ddof=1) / np.sqrt(2), rel=1e-4)
    # Ten slips in a hundred, three steps: the closed form says how far the ceiling falls.
    assert slip["ceiling_effect"] < -0.1
    # A pull back to the start has no closed form; prompts, and so the floor, are the same.
    assert np.isnan(table.loc["recipe.kl=.2", "ceiling"])
    assert table.loc["recipe.kl=.2", "floor_effect"] == 0


def test_effects_are_called_by_name() -> None:
    line = {
        "rmse": 0.003,
        "ceiling": 0.8,
        "floor_effect": 0.01,
        "floor_error": 0.001,
        "ceiling_effect": -0.1,
        "ceiling_error": 0.05,
        "last_effect": -0.1,
        "last_error": 0.05,
        "exponent_effect": 0.3,
        "exponent_error": 0.4,
        "log10_midpoint_effect": 0.5,
        "log10_midpoint_error": 0.1,
    }
    assert mechanisms._moves(line) == "ceiling down, midpoint up"
    assert mechanisms._moves(line | {"ceiling": np.nan}) == "end of run down, midpoint up"
    assert mechanisms._moves(line | {"rmse": 0.05}) == "ceiling down, no sigmoid"
    assert mechanisms._moves(line | {"ceiling_effect": 0.0, "log10_midpoint_effect": 0.0}) == "nothing"


def test_misses_are_counted_on_their_side(rows: pd.DataFrame) -> None:
    moved = rows.copy()
    ours = (moved["kind"] == "forecast") & (moved["method"] == "rlforecast") & (moved["cut"] == "25 %")
    moved.loc[ours & (moved["knob"] == ""), "observed"] = 2.0
    table = forecasts(moved).set_index(["preset", "knob"])
    assert table.loc[(BASE, ""), "above_25 %"] == 1
    assert table.loc[(BASE, ""), "inside_25 %"] == 0
    assert table.loc[(BASE, ""), "scored_25 %"] == 2
    kept = forecasts(rows).set_index(["preset", "knob"]).loc[(BASE, "recipe.kl=.2")]
    assert kept["above_50 %"] + kept["below_50 %"] + kept["inside_50 %"] == pytest.approx(1)


def test_text_and_figure_hold_every_line(rows: pd.DataFrame) -> None:
    text = markdown(rows)
    for words in ("`prompts.slip=.1`", "`recipe.kl=.2`", "preset `gap`", "what the policy can hold"):
        assert (words in text) == (words != "what the policy can hold")
    assert "2 worlds per line" in text
    drawn = figure(rows)
    drawn.draw_without_rendering()


def test_a_block_does_not_depend_on_the_rest() -> None:
    pd.testing.assert_frame_equal(one("recipe.kl=.2"), one("recipe.kl=.2"))
