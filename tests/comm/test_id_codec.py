"""Ids on the wire: 32-bit offsets in ranges of up to 2**32, else 64-bit ones; the same ids on the other side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leapmpi.comm.id_codec import IdCodec

pytestmark = pytest.mark.compiles


def check_round_trip(ranges, bounds, counts, seed):
    rng = np.random.default_rng(seed)
    parts = [rng.integers(bounds[r], bounds[r + 1], counts[r]) for r in range(len(counts))]
    sent = ranges.encode(np.concatenate(parts), np.array(counts, np.int64))
    assert sent.nbytes == ranges.id_bytes * sum(counts)
    begin = 0
    for rank, part in enumerate(parts):
        received = ranges.empty(len(part))
        received[:] = sent[begin : begin + len(part)]
        found = ranges.decode(received, rank)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, part)
        begin += len(part)


@given(st.data())
def test_ids_come_back_from_their_offsets(data):
    sizes = data.draw(st.lists(st.integers(1, 2**33), min_size=1, max_size=6))
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    counts = [data.draw(st.integers(0, 5)) for _ in sizes]
    ranges = IdCodec.home_ranks(bounds)
    assert ranges.id_bytes == (4 if max(sizes) <= 2**32 else 8)
    check_round_trip(ranges, bounds, counts, data.draw(st.integers(0, 99)))


@pytest.mark.parametrize(("last", "width"), [(2**32 - 1, 4), (2**32, 4), (2**32 + 1, 8)])
def test_the_ends_of_a_range_fit(last, width):
    ranges = IdCodec.home_ranks(np.array([0, last]))
    assert ranges.id_bytes == width
    ends = np.array([0, 1, last - 1])
    sent = ranges.encode(ends, np.array([3]))
    assert sent.itemsize == width
    np.testing.assert_array_equal(ranges.decode(sent, 0), ends)


def test_ranges_that_start_high_take_32_bits_each():
    bounds = np.array([0, 2**31, 2**40, 2**40 + 7])
    assert IdCodec.home_ranks(bounds).id_bytes == 8
    assert IdCodec.home_ranks(bounds[2:]).id_bytes == 4
    assert IdCodec.any_id(bounds).id_bytes == 8
    assert IdCodec.any_id(np.array([0, 5, 2**32])).id_bytes == 4
