"""Distinct vertices and their places, close together and far apart; pairs of owners and destinations."""

import numpy as np
import pytest

from leapmpi.exchange.items import items_of
from leapmpi.plan.distinct_vertices import DistinctVertices
from leapmpi.sampling.block import Block, indptr_of


@pytest.mark.parametrize("apart", [1, 1000])
@pytest.mark.parametrize("count", [0, 1, 300])
def test_first_ones_come_first_and_others_ascend(apart, count):
    rng = np.random.default_rng(count)
    wanted = 7 + apart * rng.integers(0, 200, count)
    first = rng.permutation(np.unique(wanted))[: count // 10]
    found = DistinctVertices.of(first, wanted)
    others = np.setdiff1d(wanted, first)
    np.testing.assert_array_equal(found.ids, np.concatenate((first, others)))
    np.testing.assert_array_equal(found.ids[found.numbers(wanted)], wanted)


def test_pairs_without_rows_are_the_distinct_ones_of_owners_and_destinations():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, 50)
    indices = rng.integers(0, 80, counts.sum()).astype(np.int32)
    home, chosen = rng.integers(0, 4, 80), rng.random(80) < 0.6
    numbers = np.arange(80)
    block = Block(0, 50, numbers, indptr_of(counts), indices, numbers, numbers)
    found = items_of(block, home, chosen, 4, mixes=False)
    of_edge = np.repeat(np.arange(50), counts)
    keys = np.concatenate((home[indices] * 50 + of_edge, home[:50] * 50 + np.arange(50)))
    kept = np.concatenate((chosen[indices], chosen[:50]))
    np.testing.assert_array_equal(found.pairs, np.unique(keys[kept]))
    assert not len(found.rows)
    assert (found.edge_rows == -1).all()
