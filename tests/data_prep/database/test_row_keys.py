"""Keys of rows of any type, and the table from keys to rows."""

from decimal import Decimal

import numpy as np
import pytest

from data_prep.workspace import Workspace
from leapmpi.errors import DataError

pyarrow = pytest.importorskip("pyarrow")

from data_prep.database.row_keys import KeyTable, keys_of  # noqa: E402


def found_in(tmp_path, primary, foreign):
    """Rows that keys of `foreign` name among those of `primary`; each is a list of columns."""
    workspace = Workspace(tmp_path, 2**30)
    table = KeyTable(len(primary[0]), workspace)
    half = len(primary[0]) // 2
    for some in (slice(0, half), slice(half, None)):
        table.add(*keys_of([each[some] for each in primary], "key"))
    rows, dangling = table.rows_of(*keys_of(foreign, "key"))
    return rows.tolist(), dangling, table


@pytest.mark.parametrize(
    ("primary", "foreign"),
    [
        ([5, -3, 2**62], [2**62, None, 5, 7]),
        (["a", "", "longer than eight bytes"], ["longer than eight bytes", None, "a", "b"]),
        ([b"\0" * 16, b"\1" * 16, b"\2" * 16], [b"\2" * 16, None, b"\0" * 16, b"\3" * 16]),
        ([Decimal(4), Decimal(5), Decimal(6)], [Decimal(6), None, Decimal(4), Decimal(7)]),
    ],
)
def test_keys_of_any_type(tmp_path, primary, foreign):
    rows, dangling, _ = found_in(tmp_path, [pyarrow.array(primary)], [pyarrow.array(foreign)])
    assert rows == [2, -1, 0, -1]
    assert dangling == 1


def test_whole_floats_and_dictionaries_fit_other_types(tmp_path):
    rows, _, _ = found_in(tmp_path, [pyarrow.array([7, 8])], [pyarrow.array([8.0, None, 7.0])])
    assert rows == [1, -1, 0]
    texts = pyarrow.array(["x", "y"])
    rows, _, _ = found_in(tmp_path, [texts], [pyarrow.array(["y", "x", "y"]).dictionary_encode()])
    assert rows == [1, 0, 1]


def test_large_unsigned_keys_are_not_negative_ones(tmp_path):
    unsigned = pyarrow.array([2**63 + 5, 2**64 - 3, 5, 9], pyarrow.uint64())
    rows, dangling, _ = found_in(tmp_path, [unsigned], [pyarrow.array([5, -(2**63) + 5, -3])])
    assert rows == [2, -1, -1]
    assert dangling == 2
    rows, _, _ = found_in(tmp_path, [unsigned], [pyarrow.array([2**63 + 5], pyarrow.uint64())])
    assert rows == [0]


def test_keys_of_several_columns(tmp_path):
    a, b = pyarrow.array([1, 1, 2, 2]), pyarrow.array(["x", "y", "x", None])
    rows, dangling, table = found_in(tmp_path, [a, b], [pyarrow.array([2, 2, 1]), pyarrow.array(["x", "y", "y"])])
    assert rows == [2, -1, 1]
    assert dangling == 1
    assert (table.repeated, table.missing) == (0, 1)


def test_the_first_of_equal_keys_counts(tmp_path):
    keys = pyarrow.array(["a", "b", "a", "a", None])
    rows, _, table = found_in(tmp_path, [keys], [pyarrow.array(["a"])])
    assert rows == [0]
    assert (table.repeated, table.first_repeated, table.missing) == (2, 2, 1)


def test_many_keys(tmp_path):
    numbers = np.random.default_rng(0).permutation(200_000) * 977
    texts = pyarrow.array([f"key {v}" for v in numbers[:50_000]])
    rows, dangling, table = found_in(tmp_path, [pyarrow.array(numbers)], [pyarrow.array(numbers[::-1])])
    assert rows == list(range(200_000))[::-1]
    assert (dangling, table.repeated) == (0, 0)
    rows, _, _ = found_in(tmp_path, [texts], [texts])
    assert rows == list(range(50_000))


def test_numbers_that_are_not_whole_are_refused():
    with pytest.raises(DataError, match="not whole"):
        keys_of([pyarrow.array([1.5])], "column 'k'")
