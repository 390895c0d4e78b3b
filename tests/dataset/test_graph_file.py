"""Graph files: what is written is read back, and faults are refused by name."""

import dataclasses

import numpy as np
import pytest

from leapmpi.dataset.graph import Graph, content_uuid
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.dataset.topology import from_graph
from leapmpi.dataset.verify import verify_graph
from leapmpi.errors import DataError
from tests.support.datasets import validate
from tests.support.graphs import from_lists, random_graph

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize(
    "kind", [{}, {"multilabel": True}, {"half": True}, {"sparse": True}, {"sparse": True, "half": True}]
)
def test_round_trip(tmp_path, kind):
    graph = random_graph(**kind)
    write_graph(tmp_path / "g.h5", graph)
    found = verify_graph(tmp_path / "g.h5")
    for name, array in graph.arrays().items():
        if array is None:
            assert found.arrays()[name] is None
            continue
        assert found.arrays()[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays()[name], array)
    assert found.attributes == graph.attributes
    assert (found.classes, found.multilabel, found.feature_dim) == (3, kind.get("multilabel", False), 5)
    assert found.uuid == content_uuid(graph)


def test_bare_graph_of_one_vertex(tmp_path):
    write_graph(tmp_path / "g.h5", from_lists([[]]))
    found = verify_graph(tmp_path / "g.h5")
    assert (found.vertices, found.edges, found.features, found.labels, found.split) == (1, 0, None, None, None)


def test_arrays_are_mapped_not_loaded(graph_file):
    features = open_graph(graph_file).features
    assert isinstance(features, np.memmap)
    assert not features.flags.writeable


def test_existing_file_is_kept(graph_file, graph):
    before = graph_file.read_bytes()
    with pytest.raises(DataError, match="--overwrite"):
        write_graph(graph_file, graph)
    assert graph_file.read_bytes() == before
    write_graph(graph_file, graph, overwrite=True)


def test_topology_degree(graph):
    topology = from_graph(graph)
    ids = np.array([5, 0, 5, 59])
    np.testing.assert_array_equal(topology.degree(ids), np.diff(graph.indptr)[ids])
    assert topology.vertices == 60


def nan_feature(graph):
    graph.features[7, 2] = np.nan


def infinite_feature(graph):
    graph.features[7, 2] = -np.inf


def label_too_high(graph):
    graph.labels[9] = 3


def label_too_low(graph):
    graph.labels[9] = -2


def unlabelled_member(graph):
    graph.split[11] = 1
    graph.labels[11] = -1


def unknown_split(graph):
    graph.split[11] = 4


def row_with_two(graph):
    return int(np.flatnonzero(np.diff(graph.indptr) >= 2)[0])


def unsorted(graph):
    first = graph.indptr[row_with_two(graph)]
    graph.indices[[first, first + 1]] = graph.indices[[first + 1, first]]


def duplicate(graph):
    first = graph.indptr[row_with_two(graph)]
    graph.indices[first + 1] = graph.indices[first]


def self_loop(graph):
    row = row_with_two(graph)
    graph.indices[graph.indptr[row]] = row


def out_of_range(graph):
    graph.indices[3] = 60


def negative(graph):
    graph.indices[3] = -1


def falling_indptr(graph):
    graph.indptr[4] = graph.indptr[-1] + 5


def short_labels(graph):
    graph.labels = graph.labels[:-1]


def original_twice(graph):
    graph.original_id[5] = graph.original_id[4]


def wrong_classes(graph):
    graph.classes = 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (nan_feature, "features, row 7, column 2 is nan"),
        (infinite_feature, "features, row 7, column 2 is -inf"),
        (label_too_high, "labels, row 9 is 3, expected .* 0..2"),
        (label_too_low, "labels, row 9 is -2"),
        (unlabelled_member, "split, row 11 is in the train split but has no label"),
        (unknown_split, "split, row 11 is 4"),
        (unsorted, "out of order"),
        (duplicate, "is there twice"),
        (self_loop, "self-loop"),
        (out_of_range, "topology/indices, row 3: in-neighbour 60 .* outside 0..59"),
        (negative, "topology/indices, row 3: in-neighbour -1 "),
        (falling_indptr, "topology/indptr, row 5"),
        (short_labels, r"labels has shape \(59,\)"),
        (original_twice, "original_id, row 5"),
        (wrong_classes, "classes is 0"),
    ],
)
def test_faults_are_named_and_nothing_is_written(tmp_path, graph, damage, message):
    damage(graph)
    with pytest.raises(DataError, match=message):
        write_graph(tmp_path / "g.h5", graph)
    assert list(tmp_path.iterdir()) == []


def test_multilabel_values_are_checked():
    graph = random_graph(multilabel=True)
    validate(graph)
    graph.labels[4, 2] = 2
    with pytest.raises(DataError, match="labels, row 4, column 2 is 2"):
        validate(graph)


def test_no_vertices_is_refused():
    with pytest.raises(DataError, match="no vertices"):
        validate(Graph(np.zeros(1, np.int64), np.empty(0, np.int32)))


def test_uuid_sees_every_array():
    graph = random_graph()
    seen = {content_uuid(graph)}
    for name in ("features", "labels", "split", "original_id"):
        array = getattr(graph, name).copy()
        array[-1] += 1
        seen.add(content_uuid(dataclasses.replace(graph, **{name: array})))
    indices = graph.indices.copy()
    indices[0] = (indices[0] + 1) % 60
    seen.add(content_uuid(dataclasses.replace(graph, indices=indices)))
    seen.add(content_uuid(dataclasses.replace(graph, classes=4)))
    assert len(seen) == 7
