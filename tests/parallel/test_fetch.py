"""Fetching rows from all ranks: any ids, in any order, dense or sparse, from host or device, in any type."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from data_prep.assembly.stored_dtype import as_stored, decoded
from data_prep.workspace import Workspace
from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.dataset.sparse_features import from_entries
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.fetcher_choice import fetcher_class
from leapmpi.features.shards.device_shard import DeviceShard
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.features.shards.row_request import RowCache
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.nn.rows import ScatteredRows

PER_RANK = [17, 1, 40, 9]  # vertices of each rank
WIDTH = 5


def offsets_of(size):
    return np.concatenate([[0], np.cumsum(PER_RANK[:size])]).astype(np.int64)


def fetcher(world, rows, kind, dtype, scale=None):
    offsets = offsets_of(world.size)
    first, end = offsets[world.rank : world.rank + 2]
    mine = rows[first:end]
    host = HostShard([mine[: len(mine) // 3 + 1], mine[len(mine) // 3 + 1 :]][: 1 + (len(mine) > 1)], int(first), scale)
    device = torch.device("cpu")
    shard = DeviceShard(host, device) if kind == "device" else host
    return FeatureFetcher(MPICommunicator(world.comm), shard, offsets, device, dtype)


def requested(world, turn):
    """The ids that this rank requests: all, none, one, half of them, or all again."""
    total = int(offsets_of(world.size)[-1])
    rng = np.random.default_rng([world.rank, turn])
    count = [total, 0, 1, total // 2, total][(world.rank + turn) % 5]
    return rng.permutation(total)[:count].astype(np.int64)


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize(
    ("stored", "dtype"),
    [("float32", "float32"), ("float32", "float64"), ("float16", "float32"), ("int64", "int64")],
)
def test_every_row_comes_from_its_home(world, kind, stored, dtype):
    total = int(offsets_of(world.size)[-1])
    rows = np.random.default_rng(1).integers(-1000, 1000, (total, WIDTH)).astype(stored)
    fetch = fetcher(world, rows, kind, getattr(torch, dtype))
    byte_counters = fetch.communicator.byte_counters
    for turn in range(6):
        ids = requested(world, turn)
        found = fetch.fetch(ids)
        assert found.dtype == getattr(torch, dtype)
        np.testing.assert_array_equal(found.numpy(), rows[ids].astype(dtype))
        sent, read = byte_counters.take()
        first, end = offsets_of(world.size)[world.rank : world.rank + 2]
        local = int(((first <= ids) & (ids < end)).sum())
        assert read == {"local": local, "remote": len(ids) - local, "cached": 0}
        assert sent["ids"] == 4 * (len(ids) - local)
        # Rows are sent in the stored type: what all ranks sent is what all ranks lacked.
        lacked, gone = world.comm.allreduce(len(ids) - local), world.comm.allreduce(sent["features"])
        assert gone == lacked * WIDTH * np.dtype(stored).itemsize


@pytest.mark.parametrize("kind", ["host", "device"])
def test_local_rows_need_no_other_rank_and_may_repeat(world, kind):
    total = int(offsets_of(world.size)[-1])
    rows = np.arange(total * WIDTH, dtype=np.float32).reshape(total, WIDTH)
    fetch = fetcher(world, rows, kind, torch.float64)
    first = int(offsets_of(world.size)[world.rank])
    ids = np.array([first, first, first])
    fetch.warm_up()
    np.testing.assert_array_equal(fetch.local(ids).numpy(), rows[ids])
    assert not any(fetch.communicator.byte_counters.take()[0].values())


def cached_ids(world, share):
    """Others' vertices that this rank keeps: every one, none, or a few."""
    first, end = offsets_of(world.size)[world.rank : world.rank + 2]
    away = np.delete(np.arange(offsets_of(world.size)[-1]), np.s_[first:end])
    rng = np.random.default_rng(world.rank)
    return rng.permutation(away)[: int(len(away) * share)]


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_cached_rows_are_copies_and_cross_no_more(world, kind, share, monkeypatch):
    monkeypatch.setattr("leapmpi.features.fetcher.CACHE_BATCH_BYTES", 3 * WIDTH * 4)
    total = int(offsets_of(world.size)[-1])
    rows = np.random.default_rng(1).standard_normal((total, WIDTH)).astype(np.float32)
    fetch = fetcher(world, rows, kind, torch.float64)
    kept = cached_ids(world, share)
    fetch.fill(RowCache(kept, total))
    gone = world.comm.allreduce(fetch.communicator.byte_counters.take()[0]["features"])
    assert gone == world.comm.allreduce(len(kept)) * WIDTH * 4
    for turn in range(5):
        ids = requested(world, turn)
        missing = fetch.missing(ids)
        np.testing.assert_array_equal(fetch.fetch(ids).numpy(), rows[ids].astype(np.float64))
        sent, read = fetch.communicator.byte_counters.take()
        first, end = offsets_of(world.size)[world.rank : world.rank + 2]
        local, spared = int(((first <= ids) & (ids < end)).sum()), len(set(ids.tolist()) & set(kept.tolist()))
        assert read == {"local": local, "remote": len(ids) - local - spared, "cached": spared}
        assert missing == read["remote"]
        assert sent["ids"] == 4 * missing


