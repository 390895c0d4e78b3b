"""What edges carry lies with them: in the graph file, in parts, in the topology; damage and bad values are named."""

import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import write_graph
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import from_graph, load_topology
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import DataError
from tests.support.graphs import random_graph


def carrying(dtype="f4", time="i8", **fields):
    """A graph whose edges carry numbers that follow from their ends."""
    graph = random_graph(**fields)
    destination = np.repeat(np.arange(graph.vertices), np.diff(graph.indptr))
    source = graph.original_id[graph.indices]
    value = graph.original_id[destination] * 1000 + source
    features = np.stack([value % 1000, value % 7, -value % 11], axis=1).astype(dtype)
    graph.edge_data = EdgeData((value % 97).astype(np.float32), features, value.astype(time))
    return graph


def parts_of(tmp_path, graph, parts=3):
    folder = tmp_path / "d"
    assignment = np.arange(graph.vertices) * 7 % parts
    write_dataset(folder, graph, assignment, parts, method="test", figures={}, seed=0, block_bytes=400)
    return open_dataset(folder)


@pytest.mark.parametrize(("dtype", "time"), [("f4", "i8"), ("f2", "f8"), ("i4", "i8"), ("i8", "f8")])
def test_a_graph_file_keeps_what_edges_carry(tmp_path, dtype, time):
    graph = carrying(dtype, time)
    write_graph(tmp_path / "g.h5", graph)
    again = verify_graph(tmp_path / "g.h5")
    for name, array in graph.edge_data.arrays().items():
        assert again.edge_data.arrays()[name].dtype == array.dtype
        np.testing.assert_array_equal(again.edge_data.arrays()[name], array)
    assert again.uuid == content_uuid(graph)
    shown = again.describe()
    assert (shown["has_edge_weight"], shown["edge_feature_dim"], shown["has_edge_time"]) == (True, 3, True)
    assert shown["format_version" if "format_version" in shown else "edges"]


def test_rows_of_edges_lie_with_the_part_of_their_destination(tmp_path):
    graph = carrying()
    dataset = parts_of(tmp_path, graph)
    verify(dataset)
    topology = load_topology(dataset, weights=True, times=True)
    destination = np.repeat(topology.original_id, np.diff(topology.indptr))
    value = destination * 1000 + topology.original_id[topology.indices]
    np.testing.assert_array_equal(topology.edge_weight, value % 97)
    np.testing.assert_array_equal(topology.edge_time, value)
    features = np.concatenate([dataset.part(part).edge_data.features for part in range(3)])
    np.testing.assert_array_equal(features, np.stack([value % 1000, value % 7, -value % 11], axis=1))

    # Sums of weights are those of the whole graph, to the bit.
    sums = dict(zip(graph.original_id, from_graph(graph).weight_sum, strict=True))
    assert [sums[each] for each in topology.original_id] == topology.weight_sum.tolist()


def test_graphs_that_differ_in_what_edges_carry_have_other_identities(tmp_path):
    graph, identities = carrying(), set()
    data = graph.edge_data
    other = data.weight.copy()
    other[3] += 1
    swapped = data.weight.copy()
    swapped[[1, 2]] = swapped[[2, 1]]
    for changed in (
        data,
        EdgeData(),
        EdgeData(other),
        EdgeData(data.weight),
        EdgeData(swapped),
        EdgeData(None, data.features),
    ):
        graph.edge_data = changed
        identities.add(content_uuid(graph))
    assert len(identities) == 6


def test_graphs_whose_edges_carry_nothing_are_written_as_before(tmp_path):
    import h5py

    for graph, version in ((random_graph(), 1), (random_graph(sparse=True), 2), (carrying(), 3)):
        write_graph(tmp_path / "g.h5", graph, overwrite=True)
        with h5py.File(tmp_path / "g.h5") as file:
            assert file.attrs["format_version"] == version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": np.float64(1)}, "edge_weight has dtype float64"),
        ({"weight": "short"}, "edge_weight has shape"),
        ({"weight": np.nan}, "edge_weight, row 5 is nan; edge data must be finite"),
        ({"features": np.inf}, r"edge_features, row 5 is .*inf.*finite"),
        ({"time": np.inf}, "edge_time, row 5 is inf"),
    ],
)
def test_bad_values_are_named_before_anything_is_written(tmp_path, change, message):
    graph = carrying(time="f8")
    ((name, bad),) = change.items()
    arrays = {key.removeprefix("edge_"): array.copy() for key, array in graph.edge_data.arrays().items()}
    if isinstance(bad, str):
        arrays[name] = arrays[name][:-1]
    elif isinstance(bad, np.float64):
        arrays[name] = arrays[name].astype(np.float64)
    else:
        arrays[name][5] = bad
    graph.edge_data = EdgeData(**arrays)
    with pytest.raises(DataError, match=message):
        write_graph(tmp_path / "g.h5", graph)
    assert not (tmp_path / "g.h5").exists()


def test_negative_weights_are_kept_but_not_trained_with(tmp_path):
    graph = carrying()
    weight = graph.edge_data.weight.copy()
    weight[:] = -1
    graph.edge_data = EdgeData(weight)
    dataset = parts_of(tmp_path, graph)
    verify(dataset)
    load_topology(dataset)
    with pytest.raises(DataError, match=r"edge_weight, row 0 is -1.0; .*--edge-weights ignore"):
        load_topology(dataset, weights=True)


@pytest.mark.parametrize("name", ["edge_weight", "edge_features", "edge_time"])
def test_damage_to_what_edges_carry_is_found(tmp_path, name):
    import h5py

    dataset = parts_of(tmp_path, carrying())
    with h5py.File(dataset.part_path(1)) as file:
        offset = file[name].id.get_offset()
    with dataset.part_path(1).open("r+b") as file:
        file.seek(offset + 2)
        file.write(b"\x01")
    with pytest.raises(DataError, match=f"array {name} does not match"):
        verify(open_dataset(dataset.folder))
