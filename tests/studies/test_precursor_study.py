"""The study of signs before a fall: when a fall begins, what is counted, and that text and figure hold it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simulators.skills.presets import PRESETS
from studies.executor import Task
from studies.precursors import (
    EXPLOIT,
    SMOOTH,
    TRAINING_REWARD,
    fallen,
    figure,
    markdown,
    summarise,
    tasks,
    work,
)


def test_a_fall_begins_when_a_tenth_of_it_is_lost() -> None:
    value = np.array([0.1, 0.6, 0.6, 0.4, 0.0, 0.2])
    fall, onset = fallen(np.arange(6.0), value)
    assert fall == pytest.approx(0.6)
    assert onset == pytest.approx(2.3)  # .54, on the way from .6 at 2 to .4 at 3
    fall, onset = fallen(np.arange(3.0), np.array([0.1, 0.5, 0.48]))
    assert fall == pytest.approx(0.02)
    assert np.isnan(onset)


def test_every_set_is_done_in_full() -> None:
    made = tasks(50, seed=1)
    assert len({task.key for task in made}) == len(made)
    count = pd.Series([task["worlds"] for task in made]).groupby([task["set"] for task in made]).sum()
    assert count.to_dict() == dict.fromkeys(PRESETS, 2) | {SMOOTH: 50, EXPLOIT: 15}


@pytest.mark.parametrize("name", [SMOOTH, EXPLOIT])
def test_a_world_gives_a_row_per_sign_and_the_same_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import simulators.skills.drawing as drawing

    monkeypatch.setattr(drawing, "_log_uniform", lambda rng, low, high: low)  # the shortest runs
    task = Task("t", {"set": name, "first": 3, "worlds": 1, "seed": 4})
    rows = work(task)
    assert rows["precursor"].tolist() == [
        "truncation",
        "zero_variance",
        "entropy",
        "proxy_gap",
        TRAINING_REWARD,
    ]
    assert set(rows["world"]) == {3}
    pd.testing.assert_frame_equal(rows, work(task))


def test_shares_leads_text_and_figure() -> None:
    base = {
        "set": SMOOTH,
        "precursor": "entropy",
        "fired": False,
        "since": np.nan,
        "fall": 0.0,
        "onset": np.nan,
    }
    falls = base | {"set": "hacked", "fall": 0.5, "onset": 10.0}
    rows = pd.DataFrame(
        [
            {**base, "world": 0},
            {**base, "world": 1, "fired": True, "since": 3.0},
            {**falls, "world": 0, "fired": True, "since": 5.0},
            {**falls, "world": 1, "fired": True, "since": 20.0},
            {**falls, "world": 2},
        ]
    )
    table = summarise(rows).set_index("set")
    assert table.loc[SMOOTH, "fired"] == 0.5
    assert table["lead"].isna().tolist() == [True, False]
    assert table.loc["hacked", "fired"] == pytest.approx(2 / 3)
    assert table.loc["hacked", "lead"] == pytest.approx(1.25)
    assert table.loc["hacked", "early"] == pytest.approx(1 / 3)
    text = markdown(summarise(rows))
    assert "preset `hacked` | falls | 3 |" in text
    assert "0.667 at 1.25 (0.65-1.85), early 0.33" in text
    figure(summarise(rows)).draw_without_rendering()
