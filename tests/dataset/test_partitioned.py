"""Partitioned datasets: contents, order, identity, and what is refused on writing."""

import h5py
import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.sparse_features import from_entries
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify
from leapmpi.errors import DataError
from tests.support.graphs import from_lists, random_graph

pytestmark = pytest.mark.compiles


def write(folder, graph, assignment, parts, **options):
    write_dataset(folder, graph, np.asarray(assignment), parts, method="test", figures={}, seed=0, **options)
    return open_dataset(folder)


@pytest.mark.parametrize("parts", [1, 2, 7, 60])
@pytest.mark.parametrize("kind", [{}, {"multilabel": True}, {"half": True}])
def test_every_vertex_keeps_its_data(tmp_path, parts, kind):
    graph = random_graph(**kind)
    dataset = write(tmp_path / "d", graph, np.random.default_rng(1).permutation(60) % parts, parts)
    verify(dataset)
    assert dataset.graph_uuid == content_uuid(graph)
    row_of = {int(original): row for row, original in enumerate(graph.original_id)}
    for p in range(parts):
        part = dataset.part(p)
        rows = [row_of[int(original)] for original in part.original_id]
        assert rows == sorted(rows)
        assert len(rows) == dataset.offsets[p + 1] - dataset.offsets[p]
        for name in ("features", "labels", "split"):
            assert getattr(part, name).dtype == getattr(graph, name).dtype
            np.testing.assert_array_equal(getattr(part, name), getattr(graph, name)[rows])


@pytest.mark.parametrize("parts", [1, 3])
def test_topology_is_the_graph_in_new_numbers(tmp_path, graph, parts):
    topology = load_topology(write(tmp_path / "d", graph, np.arange(60) * 7 % parts, parts))
    assert topology.indices.dtype == np.int32
    for v in range(60):
        new = int(np.flatnonzero(topology.original_id == graph.original_id[v])[0])
        neighbours = topology.indices[topology.indptr[new] : topology.indptr[new + 1]]
        expected = graph.original_id[graph.indices[graph.indptr[v] : graph.indptr[v + 1]]]
        np.testing.assert_array_equal(topology.original_id[neighbours], expected)


def test_splits_are_ordered_by_original_id(folder, graph):
    dataset = open_dataset(folder)
    original = load_topology(dataset).original_id
    for code, name in ((1, "train"), (2, "val"), (3, "test")):
        expected = graph.original_id[graph.split == code]
        np.testing.assert_array_equal(original[getattr(dataset.splits, name)], expected)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("block_bytes", [100, 1 << 20])
def test_vertices_in_another_order_keep_their_data(tmp_path, graph, parts, block_bytes):
    graph.edge_data = EdgeData(np.random.default_rng(2).random(graph.edges).astype(np.float32), None, None)
    order, cut = np.random.default_rng(1).permutation(60), np.arange(60) * 7 % parts
    dataset = write(tmp_path / "d", graph, cut, parts, communities=order, block_bytes=block_bytes)
    verify(dataset)
    assert (dataset.vertex_order, dataset.describe()["vertex_order"]) == ("communities", "communities")
    assert dataset.attributes["format_version"] == 6
    topology = load_topology(dataset, True)
    for p in range(parts):
        part, rows = dataset.part(p), order[cut[order] == p]
        np.testing.assert_array_equal(part.original_id, graph.original_id[rows])
        np.testing.assert_array_equal(part.features, graph.features[rows])
        for v, new in zip(rows, range(*dataset.offsets[p : p + 2]), strict=True):
            mine, theirs = slice(*topology.indptr[new : new + 2]), slice(*graph.indptr[v : v + 2])
            np.testing.assert_array_equal(
                topology.original_id[topology.indices[mine]], graph.original_id[graph.indices[theirs]]
            )
            np.testing.assert_array_equal(topology.edge_weight[mine], graph.edge_data.weight[theirs])
    np.testing.assert_array_equal(topology.original_id[dataset.splits.train], graph.original_id[graph.split == 1])


