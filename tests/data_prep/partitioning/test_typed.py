"""Typed graphs are cut by their union graph: by every method, with the edges of all relations counted."""

import numpy as np
import pytest

from data_prep.partitioning.method_registry import METHODS
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.union_graph import union_of
from data_prep.partitioning.vertex_weights import stored_bytes
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify
from leapmpi.errors import ConfigError
from tests.support.graphs import random_graph
from tests.support.typed_graphs import typed_graph

SCHEMA = GraphTypes(
    (VertexType("paper", 120, 3, "float32"), VertexType("author", 80), VertexType("venue", 6)),
    (
        Relation("paper", "cites", "paper"),
        Relation("paper", "extends", "paper"),
        Relation("author", "writes", "paper"),
        Relation("paper", "rev_writes", "author", 2),
        Relation("paper", "in", "venue"),
    ),
    "paper",
)


@pytest.fixture(scope="module")
def graph():
    return typed_graph(SCHEMA, edges=400)


def test_union_graph_joins_each_pair_once(graph):
    union = union_of(graph)
    assert union.edges < graph.edges
    for v in range(graph.vertices):
        row = union.indices[union.indptr[v] : union.indptr[v + 1]].tolist()
        assert row == sorted(set(graph.indices[graph.indptr[v] : graph.indptr[v + 1]].tolist()))
    assert union.types is None


@pytest.mark.parametrize("method", sorted(set(METHODS.names()) - {"given", "auto"}))
def test_every_method_cuts_a_typed_graph(graph, tmp_path, method):
    if method == "kaminpar":
        pytest.importorskip("kaminpar")
    request = PartitionRequest((3,), method, seed=1)
    found = partition_graph(graph, request)
    assert np.array_equal(partition_graph(graph, request).assignment, found.assignment)
    # Edges of all relations count, also those that join the same pair.
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    crossing = found.assignment[graph.indices] != found.assignment[destination]
    assert found.figures()["edge_cut"] == crossing.sum()
    write_dataset(tmp_path / "d", graph, found.assignment, 3, method=method, figures=found.figures(), seed=1)
    verify(open_dataset(tmp_path / "d", typed=True))


@pytest.mark.parametrize("flags", [(), ("--order", "communities"), ("--hierarchy", "2x2"), ("--balance", "edges")])
def test_command(prep, tmp_path, flags):
    write_graph(tmp_path / "g.h5", typed_graph(SCHEMA, edges=400))
    parts = () if "--hierarchy" in flags else ("--parts", 4)
    outcome = prep("partition", tmp_path / "g.h5", tmp_path / "d", "--method", "grem", *parts, *flags)
    assert outcome.code == 0, outcome.error
    assert prep("check", tmp_path / "d").code == 0
    told = prep("info", tmp_path / "d").out
    assert "author:writes:paper" in told
    dataset = open_dataset(tmp_path / "d", typed=True)
    assert [each["vertices"] for each in dataset.describe()["vertex_type_list"]] == [120, 80, 6]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--report",), "is a typed graph, which is not sampled yet"),
        (("--split-edges", "0.8,0.1,0.1"), "the source holds edges back"),
        (("--layout", "columns"), "--layout columns"),
        (("--feature-dtype", "int8"), "TYPE=DTYPE"),
    ],
)
def test_refused_in_one_sentence(prep, tmp_path, flags, message):
    write_graph(tmp_path / "g.h5", typed_graph())
    outcome = prep("partition", tmp_path / "g.h5", tmp_path / "d", "--parts", 2, "--method", "hash", *flags)
    assert outcome.code == 2
    assert message in outcome.error
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("method", ["metis", "grem", "ldg", "reldg", "fennel", "auto"])
def test_each_type_is_balanced_by_itself(graph, method):
    """Papers and authors in balance, and of six venues no part has more than two."""
    request = PartitionRequest((4,), method, balance="types", tolerance=1.05)
    found = partition_graph(graph, request)
    for name, counts in found.types.items():
        total = int(counts.sum())
        assert counts.max() <= max(-(-total // 4), int(1.05 * total / 4)), name
    assert found.training.max() <= max(-(-int(found.training.sum()) // 4), int(1.05 * found.training.sum() / 4))
    assert found.figures()["type_balance"].startswith("paper 1.0")


def test_types_within_groups_of_parts_are_balanced(graph):
    found = partition_graph(graph, PartitionRequest((2, 2), "grem", balance="types"))
    assert found.types["paper"].max() <= 33
    assert found.types["author"].max() <= 23


def test_bytes_count_features_and_edges(graph):
    """Papers have 12 bytes of features, and each edge 5 bytes: source and relation."""
    weights = stored_bytes(graph)
    degree = np.diff(graph.indptr)
    assert weights[:120].tolist() == (12 + 5 * degree[:120]).tolist()
    assert weights[120:].tolist() == (5 * degree[120:]).tolist()
    found = partition_graph(graph, PartitionRequest((3,), "grem", balance="bytes"))
    loads = np.bincount(found.assignment, weights)
    assert loads.max() <= 1.1 * loads.mean()


def test_a_plain_graph_has_no_types_to_balance():
    with pytest.raises(ConfigError, match=r"--balance types .*the graph has no types"):
        partition_graph(random_graph(), PartitionRequest((2,), "grem", balance="types"))


def test_meta_keeps_types_whole(graph):
    found = partition_graph(graph, PartitionRequest((2,), "meta"))
    assert {name: counts.tolist() for name, counts in found.types.items()} == {
        "paper": [120, 0],
        "author": [0, 80],
        "venue": [0, 6],
    }
    with pytest.raises(ConfigError, match="each of 3 types on one part, so that 4 parts are too many"):
        partition_graph(graph, PartitionRequest((4,), "meta"))
    with pytest.raises(ConfigError, match="--method meta: the graph has no types"):
        partition_graph(random_graph(), PartitionRequest((2,), "meta"))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), ()), (("--replicate-below", "8K"), ("paper", "venue")), (("--replicate-below", "0"), ())],
)
def test_small_types_are_recorded_as_replicated(prep, tmp_path, flags, expected):
    """120 papers take 1.4 KB, 6 venues without features 6 KiB, and 80 authors 80 KiB."""
    write_graph(tmp_path / "g.h5", typed_graph(SCHEMA, edges=400))
    assert prep("partition", tmp_path / "g.h5", tmp_path / "d", "--parts", 4, "--method", "hash", *flags).code == 0
    assert open_dataset(tmp_path / "d", typed=True).replicated_types == expected


def test_a_plain_graph_replicates_no_types(prep, tmp_path):
    write_graph(tmp_path / "g.h5", random_graph())
    outcome = prep("partition", tmp_path / "g.h5", tmp_path / "d", "--parts", 2, "--replicate-below", "8K")
    assert (outcome.code, "the graph has no types" in outcome.error) == (2, True)
