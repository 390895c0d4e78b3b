"""Bytes arrive whole and in order at any size and split, sums are in rank order, and every byte is counted."""

import numpy as np
import pytest
import torch
from mpi4py import MPI

from leapmpi.comm import mpi_buffers
from leapmpi.comm.communicator import CommunicationError
from leapmpi.comm.flow_control import WINDOW
from leapmpi.comm.id_codec import IdCodec
from leapmpi.comm.mpi_communicator import MPICommunicator
from tests.support.fake_device import FakeDevice, SpyComm, launch

OVER_EAGER = 1 << 17  # numbers: far more bytes than any MPI sends before the receiver asks for them


@pytest.fixture(scope="module")
def module_comm():
    """One communicator for all cases that leave no message behind: making one takes longer than most cases."""
    comm = MPI.COMM_WORLD.Dup()
    yield comm
    comm.Free()


@pytest.fixture
def communicator(module_comm):
    return MPICommunicator(module_comm)


def counted(communicator):
    """Bytes by kind since the last call, without the zeros."""
    return {kind: count for kind, count in communicator.byte_counters.take()[0].items() if count}


def expected_bytes(communicator, **by_kind):
    """What `counted` gives on this rank: nothing when alone."""
    return {kind: count for kind, count in by_kind.items() if count} if communicator.size > 1 else {}


def rows_for(origin, destination, size, pattern):
    """How many rows rank `origin` sends to `destination`."""
    return {
        "empty": 0,
        "equal": 3,
        "uneven": (origin * 5 + destination * 3) % 7,
        "self only": 4 if origin == destination else 0,
        "one way": 6 if destination == (origin + 1) % size else 0,
        "to the first": 2 + origin if destination == 0 else 0,
    }[pattern]


PATTERNS = ["empty", "equal", "uneven", "self only", "one way", "to the first"]


def content(origin, destination, rows, width, dtype):
    """Rows that name their sender, receiver and place; exact in every type."""
    values = np.arange(rows)[:, None] * 7 + np.arange(width) + origin * 31 + destination * 57
    return (values % 128).astype(dtype)


