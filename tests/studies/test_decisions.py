"""The study of decisions: its worlds, its scores against hand-made rows, and a world through every part."""

import numpy as np
import pandas as pd
import pytest

from studies.decision_summary import (
    RULES,
    TENTHS,
    direction,
    figure,
    folded,
    markdown,
    mean_se_of_worlds,
    pairs_of,
    regrets,
    reliability,
    verdicts,
)
from studies.decision_worlds import BANDS, FACTOR, NOW, START, draw_choice, draw_pair, evaluation
from studies.decisions import MULTIPLES, _with, tasks, work
from studies.executor import Task


@pytest.mark.parametrize("seeds", [1, 2])
def test_ceilings_of_pairs_are_as_far_apart_as_their_band_says(seeds):
    for k in range(6):
        world, recipes = draw_pair([3, 0], k, seeds)
        low, high = list(BANDS.values())[k % 3]
        assert low <= abs(recipes[0].ceiling - recipes[1].ceiling) < high
        truth = world.truth.groupby("recipe").mean(numeric_only=True)
        assert truth["floor"].to_numpy() == pytest.approx([one.floor for one in recipes])
        if seeds == 1:
            for name in ("ceiling", "exponent", "midpoint"):
                assert truth[name].to_numpy() == pytest.approx([getattr(one, name) for one in recipes])
        seen = NOW / np.array([one.midpoint for one in recipes])
        assert (seen >= START[0]).all()
        assert (seen <= FACTOR * START[1]).all()
        assert seen.max() <= FACTOR * seen.min()


def test_a_further_evaluation_lies_around_the_curve():
    world = draw_choice([1, 2], 0, spread=True)
    run = world.runs.names[0]
    compute, rng = 2 * NOW, np.random.default_rng(5)
    values = [evaluation(world, run, compute, rng) for _ in range(400)]
    truth = world.curve(run, [compute])[0]
    noise = np.hypot(world.truth["noise_sd"].iloc[0], np.sqrt(0.7 * truth * (1 - truth) / 16_000))
    assert np.mean(values) == pytest.approx(truth, abs=4 * noise / np.sqrt(400))
    assert np.std(values) == pytest.approx(noise, rel=4 / np.sqrt(800))
    runs = _with(world.runs, {run: values[0]}, compute)
    assert len(runs.table) == len(world.runs.table) + 1
    last = runs.table[runs.table["run"] == run].iloc[-1]
    assert (last["compute"], last["value"]) == (compute, values[0])
    assert runs.table[runs.table["run"] == run]["step"].is_monotonic_increasing


def test_every_world_is_done_once():
    counts = {"pairs": 7, "together": 3, "choices": 5, "spread": 2}
    made = tasks(counts, seed=0)
    assert len({task.key for task in made}) == len(made)
    for part, count in counts.items():
        own = [task for task in made if task["part"] == part]
        worlds = [k for task in own for k in range(task["first"], task["first"] + task["worlds"])]
        assert worlds == list(range(count))


@pytest.mark.parametrize("worlds", [2000, 200])
def test_reliability_of_true_and_of_overstated_probabilities(worlds):
    rng = np.random.default_rng(1)
    p, world = pd.Series(rng.random(2000)), pd.Series(np.arange(2000) % worlds)
    happened = pd.Series((rng.random(2000) < p).astype(float))
    table = reliability(p, happened, world, TENTHS)
    assert table["n"].sum() == 2000
    assert table["z"].abs().max() < 3.5
    own = (p >= 0.2) & (p < 0.3)
    line = table[table["low"] == 0.2].iloc[0]
    assert line["happened"] == pytest.approx(happened[own].mean())
    assert line["se"] == pytest.approx(np.sqrt(0.25 * 0.75 / own.sum()), rel=0.2)
    overstated = pd.Series(np.where(p > 0.5, 0.5 + p / 2, p / 2))
    assert reliability(overstated, happened, world, TENTHS)["z"].abs().max() > 3.5


def test_standard_errors_are_over_worlds():
    rng = np.random.default_rng(2)
    world = pd.Series(np.repeat(np.arange(50), 8))
    each = rng.normal(size=50)
    mean, error = mean_se_of_worlds(pd.Series(np.repeat(each, 8)), world)
    assert mean == pytest.approx(each.mean())
    assert error == pytest.approx(each.std(ddof=1) / np.sqrt(50))


