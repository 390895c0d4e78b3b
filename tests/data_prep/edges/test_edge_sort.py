"""Sorting edges outside memory: every way through it gives what sets give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.edges import edge_keys
from data_prep.edges.edge_sort import EdgeSorter
from data_prep.edges.edge_stream import EdgeStream
from data_prep.edges.sorted_edges import sort_edges
from data_prep.workspace import Workspace
from leapmpi.errors import DataError
from tests.data_prep.edges.test_components import SOME_EDGES, as_edges, plain


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("work"), 2**30, threads=2)


def small_sorter(workspace, vertices, directed, edges_held, keys_held):
    """A sorter that can hold next to nothing, so that edges go to files and buckets are taken in groups of rows."""
    sorter = EdgeSorter(vertices, directed=directed, name="edges", workspace=workspace)
    sorter._most_edges, sorter._most_keys = edges_held, keys_held
    return sorter


@settings(deadline=None)
@given(SOME_EDGES, st.booleans(), st.integers(1, 9), st.integers(1, 60), st.integers(1, 7))
def test_files_and_groups_change_nothing(workspace, graph, directed, edges_held, keys_held, chunk):
    vertices, pairs = graph
    edges = as_edges(pairs)
    sorter = small_sorter(workspace, vertices, directed, edges_held, keys_held)
    for start in range(0, len(pairs), chunk):
        sorter.add(edges[:, start : start + chunk])
    found, counts = sorter.finish()
    rows, expected = plain(pairs, vertices, directed)
    assert [found.indices[found.indptr[v] : found.indptr[v + 1]].tolist() for v in range(vertices)] == rows
    assert (counts.read, counts.loops, counts.duplicates, counts.reverse_added, counts.written) == expected


def test_many_buckets_and_a_hub(workspace):
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 5000, (2, 40_000))
    edges[0, ::3] = 17  # a row far beyond what is held at once, with repeats
    wanted = {(s, d) for s, d in edges.T.tolist() if s != d}
    wanted |= {(d, s) for s, d in wanted}
    sorter = small_sorter(workspace, 5000, False, 6000, 300)
    for start in range(0, edges.shape[1], 1000):
        sorter.add(edges[:, start : start + 1000])
    found, counts = sorter.finish()
    row = np.repeat(np.arange(5000), np.diff(found.indptr))
    assert found.indices.dtype == np.int32
    assert set(zip(found.indices.tolist(), row.tolist(), strict=True)) == wanted
    assert counts.written == len(wanted)
    assert (np.diff(found.indices)[row[1:] == row[:-1]] > 0).all()


def test_keys_of_ids_beyond_32_bits():
    """Ids of a graph with 2**40 vertices, in one of its buckets, keep all their bits."""
    bits, first = 40, 2**39
    rng = np.random.default_rng(2)
    edges = np.stack([rng.integers(0, 2**40, 500), first + rng.integers(0, 4, 500)])
    bucket_bits = min(bits - 9, 64 - bits - 1)
    local = edges - np.array([[0], [first]])
    local[0] |= 2**38  # no loops, and no bucket but the first
    keys, count = np.empty(500, np.uint64), np.zeros(1, np.int64)
    assert edge_keys.count_keys(*local, 0, 1 << bits, bucket_bits, True, count) == 0
    assert count.tolist() == [500]
    edge_keys.scatter_keys(*local, 0, 1 << bits, bucket_bits, bits + 1, True, np.zeros(1, np.int64), keys)
    bounds, columns = np.zeros(5, np.int64), np.empty(500, np.uint64)
    written, distinct = edge_keys.sort_rows(keys, bits + 1, 0, bounds, columns)
    assert written == distinct == len(set(map(tuple, local.T.tolist())))
    for row in range(4):
        expected = sorted(set(local[0, local[1] == row].tolist()))
        assert columns[bounds[row] : bounds[row + 1]].tolist() == expected


def test_bad_id_in_a_later_chunk_is_named_by_its_number(workspace):
    sorter = small_sorter(workspace, 4, False, 3, 100)
    sorter.add(np.array([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]))
    with pytest.raises(DataError, match=r"edges: edge 6 \(counted from 0\): its source 9 is out of range"):
        sorter.add(np.array([[1, 9], [0, 0]]))


@given(st.lists(st.tuples(st.integers(0, 10**17), st.integers(0, 10**17)), min_size=1, max_size=30))
def test_any_ids_are_numbered_in_their_order(workspace, pairs):
    stream = EdgeStream(lambda: (as_edges(pairs[i : i + 4]) for i in range(0, len(pairs), 4)))
    seen = []

    def vertices(largest, count):
        seen.append((largest, count))
        return largest + 1

    adjacency, _, numbered = sort_edges(
        stream, vertices, compact=True, directed=True, name="edges", workspace=workspace
    )
    ids = sorted({end for pair in pairs for end in pair})
    assert seen == [(len(ids) - 1, len(pairs))]
    assert numbered is None if ids == list(range(len(ids))) else numbered.tolist() == ids
    rows, _ = plain([(ids.index(s), ids.index(d)) for s, d in pairs], len(ids), True)
    indptr, indices = adjacency.indptr, adjacency.indices
    assert [indices[indptr[v] : indptr[v + 1]].tolist() for v in range(len(ids))] == rows
