"""Does compute come out cumulative, in the declared unit, or as an error that says what to do?"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecast.errors import InputError
from forecast.runs import axes
from forecast.runs.spec import ComputeSpec


def derive(values, step=None, attempt=None, evaluated=None, **declared):
    values = np.array(values, float)
    n = len(values)
    step = np.arange(1.0, n + 1) if step is None else np.array(step, float)
    attempt = np.zeros(n, int) if attempt is None else np.array(attempt)
    evaluated = np.ones(n, bool) if evaluated is None else np.array(evaluated)
    total, notes = axes.cumulative(
        values, step, attempt, ComputeSpec(**declared), evaluated=evaluated, name="x", where="f"
    )
    return total.tolist(), notes


def test_per_step_values_are_summed_over_all_rows_and_scaled():
    assert derive([10, 10, np.nan, 20], cumulate=True, times=0.5, offset=1.0)[0] == [6, 11, 11, 21]


def test_an_evaluation_has_seen_its_whole_step_whatever_the_order_of_the_records():
    # step 2: the evaluation was written before the training record
    assert derive([5, np.nan, 7], step=[1, 2, 2], cumulate=True)[0] == [5, 12, 12]


def test_a_sparse_per_step_column_is_mentioned():
    _, notes = derive([3, 4, 3], step=[5, 10, 15], cumulate=True)
    assert "every 5 steps" in notes[0]


@given(st.lists(st.floats(0.5, 2.0), min_size=8, max_size=40), st.integers(0, 3))
def test_summing_what_a_cumulative_column_adds_gives_that_column(increments, seed):
    increments = np.random.default_rng(seed).permutation(increments)
    total = np.cumsum(increments)
    np.testing.assert_allclose(derive(increments, cumulate=True)[0], derive(total)[0])


def test_a_counter_that_restarts_with_a_new_launch_is_chained():
    total, notes = derive([10, 20, 30, 5, 15], attempt=[0, 0, 0, 1, 1])
    assert total == [10, 20, 30, 35, 45]
    assert "starts anew at step 4" in notes[0]


def test_a_counter_restored_with_the_checkpoint_is_left_alone():
    assert derive([10, 20, 30, 40], attempt=[0, 0, 1, 1]) == ([10, 20, 30, 40], [])


def test_a_rare_deep_reset_within_one_launch_is_chained():
    once = np.arange(1.0, 11)
    total, notes = derive(np.concatenate([once, once]))
    assert total == list(range(1, 21))
    assert "chained" in notes[0]


@pytest.mark.parametrize(
    "values",
    [
        [20.1, 18.8, 20.4, 21.0, 19.5],  # seconds per step
        [5, 5, 5, 5],
        np.linspace(100, 130, 20),  # seconds per step that grow as answers get longer
    ],
)
def test_a_per_step_column_declared_cumulative_is_refused(values):
    with pytest.raises(InputError, match="not cumulative") as error:
        derive(values)
    assert "--cumulate" in str(error.value)


def test_a_cumulative_column_declared_per_step_is_refused():
    with pytest.raises(InputError, match="looks cumulative already"):
        derive(np.linspace(1, 50, 50), cumulate=True)


def test_an_empty_column_is_refused():
    with pytest.raises(InputError, match="empty"):
        derive([np.nan, np.nan])


def test_a_time_of_day_is_no_compute():
    times = np.array([1765178421.0, 1765181018, 1765183018])
    with pytest.raises(InputError, match="time of day"):
        axes.cumulative(
            times, times, np.zeros(3, int), ComputeSpec(), evaluated=times > 0, name="timestamp", where="f"
        )


def test_missing_compute_is_read_off_between_neighbours_and_left_missing_outside():
    total, notes = derive([np.nan, 10, np.nan, 30, np.nan], step=[0, 1, 2, 3, 4])
    assert np.isnan(total[0])
    assert np.isnan(total[4])
    assert total[1:4] == [10, 20, 30]
    assert "1 evaluations without 'x'" in notes[0]
    assert derive([10, np.nan, 30], evaluated=[True, False, True])[1] == []


RECORDS = pd.DataFrame({"step": [1, 2], "num_tokens": [10, 20], "gpu_hours": [1, 2], "flat_tokens": [0, 0]})


def choose(records, **declared):
    return axes.choose(records, "step" if "step" in records else None, ComputeSpec(**declared), "f")


def test_the_one_column_named_as_compute_is_taken_and_said():
    choice = choose(RECORDS[["step", "num_tokens", "flat_tokens"]])
    assert (choice.columns, choice.unit) == (("num_tokens",), "tokens")
    assert "num_tokens" in choice.note


def test_steps_are_the_last_resort_and_said():
    choice = choose(RECORDS[["step"]])
    assert choice.unit == "steps"
    assert "no column of compute" in choice.note


def test_two_candidates_are_an_error_that_lists_them():
    with pytest.raises(InputError, match="num_tokens, gpu_hours"):
        choose(RECORDS)


def test_nothing_to_go_by_is_an_error_unless_the_order_is_declared():
    records = pd.DataFrame({"acc": [0.1, 0.2]})
    with pytest.raises(InputError, match="no compute column and no step column"):
        choose(records)
    assert choose(records, column=["#"], unit="steps").columns == ("#",)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"column": ["num_tokens"], "unit": "gpu_hours"}, "is in tokens"),
        ({"column": ["num_tokens"], "times": 6e9}, "unit of compute 'num_tokens' is not known"),
        ({"column": ["num_tokens", "gpu_hours"]}, "different units"),
        ({"column": ["tokens"]}, "no column 'tokens', found num_tokens"),
    ],
)
def test_units_are_not_guessed_against_the_name(declared, message):
    with pytest.raises(InputError) as error:
        choose(RECORDS, **declared)
    assert message.split(",")[0] in str(error.value)


def test_derivation_in_words():
    choice = axes.Choice(("gen", "update"), "gpu_hours")
    text = axes.derivation(choice, ComputeSpec(cumulate=True, times=0.02, offset=-3.0))
    assert text == "sum of gen + update over the run x 0.02 - 3"


def test_columns_are_added_up_and_a_part_not_logged_adds_nothing_to_a_sum():
    records = pd.DataFrame({"gen": [1, 2, np.nan], "update": [10, np.nan, np.nan]})
    choice = axes.Choice(("gen", "update"), "gpu_hours")
    np.testing.assert_array_equal(
        axes.logged(records, choice, ComputeSpec(cumulate=True), "f"), [11, 2, np.nan]
    )
    np.testing.assert_array_equal(axes.logged(records, choice, ComputeSpec(), "f"), [11, np.nan, np.nan])
