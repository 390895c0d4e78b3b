"""Messages under way: started in a fixed order, a bounded number of bytes at a time, waited for asleep.

A link that many ranks feed at once is congested and slows down for all. Each rank therefore cuts what it sends into
fragments, sends to one peer after the other in ring order, and keeps only a window of bytes under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from leapmpi.comm.polling import mpi_calls, waits

FRAGMENT = 256 << 10
"""Bytes of one message of an exchange."""

WINDOW = 512 << 10
"""Bytes that a rank keeps under way in each direction."""

_EAGER_TESTS = 5
_SHORTEST_NAP = 20e-6
_LONGEST_NAP = 200e-6


class Message:
    """One MPI message, or one collective call, that is yet to be started."""

    __slots__ = ("size", "window")

    def __init__(self, size: int) -> None:
        self.size = size
        self.window: _Window | None = None

    def start(self) -> Any:
        """Start it; returns its mpi4py request."""
        raise NotImplementedError

    def done(self, status: Any) -> None:
        """It has arrived, with this mpi4py status."""


class Call(Message):
    """A collective that `begin` starts."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], Any]) -> None:
        super().__init__(0)
        self._begin = begin

    def start(self) -> Any:
        """Start it; returns its mpi4py request."""
        return self._begin()


class _Window:
    """The messages of one direction that are yet to be started, and how many bytes may be under way."""

    __slots__ = ("messages", "room", "size")

    def __init__(self, messages: Iterable[Message], size: int) -> None:
        self.size = self.room = size
        self.messages = deque(messages)

    def next(self) -> Message | None:
        """The next message, if there is room for it now. One larger than the window travels alone."""
        if not self.messages or (self.messages[0].size > self.room and self.room < self.size):
            return None
        message = self.messages.popleft()
        message.window = self
        self.room -= message.size
        return message


class MessageQueue:
    """Messages in one direction or more, each in order. MPI matches the n-th message of a peer with its n-th receive.

    `mpi` is mpi4py's MPI module; `window` the bytes that each direction keeps under way.
    """

    def __init__(self, mpi: Any, *directions: Sequence[Message], window: int = WINDOW) -> None:
        self._test = mpi.Request.Testsome
        self._waiting = [_Window(messages, window) for messages in directions if messages]
        self._active: list[Message] = []
        self._requests: list[Any] = []

    @property
    def finished(self) -> bool:
        """Whether all messages have arrived."""
        return not self._active and not self._waiting

    def advance(self) -> bool:
        """Start what fits into the windows and note what has arrived; returns whether anything happened."""
        started = bool(self._waiting) and self._start()
        if not self._active:
            return started
        statuses: list[Any] = []  # mpi4py adds as many as it needs
        arrived = self._test(self._requests, statuses)
        if not arrived:
            return started
        for place, status in zip(arrived, statuses, strict=True):
            message = self._active[place]
            message.window.room += message.size
            message.done(status)
        for place in sorted(arrived, reverse=True):
            del self._active[place], self._requests[place]
        return True

    def _start(self) -> bool:
        before = len(self._active)
        for window in self._waiting:
            while message := window.next():
                self._active.append(message)
                self._requests.append(message.start())
        self._waiting = [window for window in self._waiting if window.messages]
        return len(self._active) > before


class Backoff:
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


def complete(flow: MessageQueue) -> None:
    """Wait until `flow` is finished, asleep while nothing happens."""
    mpi_calls.check()
    pace = Backoff()
    with waits:
        while not flow.finished:
            happened = flow.advance()
            pace.note(happened)
            if happened:
                waits.moves += 1
            else:
                time.sleep(pace.nap())
