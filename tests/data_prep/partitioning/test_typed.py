"""Typed graphs are cut by their union graph: by every method, with the edges of all relations counted."""

import numpy as np
import pytest

from data_prep.partitioning.method_registry import METHODS
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.union_graph import union_of
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify
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
