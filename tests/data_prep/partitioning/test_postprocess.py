"""What follows a method: parts are filled, balanced and numbered, by the edges of the undirected graph or the graph."""

import numpy as np
import pytest

from data_prep.partitioning.multilevel.weighted_graph import NO_WEIGHTS, Chunk
from data_prep.partitioning.part_ordering import add_cut_weights, near_numbers, no_cut_weights
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.postprocess import MethodResult, fill_empty, postprocess, rebalance, rows_of_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.undirected import Undirected
from tests.support.graphs import communities, from_edges, random_graph


def neighbours_of(graph):
    undirected = Undirected(graph)
    out = np.empty(undirected.edges, np.int64)
    undirected.fill(out)
    return undirected.indptr, out


def test_near_numbers_undo_a_shuffle():
    ring = np.zeros((16, 16))
    for p in range(16):
        ring[p, (p + 1) % 16] = ring[(p + 1) % 16, p] = 5
    shuffle = np.random.default_rng(1).permutation(16)
    numbers = near_numbers(ring[np.ix_(shuffle, shuffle)])
    assert sorted(numbers) == list(range(16))
    half = numbers[np.argsort(shuffle)] < 8
    assert (half != np.roll(half, 1)).sum() == 2


def test_cut_weights_agree_with_the_edges():
    graph = random_graph()
    indptr, out = neighbours_of(graph)
    assignment = np.arange(60) % 3
    weights = no_cut_weights(3)
    add_cut_weights(Chunk(0, indptr, out, NO_WEIGHTS), assignment, weights)
    head = np.repeat(np.arange(60), np.diff(indptr))
    for p in range(3):
        for q in range(3):
            expected = 0 if p == q else ((assignment[head] == p) & (assignment[out] == q)).sum()
            assert weights[p, q] == expected


def test_rebalance_moves_what_costs_least():
    pairs = [(v, v + 1) for v in range(19)]
    training = np.arange(20) < 12
    assignment = (np.arange(20) >= 14).astype(np.int64)
    indptr, out = neighbours_of(from_edges(20, pairs))
    rebalance(indptr, out, assignment, training, 2, 1.05)
    assert np.bincount(assignment).max() <= 10
    assert np.bincount(assignment[training]).max() <= 6


def test_fill_empty_takes_from_the_largest():
    assignment = np.array([0] * 5 + [2] * 3 + [4])
    fill_empty(assignment, 5)
    assert np.bincount(assignment, minlength=5).tolist() == [3, 1, 3, 1, 1]


@pytest.mark.parametrize("method", ["metis", "grem"])
def test_groups_of_parts_are_near_each_other(method):
    """On a ring of communities, groups of neighbouring numbers must be arcs: few edges between the groups."""
    graph = communities(800, groups=16)
    found = partition_graph(graph, PartitionRequest((16,), method, seed=0)).assignment
    shuffled = np.random.default_rng(0).permutation(16)[found]
    for ranks in (2, 4, 8):

        def between(assignment, ranks=ranks):
            group = assignment * ranks // 16
            head = np.repeat(np.arange(800), np.diff(graph.indptr))
            return (group[head] != group[graph.indices]).sum()

        assert between(found) < 0.6 * between(shuffled)


def test_undirected_of_a_directed_graph():
    graph = random_graph()
    indptr, out = neighbours_of(graph)
    dense = np.zeros((60, 60), bool)
    dense[np.repeat(np.arange(60), np.diff(graph.indptr)), graph.indices] = True
    head, tail = np.nonzero(dense | dense.T)
    np.testing.assert_array_equal(out, tail)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(head, minlength=60))


def test_parts_without_an_adjacency_stay_as_they_are():
    assignment = np.zeros(60, np.int32)
    assert postprocess(random_graph(), MethodResult(assignment), PartitionRequest((3,))) is assignment


def test_parts_with_an_adjacency_are_filled_balanced_and_numbered():
    graph = communities(800, groups=16)
    request = PartitionRequest((16,))
    result = MethodResult(np.arange(800) * 14 // 800, rows_of_graph(graph, request))
    found = postprocess(graph, result, request)
    assert found.dtype == np.int32
    assert np.bincount(found, minlength=16).min() > 0
    assert np.bincount(found).max() <= 1.05 * 50
