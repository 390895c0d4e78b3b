"""Ranks that prepare mini-batches for another: threads of this process, in an order that the test forces."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import torch

from leapmpi.comm.byte_counters import ByteCounters
from leapmpi.engine.ahead.prefetch_task import PrefetchTask
from leapmpi.engine.ahead.thread_prefetcher import ThreadPrefetcher
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.system.phase_timers import PhaseTimers

PATIENCE = 10.0
DEPTH = 3
JOBS = [PrefetchTask(None, 0, number) for number in range(6)]
AHEAD, BEHIND = 0, 1


def wait_until(holds, what):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.001)


class Shipment(MiniBatch):
    """A mini-batch of a rank that prepares; who computes gets nothing of it before all ranks have sent theirs."""

    def __init__(self, engine, number):
        nothing = SimpleNamespace(begin=lambda: None, wait=lambda: None, unpack=lambda: None)
        super().__init__(None, None, [], row_exchange=nothing)
        self.engine, self.number = engine, number

    def unpack(self):
        super().unpack()
        self.engine.shipped[self.number].set()

    def settle(self):
        for engine in self.engine.all_ranks:
            assert engine.shipped[self.number].wait(PATIENCE), f"a rank waits for ever for share {self.number}"


class Preparing:
    """The engine of a rank that prepares; all ranks plan an iteration together."""

    preparation, overlaps = SimpleNamespace(ships=True), False

    def __init__(self, rank, all_ranks, planning):
        self.rank, self.all_ranks, self.planning = rank, all_ranks, planning
        communicator = SimpleNamespace(size=3, byte_counters=ByteCounters(3), progress_thread=None)
        self.ctx = SimpleNamespace(communicator=communicator, phases=PhaseTimers(), device=torch.device("cpu"))
        self.shipped = [threading.Event() for _ in JOBS]
        self.has_taken = threading.Event()
        self.thread = 0

    def plan(self, batch, epoch, iteration):
        self.thread = threading.get_ident()
        if self.rank == AHEAD and iteration == DEPTH - 1:
            assert self.has_taken.wait(PATIENCE)
        self.planning[iteration].wait(2 * PATIENCE)
        return Shipment(self, iteration)

    def request(self, minibatch):
        pass

    @property
    def stands_still(self):
        """Whether the thread that runs ahead waits for something."""
        return sys._current_frames()[self.thread].f_code is threading.Condition.wait.__code__

    def train(self):
        """What this rank has taken, when it has taken all."""
        taken = []
        with ThreadPrefetcher(self, JOBS, DEPTH) as ahead:
            if self.rank == BEHIND:
                # Nothing more may be prepared before the first one is taken, which others have done by now.
                wait_until(self.shipped[DEPTH - 1].is_set, "all that may be prepared is prepared")
                wait_until(lambda: self.stands_still, "its thread has nothing to do")
            for _ in JOBS:
                taken.append(ahead.next().number)
                self.has_taken.set()
        return taken


def test_a_rank_that_may_go_on_and_one_that_may_not_yet_do_not_wait_for_each_other():
    """One plans the next mini-batch, which needs the other, before it sends what it holds, which the other has sent."""
    engines = []
    planning = [threading.Barrier(2) for _ in JOBS]
    engines += [Preparing(rank, engines, planning) for rank in (AHEAD, BEHIND)]
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(Preparing.train, engines)) == [list(range(len(JOBS)))] * 2
