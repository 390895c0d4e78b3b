"""Features by columns: the same numbers as in the rows of all parts, in bounded blocks, where memory suffices."""

import numpy as np
import pytest

from leapmpi.dataset.dataset_writer import write_dataset
from leapmpi.dataset.hdf5 import row_blocks
from leapmpi.dataset.partitioned import open_dataset
from leapmpi.dataset.verify import verify
from leapmpi.errors import DataError, ResourceError
from leapmpi.features.shards import column_shard
from leapmpi.features.shards.column_shard import load_columns
from leapmpi.system import memory
from tests.support.graphs import random_graph

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize(("first", "end"), [(0, 5), (1, 4), (3, 3)])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_columns_are_those_of_all_parts_in_order(folder, first, end, block, monkeypatch):
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", block)
    dataset = open_dataset(folder)
    shard = load_columns(dataset, first, end, "here")
    features = np.concatenate([dataset.part(part).features for part in range(dataset.parts)])
    ids = np.random.default_rng(0).permutation(dataset.vertices)
    got = shard.rows(ids, np.empty((len(ids), end - first), np.float32))
    np.testing.assert_array_equal(got, features[ids, first:end])


@pytest.fixture
def by_columns(tmp_path):
    """A dataset of 3 parts with features by rows and by columns."""
    assignment = np.random.default_rng(0).integers(0, 3, 60)
    write_dataset(tmp_path / "c", random_graph(), assignment, 3, method="test", figures={}, seed=0, columns=True)
    return open_dataset(tmp_path / "c")


@pytest.mark.parametrize(("first", "end"), [(0, 5), (0, 1), (1, 4), (2, 5), (3, 3)])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_stored_columns_are_those_of_the_rows(by_columns, first, end, block, monkeypatch):
    monkeypatch.setattr(row_blocks, "BLOCK_BYTES", block)
    features = np.concatenate([by_columns.part(part).features for part in range(3)])
    shard = load_columns(by_columns, first, end, "here")
    np.testing.assert_array_equal(
        shard.rows(np.arange(60), np.empty((60, end - first), np.float32)), features[:, first:end]
    )
    verify(by_columns)


@pytest.mark.parametrize("parts", [1, 6])
def test_any_number_of_parts_can_hold_columns(tmp_path, parts):
    assignment = np.arange(60) % parts
    write_dataset(tmp_path / "c", random_graph(), assignment, parts, method="test", figures={}, seed=0, columns=True)
    dataset = open_dataset(tmp_path / "c")
    verify(dataset)
    assert sum(dataset.part(part).columns.shape[1] for part in range(parts)) == 5


def test_damaged_columns_are_found(by_columns):
    path = by_columns.part_path(1)
    data = bytearray(path.read_bytes())
    at = data.find(by_columns.part(1).columns[7:9].tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"part-00001.h5: array columns does not match its .* digest"):
        verify(by_columns)
    verify(by_columns, features=False)


def test_columns_that_differ_from_the_rows_are_found(by_columns, monkeypatch):
    monkeypatch.setattr("leapmpi.dataset.verify.check_digest", lambda *_: None)
    path = by_columns.part_path(2)
    data = bytearray(path.read_bytes())
    columns = by_columns.part(2).columns
    at = data.find(columns.tobytes()) + columns[:7].nbytes
    data[at + 4 : at + 8] = np.float32(9).tobytes()
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"columns of vertex 7, column 4, is not what features of part 0 holds"):
        verify(by_columns)


def test_columns_need_features(tmp_path):
    graph = random_graph()
    graph.features = None
    with pytest.raises(DataError, match="no features that could be written by columns"):
        write_dataset(tmp_path / "c", graph, np.zeros(60, int), 1, method="test", figures={}, seed=0, columns=True)
    assert not (tmp_path / "c").exists()


def test_columns_keep_the_type_they_have_at_rest(tmp_path):
    graph = random_graph(half=True)
    write_dataset(tmp_path / "half", graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    assert load_columns(open_dataset(tmp_path / "half"), 0, 2, "here").dtype == np.float16


def test_too_little_memory_is_said_before_anything_is_read(folder, monkeypatch):
    dataset, checked = open_dataset(folder), []
    monkeypatch.setattr(column_shard, "check_memory", lambda *what: checked.append(what))
    load_columns(dataset, 0, 3, "here", sharers=4)
    assert checked == [(dataset.vertices * 3 * 4 * 4, "features held by columns take", "here")]
    with pytest.raises(ResourceError, match=r"columns take 1048576.0 GiB but node7 has .* memory available"):
        memory.check_memory(1 << 50, "features held by columns take", "node7")


def test_a_missing_part_is_named(folder):
    dataset = open_dataset(folder)
    dataset.part_path(1).unlink()
    with pytest.raises(DataError, match="part-00001"):
        load_columns(dataset, 0, 3, "here")
