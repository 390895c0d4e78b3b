"""What every partition method promises, on plain and on odd graphs."""

import numpy as np
import pytest

from data_prep.cut import METHODS, cut
from leapmpi.errors import ConfigError, DataError
from tests.dataset.graphs import communities, from_edges, from_lists, random_graph

N = 24
GRAPHS = {
    "isolated": from_lists([[]] * N),
    "star": from_edges(N, [(0, v) for v in range(1, N)]),
    "path": from_edges(N, [(v, v + 1) for v in range(N - 1)]),
    "two components": from_edges(N, [(v, v + 1) for v in range(N - 1) if v != N // 2 - 1]),
    "clique": from_edges(N, [(u, v) for u in range(N) for v in range(u)]),
    "one-way path": from_lists([[]] + [[v] for v in range(N - 1)]),
    "training": from_edges(N, [(v, v + 1) for v in range(N - 1)], split=(np.arange(N) < 6).astype(np.int8)),
}


@pytest.mark.parametrize("parts", [1, 2, 3, 4, N - 1, N])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("method", ["metis", "random", "contiguous"])
def test_no_part_is_empty_and_sizes_are_balanced(method, name, parts):
    result = cut(GRAPHS[name], parts, method, seed=0)
    assert result.assignment.dtype == np.int32
    assert result.vertices.sum() == N
    assert result.vertices.min() >= 1
    assert result.vertices.max() <= max(-(-N // parts), 1.05 * N / parts)


@pytest.mark.parametrize("name", GRAPHS)
def test_hash_uses_all_parts_or_is_refused(name):
    for parts in (1, 2, 3):
        assert cut(GRAPHS[name], parts, "hash", seed=0).vertices.min() >= 1
    with pytest.raises(DataError, match=r"leaves part .* without vertices"):
        cut(GRAPHS[name], N, "hash", seed=0)


@pytest.mark.parametrize("method", ["metis", "hash", "random", "contiguous"])
def test_same_seed_same_cut(method):
    graph = communities()
    first = cut(graph, 5, method, seed=3).assignment
    np.testing.assert_array_equal(first, cut(graph, 5, method, seed=3).assignment)
    if method in ("hash", "random"):
        assert (first != cut(graph, 5, method, seed=4).assignment).any()


def test_hash_depends_on_the_original_id_only():
    graph = random_graph()
    every = from_lists([[]] * 180)
    whole = cut(every, 3, "hash", seed=2).assignment
    np.testing.assert_array_equal(cut(graph, 3, "hash", seed=2).assignment, whole[graph.original_id])


def test_random_balances_training_vertices_to_one():
    result = cut(communities(403), 7, "random", seed=0)
    assert np.ptp(result.vertices) <= 1
    assert np.ptp(result.training) <= 1


def test_figures_are_counted_from_the_edges():
    graph = random_graph()
    for method in METHODS.names():
        result = cut(graph, 4, method, seed=0)
        head = np.repeat(np.arange(60), np.diff(graph.indptr))
        crossing = result.assignment[head] != result.assignment[graph.indices]
        assert result.figures()["edge_cut"] == crossing.sum()
        assert result.figures()["edge_cut_share"] == crossing.mean()
        np.testing.assert_array_equal(result.edges, np.bincount(result.assignment[head], minlength=4))
        np.testing.assert_array_equal(result.edges_cut, np.bincount(result.assignment[head[crossing]], minlength=4))
        training = np.bincount(result.assignment[graph.split == 1], minlength=4)
        np.testing.assert_array_equal(result.training, training)


@pytest.mark.parametrize(
    ("parts", "method", "seed", "message"),
    [
        (61, "metis", 0, "--parts is 61, but the graph has only 60 vertices"),
        (0, "metis", 0, "--parts is 0"),
        (2, "metsi", 0, "did you mean 'metis'"),
        (2, "random", -1, "--seed is -1"),
    ],
)
def test_impossible_requests(parts, method, seed, message):
    with pytest.raises(ConfigError, match=message):
        cut(random_graph(), parts, method, seed)
