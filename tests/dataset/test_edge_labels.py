"""Labels of edges, what is kept of edges held back, and times of vertices: in files, parts and identities."""

from dataclasses import replace

import h5py
import numpy as np
import pytest

from data_prep.assembly.edge_splits.split_edges import split_edges
from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.graph import content_uuid
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.topology import load_topology
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import DataError
from tests.support.graphs import random_graph


def made(held=names.HELD_LABELS):
    """A graph of labelled edges with times, some of which are held back, with times of vertices and given negatives."""
    graph = random_graph(n=60, degree=6)
    rng = np.random.default_rng(2)
    labels, times = rng.integers(-1, 4, graph.edges).astype(np.int32), rng.integers(0, 9, graph.edges)
    graph = replace(graph, edge_data=EdgeData(time=times, labels=labels, classes=4), time=rng.integers(-9, 9, 60))
    graph = split_edges(replace(graph, attributes={"directed": True}), (0.6, 0.2, 0.2), 3, by="hash", held=held)
    return replace(graph, edge_splits=replace(graph.edge_splits, val_negatives=np.array([[1, 2], [3, 9]])))


def dataset_of(tmp_path, graph, parts=3):
    assignment = np.arange(graph.vertices) * 7 % parts
    write_dataset(tmp_path / "d", graph, assignment, parts, method="test", figures={}, seed=0, block_bytes=400)
    return open_dataset(tmp_path / "d")


@pytest.mark.parametrize("held", [names.HELD_EDGES, names.HELD_LABELS])
def test_files_and_datasets_keep_everything(tmp_path, held):
    graph = made(held)
    write_graph(tmp_path / "g.h5", graph)
    again = verify_graph(tmp_path / "g.h5")
    assert {name for name, array in graph.file_arrays().items() if array is not None} >= {
        "edge_labels", "vertex_time", "edge_splits/val_labels", "edge_splits/test_time", "edge_splits/val_negatives"
    }  # fmt: skip
    for name, array in graph.file_arrays().items():
        if array is not None and "features" not in name:
            np.testing.assert_array_equal(again.file_arrays()[name], array)
    assert (again.edge_splits.held, again.edge_data.classes, again.uuid) == (held, 4, content_uuid(graph))
    with h5py.File(tmp_path / "g.h5") as file:
        assert file.attrs["format_version"] == 4

    # In parts, with their destinations; the dataset has the identity of the graph.
    dataset = dataset_of(tmp_path, again)
    verify(dataset)
    assert dataset.graph_uuid == again.uuid
    topology = load_topology(dataset, times=True, labels=True)
    found = dict(zip(topology.original_id.tolist(), topology.vertex_time.tolist(), strict=True))
    assert found == dict(zip(graph.original_id.tolist(), graph.time.tolist(), strict=True))
    for name, array in again.edge_splits.label_arrays().items():
        np.testing.assert_array_equal(dataset.edge_splits.label_arrays()[name], array)


def test_graphs_that_differ_in_any_of_it_have_other_identities():
    graph = made()
    data, splits = graph.edge_data, graph.edge_splits
    other = data.labels.copy()
    other[np.flatnonzero(other >= 0)[0]] += 1
    changed = [
        graph,
        replace(graph, edge_data=replace(data, labels=other, classes=5)),
        replace(graph, time=graph.time + 1),
        replace(graph, edge_splits=replace(splits, val_labels=np.roll(splits.val_labels, 1))),
        replace(graph, edge_splits=replace(splits, test_time=splits.test_time + 1)),
        replace(graph, edge_splits=replace(splits, val_negatives=None)),
    ]
    assert len({content_uuid(each) for each in changed}) == len(changed)


@pytest.mark.parametrize(
    ("place", "name"),
    [("part-00001.h5", "edge_labels"), ("part-00001.h5", "vertex_time"), ("dataset.h5", "edge_splits/val_labels"),
     ("dataset.h5", "edge_splits/val_negatives"), ("dataset.h5", "edge_splits/test_time")],
)  # fmt: skip
def test_damage_is_found(tmp_path, place, name):
    dataset = dataset_of(tmp_path, made())
    with h5py.File(dataset.folder / place) as file:
        offset = file[name].id.get_offset()
    with (dataset.folder / place).open("r+b") as file:
        file.seek(offset + 1)
        file.write(b"\x01")
    with pytest.raises(DataError, match=f"{name}(, row 0 is| does not match)"):
        verify(open_dataset(dataset.folder))


def test_what_training_would_see_is_named(tmp_path):
    graph = made()
    source, destination = graph.edge_splits.val[0]
    row = graph.indptr[destination] + int(
        np.flatnonzero(graph.indices[graph.indptr[destination] : graph.indptr[destination + 1]] == source)[0]
    )
    shown = np.array(graph.edge_data.labels)
    shown[row] = 2
    write_graph(tmp_path / "g.h5", replace(graph, edge_data=replace(graph.edge_data, labels=shown)))
    with pytest.raises(DataError, match="edge_labels has the label of the edge of edge_splits/val, row 0"):
        verify_graph(tmp_path / "g.h5")
    with pytest.raises(DataError, match="edge_labels has the label of the edge of edge_splits/val, row 0"):
        verify(dataset_of(tmp_path, open_graph(tmp_path / "g.h5")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: replace(g, edge_data=replace(g.edge_data, classes=3)), "edge_labels, row .* is 3, expected -1"),
        (lambda g: replace(g, edge_data=replace(g.edge_data, labels=None)), "edge_classes is 4"),
        (lambda g: replace(g, time=g.time[:-1]), "vertex_time has shape"),
        (lambda g: replace(g, time=g.time.astype(float)), "vertex_time has dtype float64"),
    ],
)
def test_bad_values_are_named_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        write_graph(tmp_path / "g.h5", change(made(names.HELD_EDGES)))
    assert not (tmp_path / "g.h5").exists()
