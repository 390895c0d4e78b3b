"""Requests for rows: which ids are local, which rank has the others. Fetching itself is tested on ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leapmpi.features.shards.row_request import RowRequest


def check_request(ids, offsets, rank):
    ids, offsets = np.array(ids, np.int64), np.array(offsets, np.int64)
    request = RowRequest(ids, offsets, rank)
    assert len(request.ids) == len(ids)
    home = [next(r for r in range(len(offsets) - 1) if offsets[r] <= each < offsets[r + 1]) for each in ids]
    local = [place for place, at in enumerate(home) if at == rank]
    # Local rows in the order of the request; others grouped by home rank, in that order within a home rank.
    assert request.local_positions.tolist() == local
    away = [place for r in range(len(offsets) - 1) if r != rank for place, at in enumerate(home) if at == r]
    assert request.remote_positions.tolist() == away
    assert request.local_ids.tolist() == ids[local].tolist()
    assert request.remote_ids.tolist() == ids[away].tolist()
    counts = [home.count(r) if r != rank else 0 for r in range(len(offsets) - 1)]
    assert request.remote_counts.tolist() == counts
    assert request.remote_counts.dtype == np.int64


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("ids", [[], [0], [59], [30], [10, 9, 31, 30], list(range(59, -1, -1))])
def test_ids_are_grouped_by_home(ids, rank):
    check_request(ids, [0, 10, 30, 31, 60], rank)


@given(st.data())
def test_any_ids_on_any_ranks_are_grouped_by_home(data):
    sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=9))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    ids = data.draw(st.lists(st.integers(0, int(offsets[-1]) - 1), unique=True))
    check_request(ids, offsets, data.draw(st.integers(0, len(sizes) - 1)))
