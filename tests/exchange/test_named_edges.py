"""Edges that are named to owners: what arrives is what was drawn, whoever repeats the draw."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leapmpi.exchange.named_edges import KnownEdges
from leapmpi.sampling.block import indptr_of


@given(st.lists(st.lists(st.integers(0, 50), max_size=5), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_destinations_are_taken_in_any_order_with_their_edges(lists, random):
    numbers = np.arange(len(lists))
    counts, neighbours = np.array([len(each) for each in lists]), np.array(list(chain(*lists)), np.int64)
    weight = np.arange(len(neighbours), dtype=np.float32)
    known = KnownEdges(
        numbers + 100, counts, counts * 2, indptr_of(counts), neighbours, weight, weight * 2, numbers / 2, numbers / 3
    )
    order = np.array(random.sample(range(len(lists)), random.randint(0, len(lists))), np.int64)

    found = known.taken(order)
    assert [each.tolist() for each in np.split(found.neighbours, found.indptr[1:-1])][: len(order)] == [
        lists[place] for place in order
    ]
    assert found.destinations.tolist() == (order + 100).tolist()
    of_edge = np.concatenate([np.arange(known.indptr[i], known.indptr[i + 1]) for i in order] or [np.empty(0, int)])
    assert found.weight.tolist() == weight[of_edge].tolist()
    assert found.edge_weight.tolist() == (2 * weight[of_edge]).tolist()
    assert found.drawn_weight.tolist() == (order / 2).tolist()
    assert found.relation is None
