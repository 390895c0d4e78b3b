"""Shards: rows by global id, whatever the parts, types and devices."""

import numpy as np
import pytest
import torch

from data_prep.assembly.stored_dtype import as_stored, decoded
from data_prep.workspace import Workspace
from leapmpi.features.shards import device_shard as module
from leapmpi.features.shards import row_placement
from leapmpi.features.shards.device_shard import DeviceShard
from leapmpi.features.shards.host_shard import HostShard, place_rows
from leapmpi.features.shards.pinned_shard import PinnedShard
from leapmpi.features.shards.row_placement import Sharers, load_shard
from leapmpi.nn.gemm import times_transposed
from leapmpi.nn.kernels.kernel_choice import standing_in
from leapmpi.nn.kernels.row_types import decoded as device_rows
from leapmpi.nn.rows import dense

pytestmark = pytest.mark.compiles

FIRST = 1000
SIZES = {"one part": [40], "several parts": [7, 1, 20, 12], "tiny parts": [1] * 40}


@pytest.fixture(params=["float32", "float16", "float64", "int64"])
def dtype(request):
    return request.param


@pytest.fixture(params=SIZES)
def whole_and_shard(request, dtype):
    rows = np.random.default_rng(0).integers(-100, 100, (40, 3)).astype(dtype)
    parts = np.split(rows, np.cumsum(SIZES[request.param])[:-1])
    for part in parts:
        part.flags.writeable = False  # as mapped from files
    return rows, HostShard(parts, FIRST)


@pytest.mark.parametrize("ids", [[], [0], [39], [5, 5, 3], list(range(39, -1, -1))])
def test_rows_come_by_global_id(whole_and_shard, dtype, ids):
    rows, shard = whole_and_shard
    ids = np.array(ids, np.int64)
    found = shard.rows(ids + FIRST, np.full((len(ids), 3), -1, dtype))
    np.testing.assert_array_equal(found, rows[ids])


def test_rows_are_placed_and_converted(whole_and_shard):
    rows, shard = whole_and_shard
    target = np.zeros((50, 3))
    ids, places = np.array([39, 0, 8, 7]), np.array([1, 49, 3, 30])
    shard.place(ids + FIRST, target, places)
    np.testing.assert_array_equal(target[places], rows[ids].astype(np.float64))
    assert not np.delete(target, places, axis=0).any()


def test_sizes(whole_and_shard, dtype):
    rows, shard = whole_and_shard
    assert (shard.width, shard.dtype, shard.nbytes) == (3, dtype, rows.nbytes)
    assert shard.bounds[0] == FIRST
    assert shard.bounds[-1] == FIRST + 40


def test_flat_labels_count_as_rows_of_one():
    shard = HostShard([np.arange(5), np.arange(5, 9)], 20)
    assert shard.width == 1
    assert shard.rows(np.array([28, 20, 25]), np.empty((3, 1), np.int64)).ravel().tolist() == [8, 0, 5]


def test_place_rows_converts_half_precision_exactly():
    source = np.array([[0.1, -65504.0], [6e-8, 2.0]], np.float16)
    target = np.zeros((3, 2))
    place_rows(source, np.array([11, 10]), 10, target, np.array([2, 0]))
    np.testing.assert_array_equal(target, [source[0], [0, 0], source[1]])


@pytest.mark.parametrize("staging", [1, 50, 1 << 20])
def test_a_device_shard_holds_the_same_rows(whole_and_shard, staging, monkeypatch):
    monkeypatch.setattr(module, "_STAGING_BYTES", staging)
    rows, shard = whole_and_shard
    device = DeviceShard(shard, torch.device("cpu"))
    ids = np.array([39, 0, 8, 8])
    np.testing.assert_array_equal(device.rows(ids + FIRST).numpy(), rows[ids])
    assert (device.nbytes, device.width) == (rows.nbytes, 3)


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
@pytest.mark.parametrize("target", [np.float32, np.float64])
def test_rows_in_fewer_bytes_come_as_what_they_stand_for(name, target, tmp_path):
    small = as_stored(np.random.default_rng(0).standard_normal((40, 19)) * 7, name, "", Workspace(tmp_path, 2**30, 1))
    shard = HostShard(np.split(small.rows, [7, 8]), FIRST, small.scale)
    ids = np.array([39, 0, 8, 8, 7])
    expected = decoded(small.rows[ids], small.scale).astype(target)
    np.testing.assert_array_equal(shard.rows(ids + FIRST, np.empty((5, 19), target)), expected)
    assert shard.row_bytes == 19 * small.rows.itemsize

    # As they are sent; on a device.
    np.testing.assert_array_equal(shard.rows(ids + FIRST, shard.new_rows(5)), small.rows[ids])
    device = DeviceShard(shard, torch.device("cpu"))
    found = device_rows(device.rows(ids + FIRST), device.scale, torch.from_numpy(expected).dtype)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_on_the_host_rows_stay_where_they_are(whole_and_shard):
    _, shard = whole_and_shard
    assert load_shard(shard, torch.device("cpu"), Sharers()) is shard


@pytest.mark.parametrize(("shared", "kind"), [(Sharers(), DeviceShard), (Sharers(2, 4), PinnedShard),
                                              (Sharers(8, 8), HostShard)])  # fmt: skip
def test_ranks_that_share_a_device_and_a_host_share_what_is_free(shared, kind, monkeypatch):
    shard = HostShard([np.zeros((10, 10), np.float32)], FIRST)
    monkeypatch.setattr(row_placement, "free_bytes", lambda device: 1000.0)
    monkeypatch.setattr(row_placement, "available_bytes", lambda: 4000)
    with standing_in() as device:
        assert type(load_shard(shard, device, shared)) is kind
        assert row_placement.room_for_topology(device, shared) == 500 / shared.device


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_rows_are_read_in_place_whatever_the_number_of_parts(sizes):
    rows = np.random.default_rng(0).standard_normal((40, 19)).astype(np.float32)
    shard = HostShard(np.split(rows, np.cumsum(sizes)[:-1]), FIRST)
    found = shard.whole()
    np.testing.assert_array_equal(dense(found).numpy(), rows)
    weight = torch.from_numpy(rows[:5])
    assert torch.equal(times_transposed(found, weight), times_transposed(torch.from_numpy(rows), weight))

    # A row of the middle, read from its address.
    addresses = np.zeros(3, np.int64)
    shard.locate(np.array([FIRST + 21, FIRST]), addresses, np.array([2, 0]))
    np.testing.assert_array_equal(dense(shard.scattered(addresses[[0, 2]], shard)).numpy(), rows[[0, 21]])


def test_rows_narrower_than_a_vector_are_read_in_place_only_from_one_part():
    rows = np.zeros((4, 3), np.float32)
    assert HostShard([rows], FIRST).whole() is not None
    assert HostShard([rows[:1], rows[1:]], FIRST).whole() is None


def test_each_part_that_ids_touch_gives_them_once_in_their_order():
    shard = HostShard([np.arange(5), np.arange(5, 9), np.arange(9, 12)], 20)
    found = [(first, ids.tolist(), where.tolist()) for _, first, ids, where in shard.split(np.array([31, 20, 29, 20]))]
    assert found == [(20, [20, 20], [1, 3]), (29, [31, 29], [0, 2])]
