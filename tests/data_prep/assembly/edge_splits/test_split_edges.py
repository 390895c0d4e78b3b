"""--split-edges: what is held back, that it is kept apart, and that files hold it."""

from dataclasses import replace

import numpy as np
import pytest

from data_prep.assembly.edge_splits.split_edges import parse_shares, requested_split, split_edges
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
    train, val, test = of_topology(graph), *(undirected(graph, each) for each in graph.edge_splits.arrays().values())
    assert train | val | test == of_topology(whole)
    assert len(train) + len(val) + len(test) == len(of_topology(whole))
    assert (graph.edges, len(graph.edge_splits.val)) == (2 * len(train), len(val))
    assert abs(len(val) / len(of_topology(whole)) - 0.2) < 0.03
    assert split_edges(whole, (0.7, 0.2, 0.1), 4).edges != graph.edges
    with pytest.raises(DataError, match="split already"):
        split_edges(graph, (0.7, 0.2, 0.1), 3)


def test_edges_of_a_directed_graph_go_one_by_one(whole):
    graph = split_edges(replace(whole, attributes={"directed": True}), (0.7, 0.2, 0.1), 3)
    held_back = sum(len(each) for each in graph.edge_splits.arrays().values())
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
        for name, edges in graph.edge_splits.arrays().items():
            assert np.array_equal(original[dataset.edge_splits.arrays()[name]], graph.original_id[edges])


def ends_of(graph: Graph) -> np.ndarray:
    """int64[edges, 2]: original ids of source and destination."""
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    return graph.original_id[np.stack([graph.indices, destination], axis=1)]


def carrying(whole: Graph, time: np.ndarray | None = None) -> Graph:
    """`whole`, whose edges carry what tells their ends, and times."""
    source, destination = ends_of(whole).T
    rows = np.stack([source, destination, source * destination], axis=1).astype(np.int64)
    return replace(whole, edge_data=EdgeData((source + 1000 * destination).astype(np.float32), rows, time))


@pytest.mark.parametrize("blocks", ["one block", "many blocks"])
def test_what_edges_carry_stays_with_them(whole, tmp_path, monkeypatch, blocks):
    if blocks == "many blocks":
        monkeypatch.setattr("data_prep.assembly.edge_splits.split_edges._BLOCK", 4000)
        monkeypatch.setattr("data_prep.assembly.edge_splits.split_times._BLOCK", 4000)
    time = np.random.default_rng(2).integers(0, 50, whole.edges)
    for by in ("hash", "time"):
        graph = split_edges(carrying(whole, time), (0.7, 0.2, 0.1), 3, by=by)
        source, destination = ends_of(graph).T
        assert np.array_equal(graph.edge_data.weight, (source + 1000 * destination).astype(np.float32))
        assert np.array_equal(graph.edge_data.features[:, 2], source * destination)
        assert graph.edges < whole.edges
        assert graph.edge_data.time.shape == (graph.edges,)

        # Written, read and cut.
        write_graph(tmp_path / f"{by}.h5", graph)
        opened = verify_graph(tmp_path / f"{by}.h5")
        write_dataset(tmp_path / by, opened, np.arange(300) % 3, 3, method="hash", figures={}, seed=0)
        verify(open_dataset(tmp_path / by))


def by_pair(whole: Graph, time: np.ndarray) -> dict[tuple[int, ...], int]:
    """By unordered pair of original ids, the earlier time of its directions."""
    found: dict[tuple[int, ...], int] = {}
    for pair, each in zip(np.sort(ends_of(whole), axis=1).tolist(), time.tolist(), strict=True):
        found[tuple(pair)] = min(each, found.get(tuple(pair), each))
    return found


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_the_oldest_edges_train_and_the_newest_test(whole, directed, dtype):
    # Both directions have times of their own, many of them equal.
    time = np.random.default_rng(5).integers(-20, 20, whole.edges).astype(dtype)
    source = replace(carrying(whole, time), attributes={"directed": directed})
    graph, times = split_edges(source, (0.7, 0.2, 0.1), 3), by_pair(whole, time)
    sets = [of_topology(graph), *(undirected(graph, each) for each in graph.edge_splits.arrays().values())]
    train, val, test = ([times[pair] for pair in found] for found in sets)
    assert max(train) < min(val) <= max(val) < min(test)
    assert sum(map(len, sets)) == len(times)
    held_back = [len(each) / whole.edges * (1 if directed else 2) for each in graph.edge_splits.arrays().values()]
    assert held_back == pytest.approx([0.2, 0.1], abs=0.04)
    assert f"by time: training up to {max(train)}" in graph.attributes["edge_split_origin"]


def test_shares_are_met_as_nearly_as_equal_times_allow(whole):
    pairs = by_pair(whole, np.arange(whole.edges))
    # Years of 60, 25 and 15 hundredths of the pairs.
    rank = {pair: number / len(pairs) for number, pair in enumerate(pairs)}
    year = np.array(
        [(rank[tuple(pair)] > 0.6) + (rank[tuple(pair)] > 0.85) for pair in np.sort(ends_of(whole), axis=1)]
    )
    for shares in ((0.7, 0.15, 0.15), (0.55, 0.25, 0.2)):
        graph = split_edges(carrying(whole, 2000 + year), shares, 0)
        assert "training up to 2000, validation up to 2001" in graph.attributes["edge_split_origin"]
    both = split_edges(carrying(whole, 2000 + year), (0.8, 0, 0.2), 0)
    assert [len(each) for each in both.edge_splits.arrays().values()] == [0, (year == 2).sum() // 2]
    with pytest.raises(DataError, match=r"by time leaves no validation edge: .* --split-edges-by hash"):
        split_edges(carrying(whole, 2000 + year), (0.6, 0.01, 0.39), 0)
    with pytest.raises(DataError, match="by time leaves no"):
        split_edges(carrying(whole, np.full(whole.edges, 7)), (0.8, 0.1, 0.1), 0)


def test_a_split_by_time_that_cannot_be_is_refused(whole):
    with pytest.raises(ConfigError, match="edges of this graph have no times"):
        split_edges(whole, (0.8, 0.1, 0.1), 0, by="time")
    with pytest.raises(ConfigError, match="nothing is split without --split-edges"):
        requested_split(None, None, "time")


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
