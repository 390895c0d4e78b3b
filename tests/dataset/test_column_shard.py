"""Features by columns: the same numbers as in the rows of all parts, in bounded pieces and only where there is room."""

import numpy as np
import pytest

from leapmpi import memory
from leapmpi.dataset import column_shard, storage
from leapmpi.dataset.column_shard import load_columns
from leapmpi.dataset.partitioned import open_dataset, write_dataset
from leapmpi.errors import DataError, ResourceError
from tests.dataset.graphs import random_graph


@pytest.mark.parametrize(("first", "end"), [(0, 5), (1, 4), (3, 3)])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_columns_are_those_of_all_parts_in_order(folder, first, end, block, monkeypatch):
    monkeypatch.setattr(storage, "BLOCK_BYTES", block)
    dataset = open_dataset(folder)
    shard = load_columns(dataset, first, end, "here")
    rows = np.concatenate([dataset.part(part).features for part in range(dataset.parts)])
    ids = np.random.default_rng(0).permutation(dataset.vertices)
    got = shard.rows(ids, np.empty((len(ids), end - first), np.float32))
    np.testing.assert_array_equal(got, rows[ids, first:end])


def test_columns_keep_the_type_they_have_at_rest(tmp_path):
    graph = random_graph(half=True)
    write_dataset(tmp_path / "half", graph, np.arange(graph.vertices) % 2, 2, method="test", figures={}, seed=0)
    assert load_columns(open_dataset(tmp_path / "half"), 0, 2, "here").dtype == np.float16


def test_too_little_memory_is_said_before_anything_is_read(folder, monkeypatch):
    dataset, asked = open_dataset(folder), []
    monkeypatch.setattr(column_shard, "check_memory", lambda *what: asked.append(what))
    load_columns(dataset, 0, 3, "here", sharers=4)
    assert asked == [(dataset.vertices * 3 * 4 * 4, "features held by columns take", "here")]
    with pytest.raises(ResourceError, match=r"columns take 1048576.0 GiB but node7 has .* memory available"):
        memory.check_memory(1 << 50, "features held by columns take", "node7")


def test_a_missing_part_is_named(folder):
    dataset = open_dataset(folder)
    dataset.part_path(1).unlink()
    with pytest.raises(DataError, match="part-00001"):
        load_columns(dataset, 0, 3, "here")
