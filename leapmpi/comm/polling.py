"""Waiting for MPI requests without burning a processor: test, then sleep a little longer each time."""

from __future__ import annotations

import threading
import time
from typing import Any

from leapmpi.system import channels

_EAGER_TESTS = 50
_SHORTEST_SLEEP = 20e-6
_LONGEST_SLEEP = 1e-3


class Waits:
    """How this process gets on with waiting for other ranks: read by the watchdog's thread, never by the hot path.

    `begun` counts waits, in step on all ranks that run the same collectives, but for what one has done ahead of the
    other; `moves` counts beginnings, ends and arrivals; `waiting` is true while training is in a wait, or gets no work
    because what is done ahead is in one.
    """

    def __init__(self) -> None:
        self.moves = 0
        self.for_work = False
        """Whether training is waiting for work that is done ahead."""
        self._begun = [0 for _ in channels.LANES]
        self._within = [False for _ in channels.LANES]

    @property
    def begun(self) -> int:
        """Waits begun in all lanes."""
        return sum(self._begun)

    @property
    def waiting(self) -> bool:
        """Whether this rank cannot go on without others."""
        training, *others = self._within
        return training or (self.for_work and any(others))

    def __enter__(self) -> None:
        self._begun[channels.current()] += 1
        self.moves += 1
        self._within[channels.current()] = True

    def __exit__(self, *error: object) -> None:
        self.moves += 1
        self._within[channels.current()] = False


waits = Waits()
"""Those of this process."""


class MpiCalls:
    """Which thread may make MPI calls, where one has taken them over (`leapmpi.comm.progress_thread`)."""

    def __init__(self) -> None:
        self._owner: int | None = None

    def belong_to(self, thread: int | None) -> None:
        """From now on `thread` (its identifier) alone makes MPI calls; None: whichever does, one at a time."""
        self._owner = thread

    def check(self) -> None:
        """Raise RuntimeError in a thread that may not make MPI calls now: a defect of leapmpi."""
        if self._owner not in (None, threading.get_ident()):
            raise RuntimeError("an MPI call from a thread that does not own MPI; go through Wire")


mpi_calls = MpiCalls()
"""Those of this process."""


def wait_all(requests: list[Any]) -> None:
    """Wait for all mpi4py `requests`, asleep between tests."""
    mpi_calls.check()
    if not requests:
        return
    test_all = type(requests[0]).Testall
    tests, nap = 0, _SHORTEST_SLEEP
    with waits:
        while not test_all(requests):
            tests += 1
            if tests <= _EAGER_TESTS:
                time.sleep(0)
                continue
            time.sleep(nap)
            nap = min(nap * 1.5, _LONGEST_SLEEP)