def test_a_vertex_that_stands_twice_is_found_in_any_order(tmp_path, graph):
    dataset = write(tmp_path / "d", graph, np.zeros(60, np.int32), 1, communities=np.arange(60)[::-1])
    twice = int(dataset.part(0).original_id[3])
    with h5py.File(dataset.part_path(0), "r+") as file:
        file["original_id"][7] = twice
    with pytest.raises(DataError, match=rf"part-00000.h5: original_id {twice} stands in two rows"):
        verify(open_dataset(tmp_path / "d"))


def test_the_order_of_the_source_needs_no_new_version(folder):
    dataset = open_dataset(folder)
    assert (dataset.vertex_order, dataset.attributes["format_version"]) == ("source", 1)


def test_sparse_features_in_another_order(tmp_path, graph):
    row, column = np.nonzero(np.random.default_rng(3).random(graph.features.shape) < 0.3)
    graph.features = from_entries(row, column, np.ones(len(row), np.float32), graph.features.shape)
    order = np.arange(60)[::-1]
    dataset = write(tmp_path / "d", graph, np.zeros(60, np.int32), 1, communities=order)
    verify(dataset)
    np.testing.assert_array_equal(dataset.part(0).sparse_features.dense(), graph.features.dense()[order])


def test_same_partition_same_uuid(tmp_path, graph):
    first = write(tmp_path / "a", graph, np.arange(60) % 3, 3)
    again = write(tmp_path / "b", graph, np.arange(60) % 3, 3)
    other = write(tmp_path / "c", graph, np.arange(60) % 4, 4)
    assert first.uuid == again.uuid != other.uuid
    assert first.graph_uuid == other.graph_uuid


def test_graph_without_anything_and_without_edges(tmp_path):
    dataset = write(tmp_path / "d", from_lists([[], [], []]), [0, 1, 0], 2)
    verify(dataset)
    part = dataset.part(1)
    assert (part.features, part.labels, part.split, len(part.indices)) == (None, None, None, 0)
    assert len(dataset.splits.train) == 0


def test_attributes_of_the_graph_and_of_the_cut(tmp_path, graph):
    write_dataset(
        tmp_path / "d",
        graph,
        np.arange(60) % 2,
        2,
        method="even",
        figures={"vertex_balance": 1.0},
        seed=5,
        command="me",
    )
    found = open_dataset(tmp_path / "d").attributes
    expected = {"method": "even", "vertex_balance": 1.0, "seed": 5, "command": "me", "graph_command": "none"}
    assert expected.items() <= found.items()
    assert (found["source"], found["scale"], found["directed"]) == ("a test", 0.5, True)


def test_describe(folder, graph):
    description = open_dataset(folder).describe()
    assert description["splits"]["train"] == (graph.split == 1).sum()
    assert sum(row["train"] for row in description["part_list"]) == description["splits"]["train"]
    assert [row["vertices"] for row in description["part_list"]] == [12, 12, 36]


@pytest.mark.parametrize(
    ("assignment", "parts", "message"),
    [
        (np.zeros(60, int), 2, "part 1 has no vertices"),
        (np.arange(60) % 3, 2, "vertex 2 was assigned to part 2"),
        (np.arange(59) % 2, 2, "cannot cut"),
    ],
)
def test_bad_assignments(tmp_path, graph, assignment, parts, message):
    with pytest.raises(DataError, match=message):
        write(tmp_path / "d", graph, assignment, parts)
    assert list(tmp_path.iterdir()) == []


def test_only_datasets_and_empty_folders_are_replaced(folder, graph):
    assignment = np.zeros(60, int)
    with pytest.raises(DataError, match="--overwrite"):
        write(folder, graph, assignment, 1)
    assert open_dataset(folder).parts == 3
    write(folder, graph, assignment, 1, overwrite=True)
    assert sorted(item.name for item in folder.iterdir()) == ["dataset.h5", "part-00000.h5"]
    (folder / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match=r"also holds thesis\.txt"):
        write(folder, graph, assignment, 1, overwrite=True)
    assert (folder / "thesis.txt").read_text() == "mine"
    empty = folder.parent / "empty"
    empty.mkdir()
    write(empty, graph, assignment, 1)
    with pytest.raises(DataError, match="is a file"):
        write(folder / "thesis.txt", graph, assignment, 1, overwrite=True)
