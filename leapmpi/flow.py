"""Messages under way: started in a fixed order, a bounded number of bytes at a time, waited for asleep.

A link that many ranks feed at once is congested and slows down for all. Each rank therefore cuts what it sends into
fragments, sends to one peer after the other in ring order, and keeps only a window of bytes under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from leapmpi.waiting import mpi_calls, waits

FRAGMENT = 256 << 10
"""Bytes of one message of an exchange."""

WINDOW = 512 << 10
"""Bytes that a rank keeps under way in each direction."""

_EAGER_TESTS = 20
_SHORTEST_NAP = 20e-6
_LONGEST_NAP = 200e-6


@dataclass(frozen=True)
class Message:
    """One MPI message that is yet to be started. `start` returns its mpi4py request; `done` gets its status."""

    size: int
    start: Callable[[], Any]
    done: Callable[[Any], None] | None = None


class Flow:
    """The messages of one direction, in order. MPI matches the n-th message of a peer with its n-th receive.

    `mpi` is mpi4py's MPI module.
    """

    def __init__(self, mpi: Any, messages: Iterable[Message], window: int = WINDOW) -> None:
        self._mpi = mpi
        self._waiting = deque(messages)
        self._active: list[Message] = []
        self._requests: list[Any] = []
        self._room = window
        self._window = window

    @property
    def finished(self) -> bool:
        """Whether all messages have arrived."""
        return not self._waiting and not self._active

    def advance(self) -> bool:
        """Start what fits into the window and note what has arrived; returns whether anything happened."""
        started = self._start()
        if not self._active:
            return started
        statuses = [self._mpi.Status() for _ in self._requests]
        arrived = self._mpi.Request.Testsome(self._requests, statuses)
        if not arrived:
            return started
        finished = [self._active[place] for place in arrived]
        for message, status in zip(finished, statuses, strict=False):
            self._room += message.size
            if message.done:
                message.done(status)
        self._active = [each for place, each in enumerate(self._active) if place not in arrived]
        self._requests = [each for place, each in enumerate(self._requests) if place not in arrived]
        return True

    def _start(self) -> bool:
        started = False
        # A message larger than the window travels alone.
        while self._waiting and (self._waiting[0].size <= self._room or self._room == self._window):
            message = self._waiting.popleft()
            self._room -= message.size
            self._active.append(message)
            self._requests.append(message.start())
            started = True
        return started


def advance_all(flows: Iterable[Flow]) -> bool:
    """Take each of `flows` a step further; returns whether anything happened."""
    happened = [flow.advance() for flow in flows]
    return any(happened)


class Pace:
    """How long to sleep between tests: not at all at first, then longer each time nothing has happened."""

    def __init__(self) -> None:
        self.note(True)

    def note(self, happened: bool) -> None:
        """Whether the last test found anything new."""
        self._idle = 0 if happened else self._idle + 1
        if happened:
            self._nap = _SHORTEST_NAP

    def nap(self) -> float:
        """Seconds to sleep before the next test."""
        if self._idle <= _EAGER_TESTS:
            return 0.0
        nap, self._nap = self._nap, min(self._nap * 1.5, _LONGEST_NAP)
        return nap


def complete(*flows: Flow) -> None:
    """Wait until all `flows` are finished, asleep while nothing happens."""
    mpi_calls.check()
    pace = Pace()
    with waits:
        while not all(flow.finished for flow in flows):
            happened = advance_all(flows)
            pace.note(happened)
            if happened:
                waits.moves += 1
            else:
                time.sleep(pace.nap())