def traffic(communicator, pattern, width, dtype):
    """What this rank sends and must get: (sent rows, counts, received rows, counts); width None for one dimension."""
    rank, size = communicator.rank, communicator.size
    send_counts = np.array([rows_for(rank, to, size, pattern) for to in range(size)], np.int64)
    receive_counts = np.array([rows_for(origin, rank, size, pattern) for origin in range(size)], np.int64)
    columns = width or 1
    sent = [content(rank, to, send_counts[to], columns, dtype) for to in range(size)]
    expected = [content(origin, rank, receive_counts[origin], columns, dtype) for origin in range(size)]
    shape = (-1,) if width is None else (-1, width) if width else (0, 0)
    sent, expected = (np.concatenate(each).reshape(shape) for each in (sent, expected))
    return sent, send_counts, expected, receive_counts


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("width", [None, 5])
def test_exchange_brings_every_row_to_its_place(communicator, pattern, width, dtype):
    sent, send_counts, expected, receive_counts = traffic(communicator, pattern, width, dtype)
    received = np.zeros_like(expected)
    communicator.exchange(sent, send_counts, received, receive_counts, "features")
    np.testing.assert_array_equal(received, expected)
    others = send_counts.sum() - send_counts[communicator.rank]
    assert counted(communicator) == expected_bytes(
        communicator, features=others * (width or 1) * np.dtype(dtype).itemsize
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_exchange_takes_torch_tensors(communicator, dtype):
    sent, send_counts, expected, receive_counts = traffic(communicator, "uneven", 3, dtype)
    received = torch.zeros(expected.shape, dtype=getattr(torch, dtype))
    communicator.exchange(torch.from_numpy(sent), send_counts, received, receive_counts, "activations")
    np.testing.assert_array_equal(received.numpy(), expected)


@pytest.mark.parametrize("limit", [5, 64])
def test_messages_cut_into_parts_arrive_whole(communicator, limit, monkeypatch):
    monkeypatch.setattr(mpi_buffers, "MESSAGE_LIMIT", limit)
    monkeypatch.setattr("leapmpi.comm.transport.FRAGMENT", limit)
    sent, send_counts, expected, receive_counts = traffic(communicator, "uneven", 5, "float64")
    received = np.zeros_like(expected)
    communicator.exchange(sent, send_counts, received, receive_counts, "features")
    np.testing.assert_array_equal(received, expected)

    given = np.arange(1200, dtype=np.int64) * 3
    np.testing.assert_array_equal(communicator.broadcast(given if communicator.rank == 0 else None, "schedule"), given)

    rows = communicator.all_gather_rows(given[:40] + communicator.rank)
    np.testing.assert_array_equal(rows, given[:40] + np.arange(communicator.size)[:, None])
    assert communicator.all_gather_objects("n" * 300 + str(communicator.rank)) == [
        "n" * 300 + str(rank) for rank in range(communicator.size)
    ]

    total = np.arange(37, dtype=np.float64)
    communicator.all_reduce(total)
    np.testing.assert_array_equal(total, np.arange(37) * communicator.size)

    state = np.full(40, communicator.rank, np.float64)
    communicator.ring_hop(state, (("parameters", state.nbytes),))
    np.testing.assert_array_equal(state, (communicator.rank + 1) % communicator.size)


def test_exchanges_follow_each_other_without_mixing(communicator):
    for turn in range(50):
        pattern = PATTERNS[(turn * 5) % len(PATTERNS)]
        sent, send_counts, expected, receive_counts = traffic(communicator, pattern, 1 + turn % 4, "int64")
        received = np.zeros_like(expected)
        communicator.exchange(sent + turn, send_counts, received, receive_counts, "features")
        np.testing.assert_array_equal(received, expected + turn)


@pytest.mark.parametrize("rows", [1, 200_000])
def test_large_exchanges_do_not_deadlock(communicator, rows):
    counts = np.full(communicator.size, rows, np.int64)
    sent = np.repeat(np.arange(communicator.size) + communicator.rank * 10.0, rows)
    received = np.empty_like(sent)
    communicator.exchange(sent, counts, received, counts, "features")
    np.testing.assert_array_equal(received, np.repeat(np.arange(communicator.size) * 10.0 + communicator.rank, rows))


def test_exchanges_far_larger_than_what_may_be_under_way_arrive_whole(communicator):
    def of(origin, to):
        return np.random.default_rng([origin, to]).integers(0, 2**60, (origin * 3 + to * 5) % 7 * (WINDOW // 16))

    parts = [of(communicator.rank, to) for to in range(communicator.size)]
    expected = [of(origin, communicator.rank) for origin in range(communicator.size)]
    received = np.empty(sum(map(len, expected)), np.int64)
    counts, theirs = (np.array([len(part) for part in each]) for each in (parts, expected))
    communicator.exchange(np.concatenate(parts), counts, received, theirs, "features")
    np.testing.assert_array_equal(received, np.concatenate(expected))


@pytest.mark.parametrize("width", [None, 3])
def test_pieces_that_are_sent_arrive_one_after_the_other(communicator, width):
    rank, size = communicator.rank, communicator.size

    def piece(origin, rows):
        return np.full((rows,) if width is None else (rows, width), origin * 1.5 + rows)

    # Every rank but the first sends it three pieces: nothing, as many rows as its number, and many bytes.
    rows = [np.zeros(size, np.int64), np.arange(size), np.where(np.arange(size), WINDOW // 4, 0)]
    pieces = [(piece(rank, each[rank]), np.where(np.arange(size), 0, each[rank])) for each in rows]
    finish = communicator.start_sends(pieces if rank else [], "shares")
    if rank == 0:
        for each in rows:
            expected = np.concatenate([piece(origin, each[origin]) for origin in range(size)])
            found = np.zeros_like(expected)
            communicator.receive(found, each)
            np.testing.assert_array_equal(found, expected)
    finish()
    sent = sum(int(each[rank]) for each in rows) * 8 * (width or 1)
    assert counted(communicator) == expected_bytes(communicator, shares=sent)


def test_a_rank_that_sends_late_keeps_no_other_from_sending(communicator):
    """It sends when all others have sent everything, which is more than may be under way."""
    rank, size = communicator.rank, communicator.size
    late = size - 1
    mine, counts = np.full(WINDOW, rank, np.float32), np.where(np.arange(size), WINDOW, 0)
    if rank == 0:
        found = np.empty(int(counts.sum()), np.float32)
        communicator.receive(found, counts)
        np.testing.assert_array_equal(found, np.repeat(np.arange(1, size, dtype=np.float32), WINDOW))
        return
    if rank == late:
        for origin in range(1, late):
            communicator.comm.recv(source=origin)
    communicator.start_sends([(mine, np.where(np.arange(size) == 0, WINDOW, 0))], "shares")()
    if rank != late:
        communicator.comm.send(None, late)


@pytest.mark.parametrize("few", [0, 16], ids=["many ranks", "few ranks"])
@pytest.mark.parametrize("span", [1 << 20, 1 << 32, (1 << 32) + 1])
def test_exchange_ids_brings_each_rank_the_ids_meant_for_it(communicator, span, few, monkeypatch):
    among(few, monkeypatch)
    bounds = np.arange(communicator.size + 1, dtype=np.int64) * span
    width = 4 if span <= 1 << 32 else 8

    def ids_from(origin, to):
        """Ids whose home rank is `to`, the last of them among them."""
        count = rows_for(origin, to, communicator.size, "uneven")
        return np.maximum(bounds[to + 1] - 1 - content(origin, to, count, 1, np.int64)[:, 0] % span, bounds[to])

    parts = [ids_from(communicator.rank, to) for to in range(communicator.size)]
    counts = np.array([len(part) for part in parts], np.int64)
    received, theirs = communicator.exchange_ids(np.concatenate(parts), counts, IdCodec.home_ranks(bounds))
    expected = [ids_from(origin, communicator.rank) for origin in range(communicator.size)]
    assert theirs.tolist() == [len(part) for part in expected]
    np.testing.assert_array_equal(received, np.concatenate(expected))
    sent = int(counts.sum() - counts[communicator.rank])
    control = (8 if few else 2) * (communicator.size - 1)
    assert counted(communicator) == expected_bytes(communicator, ids=width * sent, control=control)


def among(few, monkeypatch):
    """Exchanges as among more than `few` ranks."""
    for module in ("communicator", "mpi_communicator"):
        monkeypatch.setattr(f"leapmpi.comm.{module}.FEW", few)


@pytest.mark.parametrize("few", [0, 16], ids=["many ranks", "few ranks"])
@pytest.mark.parametrize("columns", [None, 1, 3])
@pytest.mark.parametrize("largest", [3, 0xFFFE, 0xFFFF, 1 << 40])
def test_counts_of_any_size_reach_their_ranks(communicator, columns, largest, few, monkeypatch):
    among(few, monkeypatch)
    rank, size = communicator.rank, communicator.size

    def of(origin, to):
        counts = np.arange(columns or 1) + 100 * origin + to
        # One pair of ranks has a large count, and so has the first rank for itself.
        if (origin, to) in ((0, 0), (0, size - 1)):
            counts[-1] = largest
        return counts[0] if columns is None else counts

    counts = np.array([of(rank, to) for to in range(size)])
    theirs = communicator.exchange_counts(counts)
    assert theirs.dtype == np.int64
    assert theirs.tolist() == [of(origin, rank).tolist() for origin in range(size)]
    control = (8 if few else 2) * (columns or 1) * (size - 1)
    long = not few and size > 1 and rank == 0 and largest >= 0xFFFF
    assert counted(communicator) == expected_bytes(communicator, control=control + 8 * (columns or 1) * long)


@pytest.mark.parametrize("length", [0, 1, 1022, 1023, 1024, 1025, 10**6])
def test_broadcast_brings_the_first_ranks_array_to_all(communicator, length):
    given = np.arange(length, dtype=np.int64) * 3 - 5
    got = communicator.broadcast(given if communicator.rank == 0 else None, "schedule")
    np.testing.assert_array_equal(got, given)
    assert got.dtype == np.int64
    assert counted(communicator) == expected_bytes(
        communicator, schedule=8 * length * (communicator.size - 1) * (communicator.rank == 0)
    )


def test_broadcasts_of_changing_lengths_arrive_whole(communicator):
    for length in (3000, 3000, 5, 0, 4000, 1 << 18, 7, 2000):
        given = np.arange(length, dtype=np.int64) - length
        got = communicator.broadcast(given if communicator.rank == 0 else None, "schedule")
        np.testing.assert_array_equal(got, given)


@pytest.mark.parametrize("limit", [1 << 10, 1 << 31])
@pytest.mark.parametrize("length", [0, 1, 40, 1023, 1 << 18])
def test_scatter_brings_each_rank_its_row_of_the_first(communicator, length, limit, monkeypatch):
    monkeypatch.setattr(mpi_buffers, "MESSAGE_LIMIT", limit if length < 2000 else 1 << 31)
    rows = np.arange(communicator.size * length, dtype=np.int64).reshape(communicator.size, length) - 5
    for expected in (0, length, 2 * length):
        given = rows if communicator.rank == 0 else None
        got = communicator.scatter(given, "schedule", expected=expected)
        np.testing.assert_array_equal(got, rows[communicator.rank])
        assert counted(communicator) == expected_bytes(
            communicator, schedule=8 * length * (communicator.size - 1) * (communicator.rank == 0)
        )


@pytest.mark.parametrize("array", [np.zeros((1, 3)), np.zeros((2, 2), np.int64), np.zeros(4, np.int64)])
def test_scatter_refuses_what_others_would_misread(array):
    with pytest.raises(ValueError, match="scatter"):
        MPICommunicator(MPI.COMM_SELF).scatter(array, "schedule", expected=4)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2), np.int64), np.zeros(8, np.int64)[::2]])
def test_broadcast_refuses_what_others_would_misread(array):
    with pytest.raises(ValueError, match="broadcast"):
        MPICommunicator(MPI.COMM_SELF).broadcast(array, "schedule")


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("shape", [(0,), (1,), (37,), (5, 3)])
def test_all_gather_rows_lists_all_ranks_rows(communicator, shape, dtype):
    row = (np.arange(np.prod(shape)).reshape(shape) * (communicator.rank + 1)).astype(dtype)
    rows = communicator.all_gather_rows(row)
    assert rows.shape == (communicator.size, *shape)
    for rank in range(communicator.size):
        np.testing.assert_array_equal(rows[rank], np.arange(np.prod(shape)).reshape(shape) * (rank + 1))
    assert counted(communicator) == expected_bytes(communicator, control=row.nbytes * (communicator.size - 1))


def test_all_gather_objects_lists_all_ranks_values(communicator):
    assert communicator.all_gather_objects({"rank": communicator.rank}) == [
        {"rank": rank} for rank in range(communicator.size)
    ]


@pytest.mark.parametrize("count", [0, 1, 1000, OVER_EAGER])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_after_a_ring_of_hops_every_state_is_back_where_it_was(communicator, kind, count):
    state = np.full(count, communicator.rank, np.float32)
    state = torch.from_numpy(state) if kind == "torch" else state
    memory = state.data_ptr() if kind == "torch" else state.ctypes.data
    for hop in range(1, communicator.size + 1):
        communicator.ring_hop(
            state, (("parameters", state.nbytes // 2), ("gradients", state.nbytes - state.nbytes // 2))
        )
        assert (np.asarray(state) == (communicator.rank + hop) % communicator.size).all()
        halves = {"parameters": state.nbytes // 2, "gradients": state.nbytes - state.nbytes // 2}
        assert counted(communicator) == expected_bytes(communicator, **halves)
    # Parameters are views of this memory.
    assert memory == (state.data_ptr() if kind == "torch" else state.ctypes.data)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 1001, OVER_EAGER])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_all_reduce_is_the_sum_in_rank_order_bit_for_bit(communicator, kind, length, dtype):
    def of(rank):
        return (np.random.default_rng([rank, length]).standard_normal(length) * 10.0 ** (rank * 3)).astype(dtype)

    total = of(0)
    for rank in range(1, communicator.size):
        total = total + of(rank)
    flat = of(communicator.rank)
    communicator.all_reduce(torch.from_numpy(flat) if kind == "torch" else flat)
    assert flat.tobytes() == total.tobytes()

    bounds = [length * rank // communicator.size for rank in range(communicator.size + 1)]
    mine = bounds[communicator.rank + 1] - bounds[communicator.rank]
    numbers = (length - mine) + (communicator.size - 1) * mine
    assert counted(communicator) == expected_bytes(communicator, gradients=numbers * flat.itemsize)


def test_two_kinds_are_counted_apart_and_counting_starts_again(communicator):
    counts = np.ones(communicator.size, np.int64)
    for kind in ("features", "labels", "features"):
        communicator.exchange(np.zeros(communicator.size), counts, np.zeros(communicator.size), counts, kind)
    sent = 8 * (communicator.size - 1)
    assert counted(communicator) == expected_bytes(communicator, features=2 * sent, labels=sent)
    assert counted(communicator) == {}


UNFIT = {
    "transposed": np.zeros((3, 4)).T,
    "strided": np.zeros((4, 4))[:, ::2],
    "complex": np.zeros((3, 4), np.complex64),
    "big-endian": np.zeros((3, 4), ">f4"),
    "object": np.zeros((3, 4), object),
    "torch transposed": torch.zeros(3, 4).T,
    "torch strided": torch.zeros(4, 4)[:, ::2],
    "torch complex": torch.zeros(3, 4, dtype=torch.complex64),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_mpi_would_garble_is_refused_before_anything_is_sent(name):
    """On COMM_SELF: each rank refuses for itself."""
    communicator, array = MPICommunicator(MPI.COMM_SELF), UNFIT[name]
    counts = np.array([len(array)])
    with pytest.raises(ValueError, match=r"contiguous|may not cross"):
        communicator.exchange(array, counts, array, counts, "features")
    with pytest.raises(ValueError, match=r"contiguous|may not cross"):
        mpi_buffers.as_bytes(array, "state")
    assert counted(communicator) == {}


@pytest.mark.parametrize(
    ("send", "receive", "send_count", "receive_count"),
    [
        (np.zeros(3), np.zeros(3, np.float32), 3, 3),
        (np.zeros((3, 2)), np.zeros((2, 3)), 3, 2),
        (np.zeros(3), np.zeros(3), 2, 3),
        (np.zeros(3), np.zeros(3), 3, 4),
    ],
)
def test_counts_and_types_that_contradict_each_other_here_are_refused(send, receive, send_count, receive_count):
    with pytest.raises(CommunicationError):
        MPICommunicator(MPI.COMM_SELF).exchange(
            send, np.array([send_count]), receive, np.array([receive_count]), "features"
        )


def disagree(communicator, sent, received):
    """Rank 0 sends `sent` to rank 1, which has room for `received`; other ranks send nothing."""
    if communicator.size < 2:
        pytest.skip("one rank cannot disagree with itself")
    none = np.zeros(communicator.size, np.int64)
    one_send, one_receive = none.copy(), none.copy()
    if communicator.rank == 0:
        one_send[1] = len(sent)
        communicator.exchange(sent, one_send, sent[:0].copy(), none, "features")
    elif communicator.rank == 1:
        one_receive[0] = len(received)
        with pytest.raises(CommunicationError, match="rank 1"):
            communicator.exchange(received[:0].copy(), none, received, one_receive, "features")
    communicator.comm.barrier()


def test_one_exchange_at_a_time_is_under_way_in_a_channel(communicator):
    counts = np.ones(communicator.size, np.int64)
    arrays = [np.zeros(communicator.size), counts, np.zeros(communicator.size), counts]
    finish = communicator.start_exchange(*arrays, "features")
    with pytest.raises(CommunicationError, match="had ended"):
        communicator.start_exchange(*arrays, "features")
    with pytest.raises(CommunicationError, match="had ended"):
        communicator.exchange_ids(counts, counts, IdCodec.any_id(np.arange(communicator.size + 1)))
    finish()
    communicator.exchange(*arrays, "features")


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_peer_that_sends_another_number_of_rows_is_caught(world_comm, rows):
    disagree(MPICommunicator(world_comm), np.zeros(rows), np.zeros(3))


@pytest.mark.parametrize("types", [("int64", "float64"), ("float32", "int32")])
def test_a_peer_that_sends_another_type_of_the_same_size_is_caught(world_comm, types):
    disagree(MPICommunicator(world_comm), np.zeros(3, types[0]), np.zeros(3, types[1]))


# -- device memory ------------------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["direct", "staged"])
def device_communicator(request, module_comm):
    """A communicator for fake device memory that records what MPI is handed."""
    return MPICommunicator(SpyComm(module_comm), direct=request.param)


def check_memory(communicator, tensors):
    """MPI got the tensors' own memory on the direct path, and none of it on the staged one."""
    pointers = {tensor.data_ptr() + offset for tensor in tensors for offset in range(tensor.nbytes)}
    for buffer in communicator.comm.handed:
        assert isinstance(buffer, mpi_buffers.DeviceBytes) == communicator.staging.direct
        if not communicator.staging.direct:
            assert buffer.ctypes.data not in pointers
    if communicator.staging.direct:
        assert {buffer.pointer for buffer in communicator.comm.handed} <= pointers


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_device_rows_arrive_though_work_on_them_was_not_finished(device_communicator, pattern, dtype):
    communicator = device_communicator
    sent, send_counts, expected, receive_counts = traffic(communicator, pattern, 3, dtype)
    send = FakeDevice.of(np.zeros_like(sent))
    receive = FakeDevice.of(np.zeros_like(expected))
    # Work still to be done: the rows are not written yet, and the place for received ones is not cleared yet.
    launch(send, lambda memory: memory.copy_(torch.from_numpy(sent)))
    launch(receive, lambda memory: memory.fill_(-1))
    communicator.exchange(send, send_counts, receive, receive_counts, "features")
    np.testing.assert_array_equal(receive.host(), expected)
    check_memory(communicator, [send, receive])
    messages = np.count_nonzero(send_counts) + np.count_nonzero(receive_counts)
    assert len(communicator.comm.handed) == messages - 2 * bool(send_counts[communicator.rank])
    others = send_counts.sum() - send_counts[communicator.rank]
    assert counted(communicator) == expected_bytes(communicator, features=others * 3 * np.dtype(dtype).itemsize)


@pytest.mark.parametrize("count", [1, OVER_EAGER])
def test_device_states_go_round_though_work_on_them_was_not_finished(device_communicator, count):
    communicator = device_communicator
    state = FakeDevice.of(np.zeros(count, np.float32))
    launch(state, lambda memory: memory.fill_(communicator.rank))
    for hop in range(1, communicator.size + 1):
        communicator.ring_hop(state, (("parameters", state.nbytes),))
        launch(state, lambda memory: memory.add_(1000))
        assert (state.host() == (communicator.rank + hop) % communicator.size + 1000 * hop).all()


@pytest.mark.parametrize("length", [1, 5, 1001])
def test_device_gradients_are_summed_in_rank_order(device_communicator, length):
    communicator = device_communicator

    def of(rank):
        return np.random.default_rng([rank, length]).standard_normal(length) * 10.0 ** (rank * 3)

    total = of(0)
    for rank in range(1, communicator.size):
        total = total + of(rank)
    flat = FakeDevice.of(np.zeros(length))
    launch(flat, lambda memory: memory.copy_(torch.from_numpy(of(communicator.rank))))
    communicator.all_reduce(flat)
    assert flat.host().tobytes() == total.tobytes()