def hand_made_rows() -> pd.DataFrame:
    pair = {"speed": 2.0, "p_within": 0.1, "p_faster": 0.9}
    said = [
        (0.10, 0.99, 0.08, "raises the ceiling", 1.5),
        (-0.10, 0.20, -0.01, "not decided", 3.0),
        (0.01, 0.40, 0.03, "only faster", 4.0),
        (-0.05, 0.97, 0.03, "raises the ceiling", 5.0),
    ]
    names = ("difference", "p_higher", "least_squares", "verdict", "seen")
    rows = [
        {"part": part, "world": k, "band": band, "drifted": row[0] - 0.02}
        | pair
        | dict(zip(names, row, strict=True))
        for part in ("pairs", "together")
        for k, (row, band) in enumerate(zip(said, ("apart", "apart", "alike", "near"), strict=True))
    ]
    rows.append({"part": "pairs", "world": 4, "skipped": "diagnostics failed"})
    for k in range(6):
        first = {"part": ("choices", "spread")[k % 2], "world": k // 2}
        for times, p in ((2.0, 0.9), (4.0, 0.6), (8.0, 0.2)):
            rows.append(
                first
                | {
                    "kind": "target",
                    "times": times,
                    "p": p,
                    "least_squares": float(p > 0.5),
                    "happened": k % 2,
                    "happened_drifting": 1.0,
                }
            )
        for times in MULTIPLES:
            lost = dict(zip(RULES, (0.01, 0.02 + k / 1000, 0.05, 0.05), strict=True))
            rows.append(
                first
                | {"kind": "choice", "times": times, "p": 0.7, "happened": 1.0, "stated": 0.02, "stops": 0.0}
                | {"verdict": "not decided"}
                | lost
            )
            rows += [
                first | {"kind": "option", "times": times, "p": p, "happened": happened}
                for p, happened in ((0.7, 1.0), (0.3, 0.0))
            ]
        rows.append(
            first
            | {"kind": "look", "stated": 0.01, "stated_se": 0.001, "p_change": 0.4, "changed": k % 2}
            | {"gain": 0.02 * (k % 2), "believed": 0.008}
        )
    return pd.DataFrame(rows)


def test_scores_of_hand_made_rows():
    rows = hand_made_rows()
    pairs = pairs_of(rows, "pairs")
    assert pairs["rule"].tolist() == [1.0, 0.5, 1.0, 1.0]
    assert pairs["brier"].tolist() == pytest.approx([0.01**2, 0.2**2, 0.6**2, 0.97**2])
    assert pairs["brier_rule"].tolist() == [0.0, 0.25, 0.0, 1.0]
    # .20 for higher is .80 for lower, which is right; .40 for higher is .60 for lower, which is wrong.
    table = folded(pairs).set_index("low")
    assert table.loc[0.8, ["stated", "happened"]].tolist() == pytest.approx([0.8, 1.0])
    assert table.loc[0.6, ["stated", "happened"]].tolist() == pytest.approx([0.6, 0.0])
    # With the drift the third pair's ceiling is the lower one; without it only the two pairs far apart are right.
    table = direction(pairs)
    assert table["right"].tolist()[::2] == pytest.approx([0.5, 0.75])
    within = [1 - (1 - x / 0.25) ** 2 for x in (0.02, 0.06)]
    assert table["right"].iloc[1] == pytest.approx(1 - within[1])
    assert pairs["weight"].sum() == pytest.approx(1.0)
    found = verdicts(pairs).set_index("seen")
    assert found.loc["all", ["ceiling", "ceiling_right", "speed", "speed_right"]].tolist() == [2, 1, 1, 1]
    assert found.loc["2-3.5", "undecided"] == 1.0
    lost = regrets(rows[rows["kind"] == "choice"])
    assert lost.loc[lost["rule"] == "current leader", "less"].tolist() == pytest.approx([-0.04] * 9)
    text = markdown(rows)
    assert "| one run each | 4 (1) |" in text
    assert "regret less current leader: z" in text
    assert "| true less stated | +0.0000" in text
    assert len(figure(rows).axes) == 3


def test_one_pair_through_the_study():
    task = Task("one", {"part": "pairs", "first": 1, "worlds": 1, "seed": 5})
    rows = work(task)
    assert len(rows) == 1
    assert rows["band"].item() == "near"
    assert 0 <= rows["p_higher"].item() <= 1
    assert rows["difference_q05"].item() < rows["difference_q95"].item()
    pd.testing.assert_frame_equal(rows, work(task))


@pytest.mark.slow
def test_choices_through_the_study():
    """Four worlds: what holds of any of them."""
    rows = work(Task("one", {"part": "choices", "first": 0, "worlds": 4, "seed": 5}))
    choices, options = rows[rows["kind"] == "choice"], rows[rows["kind"] == "option"]
    assert (choices.filter(like="regret") >= 0).all(axis=None)
    assert options.groupby(["world", "times"])["p"].sum().to_numpy() == pytest.approx(1.0)
    assert (options.groupby(["world", "times"])["happened"].sum() >= 1).all()
    right = choices["regret"] == 0
    assert (right == choices["happened"].astype(bool)).all()
    assert rows[rows["kind"] == "target"]["p"].between(0, 1).all()
    looks = rows[rows["kind"] == "look"].dropna(subset="stated")
    assert (looks["changed"].isna() | (looks["changed"] == 1) | (looks["gain"] <= 0)).all()
