"""METIS: quality, balance of training vertices, and its failures as sentences."""

import numpy as np
import pytest

from data_prep.partitioning.multilevel import metis_call, metis_process
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.undirected import Undirected
from leapmpi.errors import DataError, ResourceError
from tests.support.graphs import communities, random_graph


def neighbours_of(graph):
    undirected = Undirected(graph)
    out = np.empty(undirected.edges, np.int64)
    undirected.fill(out)
    return undirected.indptr, out


def test_communities_are_found():
    graph = communities()
    found = partition_graph(graph, PartitionRequest((8,), "metis", seed=0))
    assert found.figures()["edge_cut_share"] < 0.2
    assert (
        found.figures()["edge_cut"]
        < partition_graph(graph, PartitionRequest((8,), "random", seed=0)).figures()["edge_cut"] / 3
    )


def test_training_vertices_are_balanced_where_they_cluster():
    graph = communities()
    graph.split = (np.arange(400) < 100).astype(np.int8)
    found = partition_graph(graph, PartitionRequest((4,), "metis", seed=0))
    assert found.training.max() <= 1.05 * 25
    assert found.vertices.max() <= 1.05 * 100


def test_one_constraint_fallback_balances_both():
    graph = communities()
    indptr, out = neighbours_of(graph)
    weights = np.stack([np.ones(400, np.int64), (graph.split == 1).astype(np.int64)], axis=1)
    arrays = metis_process.MetisArrays(indptr, out, weights, np.empty(0, np.int64), np.empty((1, 400), np.int64))
    assignment = metis_process.one_constraint(arrays, 4, 0, True)
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
        partition_graph(random_graph(), PartitionRequest((2,), "metis", seed=0))


@pytest.mark.parametrize("parts", [4, 7])
@pytest.mark.parametrize("tolerance", [1.01, 1.3])
def test_the_tolerance_reaches_metis_through_every_bisection(parts, tolerance):
    for recursive in (True, False):
        allowed = metis_process.allowed_imbalance(tolerance, parts, recursive)
        bisections = 3 if parts == 7 else 2
        assert allowed ** (bisections if recursive else 1) == pytest.approx(tolerance)


def test_seeds_0_and_1_are_two():
    graph = communities(800, groups=16)
    cuts = [partition_graph(graph, PartitionRequest((7,), "metis", seed=seed)).assignment for seed in (0, 1)]
    assert (cuts[0] != cuts[1]).any()
