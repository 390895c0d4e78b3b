"""Waiting for MPI requests without burning a processor: test, then sleep a little longer each time."""

from __future__ import annotations

import time
from typing import Any

_EAGER_TESTS = 50
_SHORTEST_SLEEP = 20e-6
_LONGEST_SLEEP = 1e-3


def wait_all(requests: list[Any]) -> None:
    """Wait for all mpi4py `requests`, asleep between tests."""
    if not requests:
        return
    test_all = type(requests[0]).Testall
    tests, nap = 0, _SHORTEST_SLEEP
    while not test_all(requests):
        tests += 1
        if tests <= _EAGER_TESTS:
            time.sleep(0)
            continue
        time.sleep(nap)
        nap = min(nap * 1.5, _LONGEST_SLEEP)
