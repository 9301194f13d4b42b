"""The transition study: its worlds, its scores, and one world through every part."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu

from studies.executor import Task
from studies.transition_summary import auc, bands, markdown, scores, threshold, watched
from studies.transition_worlds import NOW, PROMPTS, SAMPLES, draw, tenth, with_classes
from studies.transitions import FLAGS, HAZARDS, TIMES, tasks, work


def test_area_under_the_curve_is_that_of_the_rank_sum():
    rng = np.random.default_rng(1)
    positive, negative = rng.normal(0.7, 1, 40).round(1), rng.normal(0, 1, 60).round(1)
    area, error = auc(positive, negative)
    assert area == pytest.approx(mannwhitneyu(positive, negative).statistic / (40 * 60))
    draws = [auc(rng.normal(0.7, 1, 40), rng.normal(0, 1, 60))[0] for _ in range(400)]
    assert error == pytest.approx(np.std(draws), rel=0.35)


@pytest.mark.parametrize("n", [20, 57, 100])
def test_threshold_lets_at_most_five_per_cent_of_the_null_through(n):
    null = np.random.default_rng(n).normal(size=n)
    level = threshold(null)
    assert (null > level).mean() <= 0.05
    assert (null >= level).mean() > 0.05


@pytest.mark.parametrize(("kind", "done"), [("rise", 0.1), ("rise", 0.3), ("collapse", 0.1)])
def test_worlds_have_made_as_much_of_their_move_as_asked(kind, done):
    world = draw(np.random.default_rng(3), points=40, kind=kind, done=done)
    row = world.truth.iloc[0]
    assert 1 / (1 + (row["second_midpoint"] / NOW) ** row["second_exponent"]) == pytest.approx(done)
    assert world.runs.table["compute"].max() == NOW
    assert (tenth(world) < NOW) == (done > 0.1) or done == 0.1


def test_a_world_without_a_move_has_no_tenth_of_it():
    assert np.isnan(tenth(draw(np.random.default_rng(3), points=10)))


def test_classes_average_to_the_whole_set_and_only_the_hard_one_moves():
    rng = np.random.default_rng(4)
    world = draw(rng, points=40, kind="rise", done=0.3)
    runs = with_classes(world, rng)
    table = runs.table
    hard, rest = (table[table["stratum"] == name].reset_index(drop=True) for name in ("hard", "rest"))
    trials = hard["trials"] + rest["trials"]
    assert (trials == PROMPTS * SAMPLES).all()
    mean = (hard["value"] * hard["trials"] + rest["value"] * rest["trials"]) / trials
    level = world.curve(runs.names[0], hard["compute"])
    # Class noise of the hard class (.2 on the logit scale, at most .05 of pass rate here) and the binomial.
    assert np.abs(mean - level).max() < 0.03
    assert hard["value"].iloc[0] < 0.02 < hard["value"].iloc[-1]
    still = with_classes(draw(rng, points=40), rng).table
    assert still[still["stratum"] == "hard"]["value"].max() < 0.02


def test_every_world_is_drawn_once():
    made = tasks(40, seed=0)
    assert len({task.key for task in made}) == len(made)
    for part in ("bands", "flags", "watched"):
        for cell in {task["cell"] for task in made if task["part"] == part}:
            covered = [
                k
                for task in made
                if (task["part"], task["cell"]) == (part, cell)
                for k in range(task["first"], task["first"] + task["worlds"])
            ]
            assert sorted(covered) == list(range(len(covered)))


def hand_made_rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = []
    for cell, inside in (("smooth", 1.0), ("slow", 1.0), ("move", 0.5)):
        for world in range(10):
            for name in ("sigmoid", *(f"{rate:g}" for rate in HAZARDS)):
                for times in TIMES:
                    rows.append(
                        {
                            "part": "bands",
                            "cell": cell,
                            "world": world,
                            "forecast": name,
                            "times": times,
                            "inside": float(world < 10 * inside),
                            "width": 0.1,
                            "crps": 0.01 if name == "sigmoid" else 0.005,
                        }
                    )
    for cell in FLAGS:
        moved = float(cell.split()[-1]) if " " in cell else 0.0
        for world in range(20):
            row = {"part": "flags", "cell": cell, "world": world, "strata": 0.0, "strata_state": "prior_only"}
            sign = -1 if cell.startswith("collapse") else 1
            row["cusum"] = sign * (moved > 0.01) * 5 + rng.normal() * 0.1
            for kind in ("rise", "collapse"):
                seen = (moved > 0.01) * cell.startswith(kind) * 10
                row |= {
                    f"log_bf_{kind}": seen + rng.normal(),
                    f"p_onset_{kind}": float(seen > 0) + rng.random() * 0.1,
                }
                row[f"state_{kind}"] = "alarm" if seen else "prior_only"
            rows.append(row)
    for cell in ("smooth", "slow", "rise", "collapse"):
        for world in range(4):
            for compute in (1.0, 2.0, 3.0, 4.0):
                row = {"part": "watched", "cell": cell, "world": world, "compute": compute}
                row["tenth"] = 2.0 if cell in ("rise", "collapse") else np.nan
                for kind in ("rise", "collapse"):
                    seen = cell == kind and compute >= 3 and world < 2
                    row |= {f"log_bf_{kind}": 9.0 * seen, f"log_bf_guarded_{kind}": 8.0 * seen}
                    row[f"state_{kind}"] = "alarm" if seen else "prior_only"
                rows.append(row)
    return pd.DataFrame(rows)


def test_scores_of_hand_made_rows():
    rows = hand_made_rows()
    band = bands(rows).set_index(["forecast", "times", "share"])
    assert band.loc[("0.05", 4.0, 0.2), "inside"] == pytest.approx(0.8 * 1.0 + 0.2 * 0.5)
    assert band.loc[("0.05", 4.0, 0.2), "crps_ratio"] == pytest.approx(0.5)
    score = scores(rows).set_index(["kind", "statistic", "done"])
    assert score.loc[("rise", "log_bf", 0.3), "detected"] == 1.0
    assert 0.2 < score.loc[("rise", "log_bf", 0.005), "auc"] < 0.8
    assert score.loc[("collapse", "cusum", 0.1), "auc"] == 1.0
    runs = watched(rows)
    assert runs[runs["cell"] == "rise"]["alarm"].tolist()[:2] == [3.0, 3.0]
    assert runs[runs["cell"] == "smooth"]["alarm"].isna().all()
    # A collapse needs a suspicious evaluation before: the first that is over a threshold is not enough.
    assert runs[runs["cell"] == "rise"]["over_3"].tolist()[:2] == [3.0, 3.0]
    assert runs[runs["cell"] == "collapse"]["over_3"].tolist()[:2] == [4.0, 4.0]
    text = markdown(rows)
    assert "collapse detected, 30 % made >= 0.85: holds (1.000)" in text
    assert "nan" not in text


@pytest.mark.slow
@pytest.mark.parametrize("part", ["bands", "flags", "watched"])
def test_one_world_through_every_part(part):
    cell = {"bands": "smooth", "flags": "collapse 0.3", "watched": "rise"}[part]
    task = Task("one", {"part": part, "cell": cell, "first": 0, "worlds": 1, "seed": 1})
    rows = work(task)
    assert (rows["part"] == part).all()
    assert (rows["cell"] == cell).all()
    pd.testing.assert_frame_equal(rows, work(task))
    if part == "bands":
        assert len(rows) == len(TIMES) * (1 + len(HAZARDS))
        wide = rows[rows["times"] == 4.0].set_index("forecast")["width"]
        assert wide["0.33"] > wide["0.021"]
    if part == "flags":
        assert rows["log_bf_collapse"].item() > rows["log_bf_rise"].item()
