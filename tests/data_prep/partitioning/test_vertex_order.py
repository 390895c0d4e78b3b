"""The order of vertices by communities."""

import numpy as np
import pytest

from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.vertex_order import community_order
from leapmpi.errors import ResourceError
from tests.support.graphs import communities, from_edges, from_lists

REQUEST = PartitionRequest((4,))


def shuffled(n, groups):
    """A graph of `groups` communities whose vertices have random numbers, and the group of each."""
    graph = communities(n, groups)
    number = np.random.default_rng(5).permutation(n)
    ends = np.repeat(np.arange(n), np.diff(graph.indptr))
    pairs = np.stack([number[graph.indices], number[ends]], axis=1)
    return from_edges(n, pairs[pairs[:, 0] < pairs[:, 1]].tolist())


def distance(graph, order):
    """How far apart in `order` the ends of an edge are, on average, as a share of the vertices."""
    place = np.argsort(order)
    ends = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return np.abs(place[ends] - place[graph.indices]).mean() / graph.vertices


def test_neighbours_lie_near_each_other():
    graph = shuffled(4000, 16)
    order = community_order(graph, REQUEST)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(4000))
    assert distance(graph, order) < 0.4 * distance(graph, np.arange(4000))


@pytest.mark.parametrize("threads", [2, 3])
def test_the_order_depends_on_no_number_of_threads(threads):
    graph = shuffled(4000, 16)
    found = community_order(graph, PartitionRequest((2,), threads=threads))
    np.testing.assert_array_equal(found, community_order(graph, PartitionRequest((2,), threads=1)))


@pytest.mark.parametrize("edges", [[], [(0, 1)], [(0, v) for v in range(1, 9)]])
def test_vertices_without_neighbours_come_last(edges):
    graph = from_edges(12, edges) if edges else from_lists([[]] * 12)
    order, known = community_order(graph, REQUEST), {v for edge in edges for v in edge}
    assert set(order[: len(known)].tolist()) == known
    assert order[len(known) :].tolist() == [v for v in range(12) if v not in known]


def test_directed_edges_count_both_ways():
    graph = from_lists([[]] + [[v] for v in range(11)])
    assert sorted(community_order(graph, REQUEST).tolist()) == list(range(12))


def test_memory_that_does_not_suffice_is_refused():
    graph = from_lists([[]] * 12)
    with pytest.raises(ResourceError, match=r"--order communities needs .* allow more, or leave the flag out"):
        community_order(graph, PartitionRequest((2,), memory=1 << 20))
