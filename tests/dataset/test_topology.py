"""Functions beside the topology: places of ids among others."""

import numpy as np
import pytest

from leapmpi.dataset.topology import places_among


@pytest.mark.parametrize("count", [0, 1, 40])
def test_places_among_are_those_of_a_dictionary(count):
    rng = np.random.default_rng(count)
    ids, wanted = rng.permutation(60)[:count], rng.integers(-3, 63, (20, 2))
    known = {int(each): place for place, each in enumerate(ids)}
    expected = [[known.get(int(each), -1) for each in row] for row in wanted]
    assert places_among(wanted, ids, np.argsort(ids)).tolist() == expected
    known = {int(each): place for place, each in enumerate(np.sort(ids))}
    expected = [[known.get(int(each), -1) for each in row] for row in wanted]
    assert places_among(wanted, np.sort(ids)).tolist() == expected
