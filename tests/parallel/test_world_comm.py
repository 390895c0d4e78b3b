"""The harness itself: each rank is in one job of the size that was asked for, and messages arrive."""

import os

import numpy as np
import pytest


def test_the_job_has_the_size_that_was_asked_for(world_comm):
    if "LEAPMPI_TEST_RANKS" not in os.environ:
        pytest.skip("not started by tests/test_parallel.py")
    assert world_comm.size == int(os.environ["LEAPMPI_TEST_RANKS"])


@pytest.mark.parametrize("count", [0, 1, 300_000])
def test_a_ring_of_any_message_size_passes_all_rows_round(world_comm, count):
    rank, size = world_comm.rank, world_comm.size
    sent, received = np.full(count, rank, np.float64), np.empty(count)
    for hop in range(1, size + 1):
        world_comm.Sendrecv(sent, (rank + 1) % size, recvbuf=received, source=(rank - 1) % size)
        np.testing.assert_array_equal(received, (rank - hop) % size)
        sent = received.copy()


def test_a_sum_counts_every_rank_once(world_comm):
    assert world_comm.allreduce(1 << world_comm.rank) == (1 << world_comm.size) - 1
