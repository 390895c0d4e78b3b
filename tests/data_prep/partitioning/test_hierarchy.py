"""Parts within groups of parts: numbers, caps, and a cut that is small at each level."""

import numpy as np
import pytest

from data_prep.cli import main
from data_prep.partitioning import partition_graph as partition_graph_module
from data_prep.partitioning import subgraph
from data_prep.partitioning.methods import metis
from data_prep.partitioning.partition_graph import partition_graph
from data_prep.partitioning.quality_report import report_on
from data_prep.partitioning.request import PartitionRequest, parse_hierarchy
from data_prep.workspace import INTERPRETER_BYTES
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.errors import ConfigError, ResourceError
from tests.support.graphs import communities, from_edges, random_graph


@pytest.mark.parametrize("method", ["metis", "ldg", "hash"])
@pytest.mark.parametrize("levels", [(4, 4), (2, 2, 3), (1, 5), (3, 1)])
def test_groups_are_cut_by_themselves(method, levels):
    graph = communities(800, groups=16)
    found = partition_graph(graph, PartitionRequest(levels, method, 0, tolerance=1.1))
    parts = int(np.prod(levels))
    assert found.vertices.min() > 0
    assert len(found.vertices) == parts
    assert found.method == method
    assert found.vertices.max() <= 1.1 * 800 / parts
    assert found.training.max() <= max(-(-80 // parts), 1.1 * 80 / parts)
    if method != "hash":
        first = partition_graph(
            graph, PartitionRequest((levels[0],), method, 0, tolerance=1.1 ** (1 / len(levels)))
        ).assignment
        np.testing.assert_array_equal(found.assignment * levels[0] // parts, first)


def test_nodes_get_the_cut_that_was_made_for_them():
    graph = communities(800, groups=16)
    found = partition_graph(graph, PartitionRequest((4, 4), "metis", 0))
    shares = report_on(graph, found.assignment, 16, None).on_ranks
    assert shares[4] <= 1.1 * partition_graph(graph, PartitionRequest((4,), "metis", 0)).figures()["edge_cut_share"]
    assert list(shares) == [2, 4, 8, 16]
    assert sorted(shares.values()) == list(shares.values())


def test_groups_do_not_depend_on_how_many_rows_are_taken_at_a_time(monkeypatch):
    graph = communities(800, groups=16)
    found = partition_graph(graph, PartitionRequest((2, 2, 3), "ldg", 0)).assignment
    monkeypatch.setattr(subgraph, "_ENTRIES", 5)
    np.testing.assert_array_equal(partition_graph(graph, PartitionRequest((2, 2, 3), "ldg", 0)).assignment, found)


def test_memory_is_what_the_outer_levels_leave(monkeypatch):
    graph = communities(800, groups=16)
    needed = metis.memory_needed(graph) + INTERPRETER_BYTES
    with pytest.raises(ResourceError, match="method metis needs"):
        partition_graph(graph, PartitionRequest((2, 2), "metis", 0, memory=needed - 1))
    assert partition_graph(graph, PartitionRequest((2, 2), "metis", 0, memory=needed)).vertices.min() > 0
    monkeypatch.setattr(partition_graph_module, "_BYTES_PER_VERTEX", needed // graph.vertices)
    with pytest.raises(ResourceError, match="method metis needs"):
        partition_graph(graph, PartitionRequest((2, 2), "metis", 0, memory=needed))


def test_as_many_parts_as_vertices():
    path = from_edges(24, [(v, v + 1) for v in range(23)])
    assert partition_graph(path, PartitionRequest((4, 6), "ldg", 0)).vertices.tolist() == [1] * 24


@pytest.mark.parametrize("text", ["4", "4x", "x4", "0x4", "4 x 4", "4x-1"])
def test_texts_that_are_no_hierarchy(text):
    with pytest.raises(ConfigError, match="such as 4x16"):
        parse_hierarchy(text)


def test_the_command(capsys, tmp_path):
    write_graph(tmp_path / "graph.h5", random_graph())
    words = ["partition", str(tmp_path / "graph.h5"), str(tmp_path / "data")]
    assert main([*words, "--hierarchy", "2x3", "--method", "ldg"]) == 0
    dataset = open_dataset(tmp_path / "data")
    assert (dataset.parts, dataset.attributes["hierarchy"]) == (6, "2x3")
    for more in ([], ["--parts", "2", "--hierarchy", "2x3"]):
        assert main([*words, *more]) == 2
        assert "give either --parts N or --hierarchy AxB" in capsys.readouterr().err
