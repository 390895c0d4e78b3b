"""Sets of ids that number their members: as sorted sets of Python do."""

import numpy as np
import pytest

from leapmpi.sampling.sharded.id_set import IdSet


@pytest.mark.parametrize(("size", "first", "end"), [(1, 0, 0), (64, 10, 20), (1000, 0, 400), (1000, 999, 1000)])
def test_members_are_numbered_in_ascending_order_after_the_range(size, first, end):
    ids = np.random.default_rng(size).integers(0, size, size // 2).astype(np.int32)
    found = IdSet(size, first, end)
    found.add(ids[: size // 4])
    found.add(ids[size // 4 :])
    members = sorted({int(each) for each in ids if not first <= each < end})
    assert found.count == len(members)
    assert found.listed(np.int32).tolist() == members
    numbers = ids.copy()
    found.renumber(numbers)
    wanted = [each - first if first <= each < end else end - first + members.index(each) for each in ids.tolist()]
    assert numbers.tolist() == wanted
