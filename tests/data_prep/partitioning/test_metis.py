"""METIS: quality, balance of training vertices, near numbers, and its failures as sentences."""

import numpy as np
import pytest

from data_prep.partitioning import metis_call, metis_process
from data_prep.partitioning.part_ordering import cut_weights, near_numbers
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.rebalance import fill_empty, rebalance
from data_prep.partitioning.undirected import Undirected
from leapmpi.errors import DataError, ResourceError
from tests.support.graphs import communities, from_edges, random_graph


def neighbours_of(graph):
    undirected = Undirected(graph)
    out = np.empty(undirected.edges, np.int64)
    undirected.fill(out)
    return undirected.indptr, out


def test_undirected_of_a_directed_graph():
    graph = random_graph()
    indptr, out = neighbours_of(graph)
    dense = np.zeros((60, 60), bool)
    dense[np.repeat(np.arange(60), np.diff(graph.indptr)), graph.indices] = True
    head, tail = np.nonzero(dense | dense.T)
    np.testing.assert_array_equal(out, tail)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(head, minlength=60))


def test_communities_are_found():
    graph = communities()
    found = partition_graph(graph, 8, "metis", seed=0)
    assert found.figures()["edge_cut_share"] < 0.2
    assert found.figures()["edge_cut"] < partition_graph(graph, 8, "random", seed=0).figures()["edge_cut"] / 3


def test_training_vertices_are_balanced_where_they_cluster():
    graph = communities()
    graph.split = (np.arange(400) < 100).astype(np.int8)
    found = partition_graph(graph, 4, "metis", seed=0)
    assert found.training.max() <= 1.05 * 25
    assert found.vertices.max() <= 1.05 * 100


@pytest.mark.parametrize("method", ["metis", "grem"])
def test_groups_of_parts_are_near_each_other(method):
    """On a ring of communities, groups of neighbouring numbers must be arcs: few edges between the groups."""
    graph = communities(800, groups=16)
    found = partition_graph(graph, 16, method, seed=0).assignment
    shuffled = np.random.default_rng(0).permutation(16)[found]
    for ranks in (2, 4, 8):

        def between(assignment, ranks=ranks):
            group = assignment * ranks // 16
            head = np.repeat(np.arange(800), np.diff(graph.indptr))
            return (group[head] != group[graph.indices]).sum()

        assert between(found) < 0.6 * between(shuffled)


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
    weights = cut_weights(indptr, out, assignment, 3)
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


def test_one_constraint_fallback_balances_both():
    graph = communities()
    indptr, out = neighbours_of(graph)
    weights = np.stack([np.ones(400, np.int64), (graph.split == 1).astype(np.int64)], axis=1)
    problem = metis_process.MetisProblem(indptr, out, weights, None, 4, 1.05)
    assignment = metis_process.one_constraint(problem, 0, True)
    assert np.bincount(assignment, minlength=4).max() <= 1.3 * 100


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", DataError, "METIS crashed .SIGSEGV."),
        ("os.kill(os.getpid(), signal.SIGKILL)", ResourceError, "ran out of memory"),
        ("sys.exit('Memory')", ResourceError, "ran out of memory"),
        ("sys.exit('wrong input')", DataError, "METIS failed .wrong input."),
        ("", DataError, "METIS returned no parts"),
    ],
)
def test_failures_are_sentences(monkeypatch, tmp_path, code, kind, message):
    process = tmp_path / "metis.py"
    process.write_text(f"import os, signal, sys\n{code}\n")
    monkeypatch.setattr(metis_call, "_PROCESS", process)
    with pytest.raises(kind, match=message):
        partition_graph(random_graph(), 2, "metis", seed=0)


@pytest.mark.parametrize("parts", [4, 7])
@pytest.mark.parametrize("tolerance", [1.01, 1.3])
def test_the_tolerance_reaches_metis_through_every_bisection(parts, tolerance):
    for recursive in (True, False):
        allowed = metis_process.allowed_imbalance(tolerance, parts, recursive)
        bisections = 3 if parts == 7 else 2
        assert allowed ** (bisections if recursive else 1) == pytest.approx(tolerance)
