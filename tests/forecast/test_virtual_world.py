"""Virtual ranks: what they exchange is delivered or counted, by hand on three ranks."""

import numpy as np
import pytest

from leapmpi.comm.communicator import CommunicationError
from leapmpi.comm.id_codec import IdCodec
from leapmpi.forecast.virtual_world import VirtualWorld

CODEC = IdCodec(np.zeros(3, np.int64), 100)


@pytest.fixture
def world():
    return VirtualWorld(3)


def by_kind(traffic, kind):
    """Bytes of `kind` by sender, and by receiver."""
    return traffic.sent[kind].tolist(), traffic.received[kind].tolist()


def test_ids_reach_the_ranks_that_they_are_sent_to(world):
    sent = [
        (np.array([5, 6, 7]), np.array([0, 1, 2])),
        (np.array([8]), np.array([1, 0, 0])),
        (np.array([]), np.zeros(3)),
    ]

    def exchange(rank):
        ids, counts = (each.astype(np.int64) for each in sent[rank])
        found, counts = world.communicators[rank].exchange_ids(ids, counts, CODEC)
        return found.tolist(), counts.tolist()

    assert world.run(exchange) == [([8], [0, 1, 0]), ([5], [1, 0, 0]), ([6, 7], [2, 0, 0])]
    traffic = world.take()
    assert by_kind(traffic, "ids") == ([12, 4, 0], [4, 4, 8])
    assert by_kind(traffic, "control") == ([16] * 3, [16] * 3)
    assert traffic.pairs.tolist() == [[0, 12, 16], [12, 0, 8], [8, 8, 0]]
    assert world.take().bytes_by_kind()["ids"] == 0


def test_ids_for_all_ranks_reach_them(world):
    found = world.run(lambda rank: world.communicators[rank].spread_ids(np.arange(rank), CODEC))
    assert [[each.tolist() for each in of_rank] for of_rank in found] == [[[], [0], [0, 1]]] * 3
    assert by_kind(world.take(), "ids") == ([0, 8, 16], [12, 8, 4])


def test_rows_are_counted_and_words_are_delivered(world):
    def exchange(rank):
        counts = np.where(np.arange(3) == (rank + 1) % 3, 2, 0)
        arriving = np.where(np.arange(3) == (rank - 1) % 3, 2, 0)
        words, rows = np.zeros(2, np.int32), np.zeros((2, 5), np.float32)
        communicator = world.communicators[rank]
        communicator.exchange(np.full(2, rank, np.int32), counts, words, arriving, "topology")
        communicator.exchange(np.ones_like(rows), counts, rows, arriving, "features")
        return words.tolist(), rows.any()

    assert world.run(exchange) == [([2, 2], False), ([0, 0], False), ([1, 1], False)]
    traffic = world.take()
    assert by_kind(traffic, "topology") == ([8] * 3, [8] * 3)
    assert by_kind(traffic, "features") == ([40] * 3, [40] * 3)
    assert traffic.pairs.tolist() == [[0, 48, 0], [0, 0, 48], [48, 0, 0]]


def test_a_reduction_a_hop_a_broadcast_and_a_vote(world):
    def work(rank):
        communicator = world.communicators[rank]
        communicator.all_reduce(np.zeros(7, np.float32))
        communicator.ring_hop(np.zeros(1), (("parameters", 5),), 2)
        communicator.ring_hop(np.zeros(1), (("parameters", 7),), 3)
        assert communicator.start_all_reduce_maximum(0)() == 0
        return communicator.broadcast(np.array([3, 4]) if rank == 0 else None, "schedule").tolist()

    assert world.run(work) == [[3, 4]] * 3
    traffic = world.take()
    # Slices of 2, 2 and 3 numbers: each is sent to its adder by two ranks, and its sum to two ranks.
    assert by_kind(traffic, "gradients") == ([36, 36, 40], [36, 36, 40])
    assert by_kind(traffic, "parameters") == ([5] * 3, [5] * 3)
    assert by_kind(traffic, "schedule") == ([32, 0, 0], [0, 16, 16])
    assert by_kind(traffic, "control") == ([16] * 3, [16] * 3)


def test_gathered_values_and_counts(world):
    def work(rank):
        communicator = world.communicators[rank]
        rows, values = communicator.all_gather_rows(np.array([rank])), communicator.all_gather_objects({"rank": rank})
        return (
            rows.ravel().tolist(),
            [each["rank"] for each in values],
            communicator.exchange_counts(10 * rank + np.arange(3)).tolist(),
        )

    assert world.run(work) == [([0, 1, 2], [0, 1, 2], [rank, 10 + rank, 20 + rank]) for rank in range(3)]


def test_ranks_that_do_not_take_part_alike_are_an_error(world):
    with pytest.raises(CommunicationError, match="same exchanges"):
        world.run(lambda rank: rank and world.communicators[rank].all_gather_rows(np.zeros(1)))


def test_the_error_of_a_rank_is_raised(world):
    def work(rank):
        world.communicators[rank].all_gather_rows(np.zeros(1))
        raise ValueError(f"rank {rank}")

    with pytest.raises(ValueError, match="rank 0"):
        world.run(work)
