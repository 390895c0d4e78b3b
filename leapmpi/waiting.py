"""Waiting for MPI requests without burning a processor: test, then sleep a little longer each time."""

from __future__ import annotations

import time
from typing import Any

_EAGER_TESTS = 50
_SHORTEST_SLEEP = 20e-6
_LONGEST_SLEEP = 1e-3


class Waits:
    """How this process gets on with waiting for other ranks: read by the watchdog's thread, never by the hot path.

    `begun` counts waits, in step on all ranks that run the same collectives; `moves` counts beginnings, ends and
    arrivals; `waiting` is true inside a wait.
    """

    def __init__(self) -> None:
        self.begun = 0
        self.moves = 0
        self.waiting = False

    def __enter__(self) -> None:
        self.begun += 1
        self.moves += 1
        self.waiting = True

    def __exit__(self, *error: object) -> None:
        self.moves += 1
        self.waiting = False


waits = Waits()
"""Those of this process."""


def wait_all(requests: list[Any]) -> None:
    """Wait for all mpi4py `requests`, asleep between tests."""
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
