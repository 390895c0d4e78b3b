"""Cleaning of edges against sets and scipy: the compiled kernels have to agree with the plain ones."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components

from data_prep.edges.components import components, induced
from data_prep.edges.sorted_edges import sort_edges
from data_prep.workspace import Workspace
from leapmpi.errors import DataError

SOME_EDGES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
)


def plain(pairs, vertices, directed):
    """In-neighbours by vertex, and the counts, by sets."""
    loops = sum(a == b for a, b in pairs)
    arcs = {(a, b) for a, b in pairs if a != b}
    both = arcs if directed else arcs | {(b, a) for a, b in arcs}
    rows = [sorted(a for a, b in both if b == v) for v in range(vertices)]
    return rows, (len(pairs), loops, len(pairs) - loops - len(arcs), len(both) - len(arcs), len(both))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("work"), 2**30, threads=2)


def build(workspace, edges, vertices, *, directed, name="edges"):
    found = sort_edges(edges, vertices, compact=False, directed=directed, name=name, workspace=workspace)
    return found[:2]


def as_edges(pairs):
    return np.array(pairs, np.int64).reshape(-1, 2).T.copy()


@given(SOME_EDGES, st.booleans())
def test_build_agrees_with_sets(workspace, graph, directed):
    vertices, pairs = graph
    found, counts = build(workspace, as_edges(pairs), vertices, directed=directed)
    rows, expected = plain(pairs, vertices, directed)
    assert [found.indices[found.indptr[v] : found.indptr[v + 1]].tolist() for v in range(vertices)] == rows
    assert found.indptr.dtype == np.int64
    assert found.indices.dtype == np.int32
    assert (counts.read, counts.loops, counts.duplicates, counts.reverse_added, counts.written) == expected


@given(SOME_EDGES, st.booleans())
def test_components_agree_with_scipy(workspace, graph, directed):
    vertices, pairs = graph
    found, _ = build(workspace, as_edges(pairs), vertices, directed=directed, name="edges")
    root = components(found, symmetric=not directed).root
    matrix = sp.csr_matrix((np.ones(len(pairs)), as_edges(pairs)), (vertices, vertices))
    _, label = connected_components(matrix, directed=True, connection="weak")
    smallest = np.array([np.flatnonzero(label == own)[0] for own in label])
    np.testing.assert_array_equal(root, smallest)


@given(SOME_EDGES, st.randoms(use_true_random=False))
def test_induced_agrees_with_scipy(workspace, graph, random):
    vertices, pairs = graph
    found, _ = build(workspace, as_edges(pairs), vertices, directed=True, name="edges")
    keep = np.array([random.random() < 0.6 for _ in range(vertices)])
    part = induced(found, keep, workspace)
    matrix = sp.csr_matrix((np.ones(len(found.indices)), found.indices, found.indptr), (vertices, vertices))
    expected = matrix[keep][:, keep]
    np.testing.assert_array_equal(part.indptr, expected.indptr)
    np.testing.assert_array_equal(part.indices, expected.indices)


def test_large_random_graph_agrees_with_scipy(workspace):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 3000, (2, 50_000))
    found, counts = build(workspace, edges, 3000, directed=False, name="edges")
    matrix = sp.csr_matrix((np.ones(50_000), (edges[1], edges[0])), (3000, 3000))
    matrix = matrix + matrix.T
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    np.testing.assert_array_equal(found.indptr, matrix.indptr)
    np.testing.assert_array_equal(found.indices, matrix.indices)
    assert counts.written == matrix.nnz


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([[0, 1], [2, 3]], "list: edge 1 (counted from 0): its destination 3 is out of range"),
        ([[0, -2], [2, 3]], "list: edge 1 (counted from 0): its source -2 is negative"),
    ],
)
def test_first_bad_edge_is_named(workspace, edges, said):
    with pytest.raises(DataError) as caught:
        build(workspace, np.array(edges), 3, directed=False, name="list")
    assert str(caught.value).startswith(said)
