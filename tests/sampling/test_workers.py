"""Threads of a sampler: the ranges of the calling thread, and what it attends to between them."""

from itertools import pairwise

import numpy as np
import pytest

from leapmpi.sampling.workers import SamplerThreads
from leapmpi.system.worker_threads import attend, leave


class Looks:
    """Counts how often other work was attended to."""

    def __init__(self):
        self.count = 0

    def look(self):
        self.count += 1


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("by_cost", [True, False])
def test_ranges_make_up_the_whole_and_messages_are_attended_to_between_those_of_the_caller(size, by_cost):
    workers, looks, ranges, n = SamplerThreads(size), Looks(), [], 10_000

    def work(thread, first, end):
        ranges.append((first, end, thread))

    attend(looks.look)
    try:
        if by_cost:
            workers.share_by_cost(np.arange(n + 1) * 3, work)
        else:
            workers.share(0, n, work)
    finally:
        leave(looks.look)
    ranges.sort()
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert {thread for *_, thread in ranges} == set(range(size))
    own = [each for each in ranges if each[2] == 0]
    assert looks.count == len(own) > 1
    assert len(ranges) - len(own) == size - 1