def in_fewer_bytes(total, width, dtype):
    """The rows of all vertices as `dtype`, their scale, and what they stand for."""
    rows = np.random.default_rng(1).standard_normal((total, width)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        small = as_stored(rows, dtype, "", Workspace(Path(folder), 2**30, 1))
        return np.array(small.rows), small.scale, decoded(small.rows, small.scale)


@pytest.mark.parametrize("kind", ["host", "device"])
@pytest.mark.parametrize("stored", ["bfloat16", "int8"])
def test_rows_in_fewer_bytes_are_sent_as_they_are(world, kind, stored):
    total = int(offsets_of(world.size)[-1])
    rows, scale, values = in_fewer_bytes(total, WIDTH, stored)
    fetch = fetcher(world, rows, kind, torch.float64, scale)
    fetch.fill(RowCache(cached_ids(world, 0.3), total))
    fetch.communicator.byte_counters.take()
    for turn in range(5):
        ids = requested(world, turn)
        np.testing.assert_array_equal(fetch.fetch(ids).numpy(), values[ids])
        gone, _ = fetch.communicator.byte_counters.take()
        lacked = world.comm.allreduce(fetch.missing(ids))
        assert world.comm.allreduce(gone["features"]) == lacked * WIDTH * rows.itemsize == lacked * fetch.sent_row_bytes


@pytest.mark.parametrize("share", [0, 0.3])
@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16", "int8"])
def test_rows_read_from_their_addresses_are_those_fetched(world, stored, share):
    total = int(offsets_of(world.size)[-1])
    small, scale, rows = in_fewer_bytes(total, 20, stored)
    fetch = fetcher(world, small, "host", torch.float32, scale)
    fetch.fill(RowCache(cached_ids(world, share), total))
    kept = []
    for turn in range(5):
        ids = requested(world, turn)
        found = fetch.prepare(ids, scattered=True).complete()
        assert isinstance(found, ScatteredRows)
        expected = fetch.fetch(ids)
        assert torch.equal(found.dense(), expected)
        kept.append((found, expected))
    # What was fetched later took no room from what is still held.
    assert all(torch.equal(found.dense(), expected) for found, expected in kept)
    local = offsets_of(world.size)[world.rank] + np.array([0, 0])
    np.testing.assert_array_equal(fetch.local(local, scattered=True).dense().numpy(), rows[local])


@pytest.mark.parametrize(("stored", "width", "kind", "dtype"), [
    ("float32", 5, "host", "float32"),
    ("float32", 20, "device", "float32"), ("float32", 20, "host", "float64"),
])  # fmt: skip
def test_other_rows_are_copied(world, stored, width, kind, dtype):
    total = int(offsets_of(world.size)[-1])
    rows = np.random.default_rng(1).standard_normal((total, width)).astype(stored)
    fetch = fetcher(world, rows, kind, getattr(torch, dtype))
    ids = requested(world, 0)
    found = fetch.prepare(ids, scattered=True).complete()
    assert torch.equal(found, fetch.fetch(ids))
    local = offsets_of(world.size)[world.rank : world.rank + 1]
    assert torch.equal(fetch.local(local, scattered=True), fetch.local(local))


def sparse_fetcher(world, rows, dtype):
    """The fetcher of `rows`, of which only what is not zero is held."""
    row, column = np.nonzero(rows)
    whole = from_entries(row, column, rows[row, column], rows.shape)
    offsets = offsets_of(world.size)
    first, end = offsets[world.rank : world.rank + 2]
    cut = (first + end + 1) // 2
    parts = [whole[first:cut], whole[cut:end]][: 1 + (cut < end)]
    shard = SparseShard(parts, int(first), np.diff(whole.indptr).astype(np.int32))
    return fetcher_class(shard)(MPICommunicator(world.comm), shard, offsets, torch.device("cpu"), dtype)


@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_entries_of_sparse_rows_come_from_their_home_ranks(world, stored, monkeypatch):
    monkeypatch.setattr("leapmpi.features.fetcher.CACHE_BATCH_BYTES", 30)
    total, rng = int(offsets_of(world.size)[-1]), np.random.default_rng(1)
    rows = (rng.standard_normal((total, WIDTH)) * (rng.random((total, WIDTH)) < 0.4)).astype(stored)
    sizes, each = (rows != 0).sum(axis=1), np.dtype(stored).itemsize
    fetch = sparse_fetcher(world, rows, torch.float64)
    fetch.warm_up()
    kept = cached_ids(world, 0.3)
    fetch.fill(RowCache(kept, total))
    gone = world.comm.allreduce(fetch.communicator.byte_counters.take()[0]["features"])
    assert gone == world.comm.allreduce(int(sizes[kept].sum())) * (4 + each)
    first, end = offsets_of(world.size)[world.rank : world.rank + 2]
    for turn in range(5):
        ids = requested(world, turn)
        here = ((first <= ids) & (ids < end)) | np.isin(ids, kept)
        predicted = int(fetch.answer_bytes(fetch.request(ids)).sum())
        np.testing.assert_array_equal(fetch.fetch(ids).dense().numpy(), rows[ids].astype(np.float64))
        away = ids[~here]
        gone = world.comm.allreduce(fetch.communicator.byte_counters.take()[0]["features"])
        assert gone == world.comm.allreduce(int(sizes[away].sum())) * (4 + each)
        assert gone == world.comm.allreduce(predicted)
    local = np.array([first, end - 1, first])
    np.testing.assert_array_equal(fetch.local(local).dense().numpy(), rows[local])
