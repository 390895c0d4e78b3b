"""Homes: parts to ranks, vertices to ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leapmpi.errors import DataError
from leapmpi.plan.homes import home_of, parts_of_rank, rank_offsets


@settings(derandomize=True)
@given(st.integers(1, 64), st.data())
def test_every_part_lives_on_one_rank_and_groups_are_balanced(parts, data):
    ranks = data.draw(st.integers(1, parts))
    groups = [parts_of_rank(parts, ranks, rank) for rank in range(ranks)]
    assert [p for group in groups for p in group] == list(range(parts))
    assert all(p * ranks // parts == rank for rank, group in enumerate(groups) for p in group)
    sizes = [len(group) for group in groups]
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1


@settings(derandomize=True)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=64), st.data())
def test_homes_are_right_with_uneven_and_empty_parts(sizes, data):
    ranks = data.draw(st.integers(1, len(sizes)))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    bounds = rank_offsets(offsets, ranks)
    part_of = np.repeat(np.arange(len(sizes)), sizes)
    expected = part_of * ranks // len(sizes)
    assert bounds.dtype == np.int64
    assert home_of(np.arange(offsets[-1]), bounds).tolist() == expected.tolist()


def test_as_many_ranks_as_parts_keeps_the_offsets():
    offsets = np.array([0, 4, 4, 9])
    assert rank_offsets(offsets, 3).tolist() == [0, 4, 4, 9]
    assert rank_offsets(offsets, 1).tolist() == [0, 9]


def test_more_ranks_than_parts_is_refused_with_the_remedy():
    with pytest.raises(DataError, match=r"4 ranks .* 2 parts; .*--parts 4, or start at most 2 ranks"):
        rank_offsets(np.array([0, 5, 10]), 4)
    with pytest.raises(DataError, match=r"has 1 part; .* at most 1 rank$"):
        rank_offsets(np.array([0, 5]), 2)


def test_homes_of_skewed_and_empty_ranks_are_those_of_a_search():
    rng = np.random.default_rng(1)
    for sizes in (np.array([5, 0, 0, 1, 900, 0, 3]), rng.integers(90, 110, 200), rng.pareto(1, 64).astype(int) + 1):
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        ids = np.arange(offsets[-1])
        assert (home_of(ids, offsets) == np.searchsorted(offsets, ids, side="right") - 1).all()
        assert (home_of(ids[::-2], offsets) == home_of(ids[::-2].copy(), offsets)).all()
