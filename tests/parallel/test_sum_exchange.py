"""Shares and own rows that are under way need no rank that waits for them: ranks may do other things first."""

from functools import partial

import numpy as np
import pytest
import torch

from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.comm.progress_thread import ProgressThread
from leapmpi.exchange.raw_sums import SumExchange
from leapmpi.features.row_exchange import RowExchange
from leapmpi.system import channels

WIDTH = 5


@pytest.fixture
def communicator(world_comm):
    found = MPICommunicator(world_comm, ahead=[world_comm.Dup(), world_comm.Dup()])
    thread = ProgressThread()
    thread.start()
    found.progress_thread = thread
    yield found
    thread.stop()
    found.progress_thread = None


def exchange_of(communicator, delivered):
    """Every rank sends every other one two shares, and three own rows."""
    ranks, rank = communicator.size, communicator.rank
    shares, rows = (np.where(np.arange(ranks) == rank, 0, count) for count in (2, 3))
    sent = np.full((int(rows.sum()), WIDTH), rank, np.float32)
    arriving = np.empty_like(sent)
    own = RowExchange(communicator, "features", (sent, rows), (arriving, rows), torch.from_numpy)
    count = int(shares.sum())
    return SumExchange(
        communicator,
        torch.full((count, WIDTH), 10.0 + rank),
        shares,
        lambda: torch.zeros(max(count, 1), WIDTH),
        np.arange(count),
        shares,
        own,
        lambda sums, own: delivered.append((sums, own)),
    )


def test_one_rank_may_wait_where_others_meet_first(communicator):
    delivered = []
    found = exchange_of(communicator, delivered)
    found.begin()

    # The first rank waits and then meets the others, which meet it first.
    channel = partial(channels.enter, channels.AHEAD)
    steps = [found.wait, communicator.barrier] if communicator.rank == 0 else [communicator.barrier, found.wait]
    for step in steps:
        before = channel() if step == communicator.barrier else None
        step()
        if before is not None:
            channels.enter(before)
    found.unpack()

    ((sums, own),) = delivered
    others = [rank for rank in range(communicator.size) if rank != communicator.rank]
    if others:
        assert sums[:, 0].tolist() == [10.0 + rank for rank in others for _ in range(2)]
    assert own[:, 0].tolist() == [rank for rank in others for _ in range(3)]
