"""Ranks agree: an error of one is raised on all, and the world is described alike everywhere."""

import time

import pytest
from mpi4py import MPI

from leapmpi.comm.flow_control import wait_for
from leapmpi.comm.world import finish, start
from leapmpi.errors import ConfigError, DataError


def test_every_rank_knows_its_place(world):
    assert (world.rank, world.size) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    assert (world.node, world.nodes) == (0, 1)
    assert world.node_comm.size == world.size
    assert world.name == f"rank {world.rank}/{world.size} on {world.host}"
    assert MPI.Comm.Compare(world.comm, MPI.COMM_WORLD) == MPI.CONGRUENT


def test_each_rank_gets_its_result(world):
    assert world.on_all(lambda: world.rank * 2) == world.rank * 2


@pytest.mark.parametrize("failing", [[0], [-1], [0, -1]])
def test_the_error_of_the_lowest_failing_rank_is_raised_on_all(world, failing):
    ranks = {rank % world.size for rank in failing}

    def action():
        if world.rank in ranks:
            raise (DataError if world.rank % 2 else ConfigError)(f"rank {world.rank} cannot go on")

    with pytest.raises((ConfigError, DataError)) as caught:
        world.on_all(action)
    lowest = min(ranks)
    assert str(caught.value) == f"rank {lowest} cannot go on"
    assert isinstance(caught.value, DataError if lowest % 2 else ConfigError)
    assert caught.value.agreed
    assert caught.value.rank == lowest
    assert world.comm.allreduce(1) == world.size


def test_an_action_on_the_root_runs_there_alone(world):
    ran = []
    found = world.on_root(lambda: ran.append(world.rank) or "done")
    assert (found, ran) == (("done", [0]) if world.rank == 0 else (None, []))


def test_an_error_on_the_root_is_raised_on_all(world):
    def action():
        raise DataError(f"rank {world.rank} cannot go on")

    with pytest.raises(DataError, match="rank 0 cannot go on") as caught:
        world.on_root(action)
    assert caught.value.agreed
    assert caught.value.rank == 0


def test_a_world_can_be_started_and_given_back_many_times(world):
    # Open MPI has room for some 2**16 communicators, other libraries for 2**11.
    for _ in range(20):
        finish(start(threads=1, comm=world.comm))


def test_waiting_ranks_leave_the_processor_alone(world):
    world.comm.barrier()
    if world.rank == 0:
        time.sleep(0.6)
    spent = time.process_time()
    wait_for(world.comm.Ibarrier)
    if world.rank:
        assert time.process_time() - spent < 0.3
