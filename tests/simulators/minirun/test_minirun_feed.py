"""Does every training prompt get its turn, and stay away once it is set aside?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from simulators.minirun.feed import Feed


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 1000))
def test_each_prompt_comes_once_per_round(count, batches, seed):
    feed = Feed(count * batches, np.random.default_rng(seed))
    rounds = [np.concatenate([feed.next(count) for _ in range(batches)]) for _ in range(3)]
    for each in rounds:
        assert sorted(each) == list(range(count * batches))
    if count * batches > 12:
        assert not np.array_equal(rounds[0], rounds[1])


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 12), st.integers(0, 20), st.integers(0, 1000), st.data())
def test_prompts_of_a_batch_differ_and_those_set_aside_stay_away(count, more, seed, data):
    size = count + more
    feed, aside = Feed(size, np.random.default_rng(seed)), set()
    for _ in range(20):
        batch = feed.next(count)
        assert len(set(batch.tolist())) == len(batch) == count
        if size - len(aside) >= count:
            assert not aside & set(batch.tolist())
        else:
            aside = set()
        easy = data.draw(st.lists(st.sampled_from(batch.tolist()), unique=True))
        feed.set_aside(np.array(easy, dtype=int))
        aside |= set(easy)


def test_all_come_back_when_fewer_than_a_batch_are_left():
    feed = Feed(10, np.random.default_rng(0))
    feed.set_aside(np.arange(7))
    assert set(feed.next(3)) == {7, 8, 9}
    feed.set_aside(np.array([7]))
    later = np.concatenate([feed.next(3) for _ in range(10)])
    assert set(later) == set(range(10))


def test_rounds_that_no_batch_divides_still_treat_prompts_alike():
    feed = Feed(23, np.random.default_rng(0))
    times = np.bincount(np.concatenate([feed.next(7) for _ in range(2000)]), minlength=23)
    # Shuffled afresh each round: a prompt may miss a round where a batch spans two, and then at random.
    assert np.ptp(times) < 0.1 * times.mean()


def test_the_order_is_that_of_its_generator():
    first, again, other = (Feed(50, np.random.default_rng(seed)).next(20) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
