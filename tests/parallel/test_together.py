"""Ranks agree: an error of one is raised on all, and the world is described alike everywhere."""

import time

import pytest
from mpi4py import MPI

from leapmpi.comm.polling import wait_all
from leapmpi.comm.world import finish, on_all_ranks, start
from leapmpi.errors import ConfigError, DataError


def test_every_rank_knows_its_place(world):
    assert (world.rank, world.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    assert (world.node, world.nodes) == (0, 1)
    assert world.node_comm.size == world.size
    assert world.name == f"rank {world.rank}/{world.size} on {world.host}"
    assert MPI.Comm.Compare(world.comm, MPI.COMM_WORLD) == MPI.CONGRUENT


def test_results_are_each_ranks_own(world):
    assert on_all_ranks(world, lambda: world.rank * 2) == world.rank * 2


@pytest.mark.parametrize("failing", [[0], [-1], [0, -1]])
def test_the_error_of_the_lowest_failing_rank_is_raised_on_all(world, failing):
    ranks = {rank % world.size for rank in failing}

    def action():
        if world.rank in ranks:
            raise (DataError if world.rank % 2 else ConfigError)(f"rank {world.rank} cannot go on")

    with pytest.raises((ConfigError, DataError)) as caught:
        on_all_ranks(world, action)
    lowest = min(ranks)
    assert str(caught.value) == f"rank {lowest} cannot go on"
    assert isinstance(caught.value, DataError if lowest % 2 else ConfigError)
    assert caught.value.agreed
    assert caught.value.rank == lowest
    assert world.comm.allreduce(1) == world.size


def test_a_world_can_be_started_and_given_back_many_times(world):
    # Open MPI has room for some 2**16 communicators, other libraries for 2**11.
    for _ in range(20):
        finish(start(threads=1, comm=world.comm))


def test_waiting_ranks_leave_the_processor_alone(world):
    world.comm.barrier()
    if world.rank == 0:
        time.sleep(0.6)
    spent = time.process_time()
    wait_all([world.comm.Ibarrier()])
    if world.rank:
        assert time.process_time() - spent < 0.3


def test_waiting_for_nothing_ends_at_once():
    assert wait_all([]) is None
