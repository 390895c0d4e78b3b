"""--split-edges: what is held back, that it is kept apart, and that files hold it."""

from dataclasses import replace

import numpy as np
import pytest

from data_prep.assembly.split_edges import parse_shares, split_edges
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.graph import Graph, content_uuid
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import ConfigError, DataError

pytestmark = pytest.mark.compiles


@pytest.fixture(scope="module")
def whole() -> Graph:
    """300 vertices, edges both ways."""
    ends = np.random.default_rng(1).integers(0, 300, (3000, 2))
    ends = np.unique(np.concatenate([ends, ends[:, ::-1]])[:, ::-1], axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]  # destination, source
    indptr = np.concatenate([[0], np.cumsum(np.bincount(ends[:, 0], minlength=300))])
    return Graph(
        indptr, ends[:, 1].astype(np.int32), original_id=np.arange(300) * 2 + 1, attributes={"directed": False}
    )


def undirected(graph: Graph, edges: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(each) for each in np.sort(graph.original_id[edges], axis=1).tolist()}


def of_topology(graph: Graph) -> set[tuple[int, ...]]:
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return undirected(graph, np.stack([graph.indices, destination], axis=1))


def test_both_directions_stay_in_one_split_and_nothing_is_lost(whole):
    graph = split_edges(whole, (0.7, 0.2, 0.1), 3)
    train, val, test = of_topology(graph), *(undirected(graph, each) for each in vars(graph.edge_splits).values())
    assert train | val | test == of_topology(whole)
    assert len(train) + len(val) + len(test) == len(of_topology(whole))
    assert (graph.edges, len(graph.edge_splits.val)) == (2 * len(train), len(val))
    assert abs(len(val) / len(of_topology(whole)) - 0.2) < 0.03
    assert split_edges(whole, (0.7, 0.2, 0.1), 4).edges != graph.edges
    with pytest.raises(DataError, match="split already"):
        split_edges(graph, (0.7, 0.2, 0.1), 3)


def test_edges_of_a_directed_graph_go_one_by_one(whole):
    graph = split_edges(replace(whole, attributes={"directed": True}), (0.7, 0.2, 0.1), 3)
    held_back = sum(len(each) for each in vars(graph.edge_splits).values())
    assert graph.edges + held_back == whole.edges


def test_training_edges_keep_what_they_carry(whole):
    source, destination = whole.indices, np.repeat(np.arange(300), np.diff(whole.indptr))
    code = source * 300 + destination
    data = EdgeData(code.astype(np.float32), np.stack([code, -code], axis=1), code.astype(np.int64))
    graph = split_edges(replace(whole, edge_data=data), (0.7, 0.2, 0.1), 3)
    code = graph.indices * 300 + np.repeat(np.arange(300), np.diff(graph.indptr))
    np.testing.assert_array_equal(graph.edge_data.weight, code)
    np.testing.assert_array_equal(graph.edge_data.features, np.stack([code, -code], axis=1))
    np.testing.assert_array_equal(graph.edge_data.time, code)


def test_files_and_every_partition_hold_the_same_splits(whole, tmp_path):
    graph = split_edges(whole, (0.7, 0.2, 0.1), 3)
    write_graph(tmp_path / "graph.h5", graph)
    opened = verify_graph(tmp_path / "graph.h5")
    assert opened.uuid == content_uuid(graph) != content_uuid(replace(graph, edge_splits=None))
    assert opened.describe()["val_edges"] == len(graph.edge_splits.val)
    for parts in (1, 3):
        assignment = np.arange(300) % parts
        write_dataset(tmp_path / f"{parts}", opened, assignment, parts, method="hash", figures={}, seed=0)
        dataset = open_dataset(tmp_path / f"{parts}")
        verify(dataset)
        original = load_topology(dataset).original_id
        for name, edges in vars(graph.edge_splits).items():
            assert np.array_equal(original[getattr(dataset.edge_splits, name)], graph.original_id[edges])


def test_an_edge_that_training_would_see_is_found(whole, tmp_path):
    source, destination = int(whole.indices[0]), int(np.searchsorted(whole.indptr, 0, side="right") - 1)
    none = np.empty((0, 2), np.int64)
    for edge in ((source, destination), (destination, source)):
        leaky = replace(whole, edge_splits=EdgeSplits(none, np.array([edge])))
        write_graph(tmp_path / "leaky.h5", leaky, overwrite=True)
        with pytest.raises(DataError, match="training would see it"):
            verify_graph(tmp_path / "leaky.h5")
        write_dataset(
            tmp_path / "data", leaky, np.arange(300) % 2, 2, method="hash", figures={}, seed=0, overwrite=True
        )
        with pytest.raises(DataError, match="training would see it"):
            verify(open_dataset(tmp_path / "data"))


@pytest.mark.parametrize("text", ["0.8,0.1", "0.8,0.1,0.2", "0,0.5,0.5", "a,b,c", "1.2,-0.1,-0.1", "nan,0.5,0.5"])
def test_shares_that_are_none_are_refused(text):
    with pytest.raises(ConfigError, match="add up to 1"):
        parse_shares(text)
