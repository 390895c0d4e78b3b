"""Sparse features at rest: kept through files and parts, refused where they break a promise, unknown to old readers."""

import h5py
import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.graph_file import open_graph, write_graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify, verify_graph
from leapmpi.errors import DataError
from leapmpi.features.shards.column_shard import load_columns
from leapmpi.features.shards.sparse_shard import SparseShard
from tests.dataset.test_damage import flip_in_array, rewrite_attributes
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles


@pytest.fixture(params=[False, True], ids=["single", "half"])
def graph(request):
    return random_graph(sparse=True, half=request.param)


def test_parts_hold_the_rows_of_their_vertices(graph, folder, graph_file):
    dataset = open_dataset(folder)
    verify(dataset)
    assert dataset.graph_uuid == verify_graph(graph_file).uuid
    assert dataset.describe()["feature_storage"] == "sparse"
    assert dataset.describe()["feature_entries"] == len(graph.features.data)
    dense = graph.features.dense()
    for number in range(dataset.parts):
        part = dataset.part(number)
        np.testing.assert_array_equal(
            part.features.dense(), dense[np.searchsorted(graph.original_id, part.original_id)]
        )


@pytest.mark.parametrize(("first", "end"), [(0, 5), (1, 3), (4, 5)])
def test_columns_and_rows_of_several_parts(folder, first, end):
    dataset = open_dataset(folder)
    rows = np.concatenate([dataset.part(part).features.dense() for part in range(dataset.parts)])
    ids = np.random.default_rng(0).integers(0, 60, 100)
    columns = load_columns(dataset, first, end, "here")
    np.testing.assert_array_equal(columns.take(ids).dense(), rows[ids, first:end])
    shard = SparseShard([dataset.part(part).features for part in range(dataset.parts)], 0)
    np.testing.assert_array_equal(shard.take(ids).dense(), rows[ids])


def test_readers_of_version_1_refuse(folder, graph_file):
    for path in (graph_file, *folder.iterdir()):
        with h5py.File(path) as file:
            assert file.attrs["format_version"] == 2
    write_graph(graph_file, random_graph(), overwrite=True)
    with h5py.File(graph_file) as file:
        assert file.attrs["format_version"] == 1
        assert names.FEATURE_STORAGE not in file.attrs


@pytest.mark.parametrize(
    ("name", "element", "value", "message"),
    [
        ("features/indices", 2, 5, r"features, row \d+, names column 5, outside 0\.\.4"),
        ("features/indices", 2, -1, r"features, row \d+, names column -1, outside 0\.\.4"),
        ("features/data", 2, np.nan, r"features, row \d+, column \d is nan; features must be finite"),
        ("features/data", 2, -0.0, r"features, row \d+, column \d is 0; sparse features keep no zeros"),
        ("features/data", 2, 1.5, r"array features/data does not match its blake2b-128 digest"),
        ("features/indptr", 1, -5, r"features/indptr, row 1 is -5"),
        ("features/indptr", 60, 3, r"features/indptr, row 60 is 3"),
    ],
)
def test_damage_is_named(graph_file, name, element, value, message):
    flip_in_array(graph_file, name, element, value)
    with pytest.raises(DataError, match=message):
        verify_graph(graph_file)


def test_columns_out_of_order_are_named(graph, graph_file):
    row = int(np.argmax(np.diff(graph.features.indptr) > 1))
    first = int(graph.features.indptr[row])
    flip_in_array(graph_file, "features/indices", first, int(graph.features.indices[first + 1]))
    with pytest.raises(DataError, match=rf"features, row {row}, names column \d after \d; columns must ascend"):
        verify_graph(graph_file)


def test_training_does_not_read_beyond_the_columns(folder):
    flip_in_array(folder / "part-00000.h5", "features/indices", 0, 77)
    part = open_dataset(folder).part(0)
    row = int(np.argmax(np.diff(part.features.indptr) > 0))
    with pytest.raises(DataError, match=rf"a column outside 0\.\.4 \(row {row} of its part\).*leapmpi-prep check"):
        SparseShard([part.features], 0).take(np.arange(len(part.features)))


def test_unknown_storage_and_columns_at_rest_are_refused(tmp_path, graph, graph_file):
    rewrite_attributes(graph_file, "leapmpi-graph", {"feature_entries": 7})
    with pytest.raises(DataError, match="attribute feature_entries is 7, but there are"):
        open_graph(graph_file)
    rewrite_attributes(graph_file, "leapmpi-graph", {"feature_storage": "woven"})
    with pytest.raises(DataError, match="feature_storage is 'woven', neither dense nor sparse"):
        open_graph(graph_file)
    assignment = np.arange(60) % 2
    with pytest.raises(DataError, match="leave out --layout"):
        write_dataset(tmp_path / "c", graph, assignment, 2, method="test", figures={}, seed=0, columns=True)
    assert not (tmp_path / "c").exists()
