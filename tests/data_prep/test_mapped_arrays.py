"""Pieces of mapped arrays, read past their maps."""

import os

import numpy as np
import pytest

from data_prep.mapped_arrays import read_into
from leapmpi.errors import DataError

VALUES = np.arange(5000, dtype=np.int32) * 7


@pytest.fixture
def mapped(tmp_path):
    (tmp_path / "values").write_bytes(b"head" + VALUES.tobytes())
    return np.memmap(tmp_path / "values", np.int32, "r", offset=4, shape=len(VALUES))


@pytest.mark.parametrize(("start", "count"), [(0, 5000), (17, 1), (4990, 10), (0, 0), (5000, 0)])
@pytest.mark.parametrize("skipped", [0, 3])
def test_a_piece_is_what_the_map_shows(mapped, start, count, skipped):
    """Of the whole map, of a slice of it, and of a plain array."""
    start, count = min(start, len(VALUES) - skipped), min(count, len(VALUES) - skipped - start)
    for array in (mapped[skipped:], VALUES[skipped:]):
        piece = np.zeros(max(0, count), np.int32)
        read_into(array, start, piece)
        np.testing.assert_array_equal(piece, VALUES[skipped:][start : start + len(piece)])


def test_a_file_that_became_shorter_is_named(mapped):
    os.truncate(mapped.filename, 8)
    with pytest.raises(DataError, match="values became shorter while it was read"):
        read_into(mapped, 100, np.empty(10, np.int32))
