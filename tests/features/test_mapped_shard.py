"""Rows in files with some of them in memory: what is read, from where, and how many fit."""

import numpy as np
import pytest

from leapmpi.errors import ConfigError
from leapmpi.features.shards.mapped_shard import MappedShard, bytes_apart

pytestmark = pytest.mark.compiles

FIRST, ROWS, WIDTH = 1000, 3000, 5
ROW_BYTES = WIDTH * 4


@pytest.fixture
def shard(tmp_path):
    """A shard of three mapped parts with room for 700 rows; all rows."""
    rows = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    parts = []
    for number, part in enumerate(np.split(rows, [1200, 1201])):
        path = tmp_path / str(number)
        # Rows of a part begin anywhere in its file.
        path.write_bytes(b"x" * 37 + part.tobytes())
        parts.append(np.memmap(path, np.float32, "r", 37, part.shape))
    return MappedShard(parts, FIRST, None, 4 * ROWS + 700 * ROW_BYTES + 3), rows


@pytest.mark.parametrize("kept", [[], [0], [1200], list(range(5, 700))], ids=len)
def test_rows_are_those_of_the_files_whichever_are_in_memory(shard, kept):
    mapped, rows = shard
    mapped.keep(np.array(kept, np.int64) + FIRST)
    ids = np.random.default_rng(1).permutation(ROWS)[:400]
    expected = rows[ids]
    np.testing.assert_array_equal(mapped.rows(ids + FIRST, np.empty((400, WIDTH), np.float32)), expected)
    held = int(np.isin(ids, kept).sum())
    assert mapped.take_counts() == (held, 400 - held)
    assert mapped.take_counts() == (0, 0)

    addresses = np.empty(400, np.int64)
    mapped.locate(ids + FIRST, addresses, np.arange(400))
    own = range(mapped._kept.ctypes.data, mapped._kept.ctypes.data + max(1, mapped._kept.nbytes))
    assert [address in own for address in addresses.tolist()] == np.isin(ids, kept).tolist()


def test_rows_that_are_chosen_anew_take_the_place_of_others(shard):
    mapped, rows = shard
    for kept in (range(10), range(5, 8)):
        mapped.keep(np.array(kept) + FIRST)
    mapped.take_counts()
    found = mapped.rows(np.arange(10) + FIRST, np.empty((10, WIDTH), np.float32))
    np.testing.assert_array_equal(found, rows[:10])
    assert mapped.take_counts() == (3, 7)


def test_room_is_for_a_table_and_for_rows(shard):
    mapped, _ = shard
    assert (mapped.capacity, mapped.resident_bytes) == (700, 4 * ROWS + 700 * ROW_BYTES)
    assert bytes_apart(ROWS, ROW_BYTES, 4 * ROWS) == (4 * ROWS, ROWS * ROW_BYTES)
    assert bytes_apart(ROWS, ROW_BYTES, 1 << 30) == (ROWS * (4 + ROW_BYTES), 0)
    with pytest.raises(ConfigError, match=r"less than the table of 3,000 rows takes, 11\.7 KiB; give at least"):
        bytes_apart(ROWS, ROW_BYTES, 4 * ROWS - 1)
