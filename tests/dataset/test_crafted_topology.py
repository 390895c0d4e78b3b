"""A part whose digests were made again after its topology was spoilt must not lead a kernel out of its arrays."""

import pytest

from leapmpi.dataset.hdf5.names import INDICES, INDPTR
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.errors import DataError
from tests.support.crafted import change_array

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        (INDICES, 5, 10**9, "indices, row 5: in-neighbour 1000000000 is outside 0..59"),
        (INDICES, 5, -1, "indices, row 5: in-neighbour -1 is outside 0..59"),
        (INDPTR, 0, -(10**12), "indptr, row 0 is -1000000000000, expected 0"),
        (INDPTR, 4, 10**12, "indptr, row 5 is .*, below the row before"),
        (INDPTR, -1, 10**12, "indptr ends with 1000000000000, but there are"),
    ],
)
def test_ranges_are_checked_although_the_digests_fit(folder, name, row, value, message):
    part = folder / "part-00001.h5"
    change_array(part, f"{name}", row, value)
    with pytest.raises(DataError, match=message) as caught:
        load_topology(open_dataset(folder))
    assert str(caught.value).startswith(str(part))
