"""GREM: its cut beside METIS's, streamed or held, and that neither threads nor direction change the result."""

import numpy as np
import pytest

from data_prep.partitioning.methods import grem
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.errors import ConfigError, ResourceError
from tests.support.graphs import communities, from_edges

GRAPH = communities(4000, groups=80)


@pytest.fixture(params=["held", "streamed"])
def path(request, monkeypatch):
    if request.param == "streamed":
        monkeypatch.setattr(grem, "HELD", 0)


@pytest.mark.usefixtures("path")
def test_cuts_no_more_than_metis():
    metis = partition_graph(GRAPH, PartitionRequest((4,), "metis", seed=0, tolerance=1.03))
    found = partition_graph(GRAPH, PartitionRequest((4,), "grem", seed=0, tolerance=1.03, chunk=0.01))
    assert found.edges_cut.sum() <= 1.05 * metis.edges_cut.sum()
    assert found.vertices.max() <= 1.03 * 1000
    assert found.training.max() <= 1.03 * 100


@pytest.mark.usefixtures("path")
def test_threads_do_not_change_the_cut():
    found = [
        partition_graph(GRAPH, PartitionRequest((5,), "grem", seed=2, threads=threads)).assignment for threads in (1, 2)
    ]
    np.testing.assert_array_equal(*found)


def test_direction_does_not_count():
    heads = np.repeat(np.arange(4000), np.diff(GRAPH.indptr))
    kept = np.flatnonzero(heads < GRAPH.indices)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(heads[kept], minlength=4000))])
    one_way = Graph(indptr, GRAPH.indices[kept], split=GRAPH.split)
    expected = partition_graph(GRAPH, PartitionRequest((4,), "grem", seed=0)).assignment
    np.testing.assert_array_equal(partition_graph(one_way, PartitionRequest((4,), "grem", seed=0)).assignment, expected)


def test_hubs_that_hold_all_edges_share_a_part():
    rng = np.random.default_rng(0)
    pairs = [(u, v) for u in range(100) for v in rng.integers(0, 100, 20)]
    pairs += [(v, rng.integers(0, 100)) for v in range(100, 400)]
    graph = from_edges(400, pairs)
    found = partition_graph(graph, PartitionRequest((4,), "grem", seed=0))
    assert found.edges_cut.sum() < partition_graph(graph, PartitionRequest((4,), "metis", seed=0)).edges_cut.sum()


def test_a_dense_graph_without_communities_is_cut_as_by_metis(monkeypatch):
    """Its streamed clusters mean nothing, so a cut of clusters alone is bad."""
    monkeypatch.setattr(grem, "HELD", 0)
    rng = np.random.default_rng(0)
    ends = (3000 * rng.random((2, 60_000)) ** 3).astype(int)
    graph = from_edges(3000, ends.T.tolist())
    metis, found = (
        partition_graph(graph, PartitionRequest((8,), method, seed=0, tolerance=1.03)) for method in ("metis", "grem")
    )
    assert found.edges_cut.sum() <= 1.02 * metis.edges_cut.sum()


def test_too_little_memory_is_said():
    with pytest.raises(ResourceError, match=r"method grem needs 0\.\d+ GiB for 4,000 vertices, --max-mem allows 0.10"):
        partition_graph(GRAPH, PartitionRequest((4,), "grem", seed=0, memory=100 << 20))


def test_little_memory_suffices():
    found = partition_graph(GRAPH, PartitionRequest((4,), "grem", seed=0, memory=210 << 20))
    assert found.vertices.max() <= 1050


def test_impossible_tolerance_is_refused():
    with pytest.raises(ConfigError):
        partition_graph(GRAPH, PartitionRequest((4,), "grem", seed=0, tolerance=0.5))
