"""Is a restarted run never read as one that jumps, and is every row accounted for?"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecast.runs import attempts
from forecast.runs.readers import SOURCE_ROW


def number(step, **more):
    return attempts.number_attempts(np.array(step, float), np.full(len(step), -1), **more).tolist()


@st.composite
def resume_chain(draw):
    """Rows (step, launch) of a run that crashed and went on from an earlier checkpoint a few times."""
    rows, first = [], 0
    for launch in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, 30))
        rows += [(first + i, launch) for i in range(length)]
        first = draw(st.integers(0, first + length))
    return rows


@given(resume_chain())
def test_a_resume_chain_gives_the_last_value_of_every_step(rows):
    step = np.array([s for s, _ in rows], float)
    launch = np.array([n for _, n in rows])
    number = attempts.number_attempts(step, np.full(len(step), -1), launch=launch)
    keep = attempts.keep_rows(step, number)
    described = attempts.summarise(step, number, keep)

    assert number.tolist() == launch.tolist()
    # Oracle: a trainer that overwrites its log when it goes on from a checkpoint.
    overwritten: dict[float, int] = {}
    for i, s in enumerate(step):
        if i and launch[i] != launch[i - 1]:
            overwritten = {old: row for old, row in overwritten.items() if old < s}
        overwritten[s] = i
    assert np.flatnonzero(keep).tolist() == list(overwritten.values())
    assert (np.diff(step[keep]) > 0).all()
    assert sum(a.kept for a in described) == keep.sum()
    assert sum(a.rows for a in described) == len(rows)


@given(resume_chain())
def test_restarts_are_found_without_being_told_of_launches(rows):
    step = np.array([s for s, _ in rows], float)
    launch = np.array([n for _, n in rows])
    number = attempts.number_attempts(step, np.full(len(step), -1))
    kept = attempts.keep_rows(step, number)
    told = attempts.keep_rows(step, launch)
    # A launch that goes on exactly after the last step cannot be seen, and need not be.
    assert (step[kept] == step[told]).all()
    assert (np.flatnonzero(kept) == np.flatnonzero(told)).all()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("latest", [0, 1, 5, 6]), ("longest", [0, 1, 2, 3, 4]), ("separate", list(range(7)))],
)
def test_rules(rule, expected):
    step = np.array([1, 2, 3, 4, 5, 3, 4.0])
    attempt = np.array([0, 0, 0, 0, 0, 1, 1])
    assert np.flatnonzero(attempts.keep_rows(step, attempt, rule)).tolist() == expected


def test_launches_that_wrote_to_one_file_at_once_are_untangled_by_step_and_clock():
    # a: 1 2 3 slowly; b: 1 2 faster, both into one file; c starts last
    step = [1, 1, 2, 2, 3, 1, 2, 3]
    clock = np.array([100, 40, 80, 210, 330, 10, 20, 30.0])
    assert number(step, clock=clock) == [0, 1, 1, 0, 0, 2, 2, 2]


def test_without_a_restarting_clock_fragments_are_not_joined():
    # time goes on through all of it, so 6 continues the second launch's place, not the first launch
    step = [1, 2, 3, 4, 5, 3, 4, 6]
    assert number(step, clock=np.arange(8.0)) == [0, 0, 0, 0, 0, 1, 1, 1]


def test_a_clock_that_goes_back_starts_a_launch_though_the_step_goes_on():
    assert number([1, 2, 3, 4], clock=np.array([10, 20, 5, 15.0])) == [0, 0, 1, 1]


def test_a_training_record_and_an_evaluation_may_share_a_step():
    step, kind = np.array([1, 2, 2, 3.0]), np.array([0, 0, -1, 0])
    assert attempts.number_attempts(step, kind).tolist() == [0, 0, 0, 0]


def test_the_sentence_names_ranges_rows_and_the_way_out():
    step = np.array([0, 1, 2, 0, 1.0])
    number = np.array([0, 0, 0, 1, 1])
    keep = attempts.keep_rows(step, number)
    sentence = attempts.describe("r", attempts.summarise(step, number, keep), "latest")
    assert "2 attempts" in sentence
    assert "0-2 (left out), 0-1 (kept)" in sentence
    assert "3 rows superseded" in sentence
    assert '"longest" or "separate"' in sentence
    assert attempts.describe("r", attempts.summarise(step[:3], number[:3], keep[:3]), "latest") == ""


def test_copies_are_told_from_restarts_by_content():
    rows = pd.DataFrame({"step": [0, 1, 2, 0, 1], "acc": [0.1, 0.2, 0.3, 0.1, 0.2], SOURCE_ROW: range(5)})
    number = np.array([0, 0, 0, 1, 1])
    assert attempts.repeated_attempts(number, attempts.fingerprints(rows)) == {1: 0}
    rows.loc[4, "acc"] = 0.21
    assert attempts.repeated_attempts(number, attempts.fingerprints(rows)) == {}


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (0.37, 0.36666666, True),
        (0.367, 0.3666, True),
        (0.3, 0.2967, True),
        (0.3, 0.31, False),
        (0.0, 0.04, False),
        (0.0, 0.0004, False),
        (0.5, 0.5, True),
        (0.361, 0.3666, False),
    ],
)
def test_one_number_rounded_differently(a, b, same):
    assert attempts.same_evaluation(a, b) is same
    assert attempts.same_evaluation(b, a) is same
