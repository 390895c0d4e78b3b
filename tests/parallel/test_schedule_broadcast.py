"""Every rank gets what it reads of schedules that rank 0 makes, one at a time or several; each counts when used."""

import numpy as np
import pytest

from leapmpi.comm.mpi_communicator import MPICommunicator
from leapmpi.engine.schedule_broadcast import Reading, ScheduleBroadcast
from leapmpi.plan.planner import plan_leap, plan_pull
from leapmpi.plan.schedule_buffers import part_buffers, whole_buffer

SIZE, EPOCH = 40, 3


@pytest.fixture
def communicator(world_comm):
    return MPICommunicator(world_comm)


def batch_of(iteration, size=SIZE):
    return np.arange(size) * 3 + iteration


def coming(communicator, iterations, size=SIZE):
    known = communicator.rank == 0
    return [(batch_of(each, size) if known else None, EPOCH, each) for each in iterations]


def received(communicator, found, asked):
    """Asks for each of `asked`; what it gives is what rank 0 plans, whose iterations are returned, in their order."""
    made = []

    def make(batch, epoch, iteration):
        made.append(iteration)
        return plan_pull(batch, communicator.size, epoch=epoch, iteration=iteration)

    for batch, epoch, iteration in asked:
        schedule = found.schedule(batch, epoch, iteration, make)
        assert (schedule.epoch, schedule.iteration) == (epoch, iteration)
        assert schedule.roots.tolist() == batch_of(iteration, schedule.batch_size).tolist()
        counted = communicator.byte_counters.take()[0]["schedule"]
        assert counted == (communicator.rank == 0) * whole_buffer(schedule).nbytes * (communicator.size - 1)
    assert (made == []) == (communicator.rank > 0)
    return made


def test_what_is_expected_comes_in_growing_groups_and_what_is_not_alone(communicator):
    found = ScheduleBroadcast(communicator)
    asked = coming(communicator, range(9))
    found.expect(asked)
    # Another one in between, as a trial would ask for it, is not among them.
    received(communicator, found, asked[:2])
    received(communicator, found, coming(communicator, [99]))
    made = received(communicator, found, asked[2:])
    if communicator.rank == 0:
        assert made == [3, 4, 5, 6, 7, 8]


def test_without_expectation_each_is_made_when_it_is_asked_for(communicator):
    made = received(communicator, ScheduleBroadcast(communicator), coming(communicator, [4, 2, 7]))
    assert made == ([4, 2, 7] if communicator.rank == 0 else [])


def test_a_new_epoch_forgets_what_was_left_of_the_one_before(communicator):
    found = ScheduleBroadcast(communicator)
    first = coming(communicator, range(6))
    found.expect(first)
    received(communicator, found, first[:2])
    found.expect(coming(communicator, range(2, 6)))
    assert received(communicator, found, first[2:]) == ([2, 3, 4, 5] if communicator.rank == 0 else [])


def test_long_ones_go_one_by_one(communicator):
    found, size = ScheduleBroadcast(communicator), 1 << 20
    asked = coming(communicator, range(4), size)
    found.expect(asked)
    for number in range(4):
        assert received(communicator, found, asked[number : number + 1]) == [number] * (communicator.rank == 0)


@pytest.mark.parametrize("steps", ["one", "all"])
@pytest.mark.parametrize("further", [[], [1]], ids=["own", "own and next"])
@pytest.mark.parametrize("size", [0, 3, 64, 1 << 16])
def test_a_rank_gets_the_cells_that_it_reads_and_no_others(communicator, steps, further, size):
    ranks, steps = communicator.size, 1 if steps == "one" else communicator.size
    offsets = np.arange(ranks + 1) * (3 * size + 9)
    shifts = dict.fromkeys([0, *(each % ranks for each in further)])
    read = np.stack([(np.arange(ranks) + each) % ranks for each in shifts], axis=1)
    found = ScheduleBroadcast(communicator, Reading(read, offsets))
    asked = coming(communicator, range(5), size)
    found.expect(asked)

    def make(batch, epoch, iteration):
        return plan_leap(batch, offsets, steps, epoch=epoch, iteration=iteration)

    for batch, epoch, iteration in asked:
        whole = plan_leap(batch_of(iteration, size), offsets, steps, epoch=epoch, iteration=iteration)
        mine = found.schedule(batch, epoch, iteration, make)
        assert (mine.epoch, mine.iteration, mine.ranks, mine.time_steps) == (epoch, iteration, ranks, steps)
        assert (mine.batch_size, mine.is_local(offsets)) == (size, True)
        for rank in read[communicator.rank].tolist():
            for step in range(steps):
                assert mine.cell(rank, step).tolist() == whole.cell(rank, step).tolist()
                assert mine.model_of(rank, step) == whole.model_of(rank, step)
        if communicator.rank and len(read[0]) < ranks:
            with pytest.raises(IndexError, match="not held"):
                mine.cell((communicator.rank - 1) % ranks, 0)
        words = part_buffers(whole, read, offsets)[1]
        counted = communicator.byte_counters.take()[0]["schedule"]
        assert counted == (communicator.rank == 0) * 8 * int(words[1:].sum())
