"""Messages under way: started in a fixed order, a bounded number of bytes at a time.

A link that many ranks feed at once is congested and slows down for all. Each rank therefore cuts what it sends into
fragments, sends to one peer after the other in ring order, and keeps only a window of bytes under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py import MPI

FRAGMENT = 256 << 10
"""Bytes of one message of an exchange."""

WINDOW = 512 << 10
"""Bytes that a rank keeps under way in each direction."""


class Message:
    """One MPI message, or one collective call, that is yet to be started."""

    __slots__ = ("size", "window")

    def __init__(self, size: int) -> None:
        """A message of `size` bytes; a collective call counts none."""
        self.size = size
        self.window: _Window | None = None

    def start(self) -> MPI.Request:
        """Start it."""
        raise NotImplementedError

    def done(self, status: MPI.Status) -> None:
        """It has arrived, with this status."""


class Call(Message):
    """A collective that `begin` starts."""

    __slots__ = ("_begin",)

    def __init__(self, begin: Callable[[], MPI.Request]) -> None:
        """`begin` is called by the thread that makes MPI calls."""
        super().__init__(0)
        self._begin = begin

    def start(self) -> MPI.Request:
        """Start it."""
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
    """Messages of several directions, each in order: MPI matches the n-th message of a peer with its n-th receive."""

    def __init__(self, mpi: ModuleType, *directions: Sequence[Message], window: int = WINDOW) -> None:
        """Queue the messages of `directions`; nothing is started before the first `advance`.

        Args:
            mpi: mpi4py's MPI module.
            directions: the messages of each direction, in the order in which they start.
            window: bytes that each direction keeps under way.
        """
        self._test = mpi.Request.Testsome
        self._windows = [_Window(messages, window) for messages in directions if messages]
        self._active: list[Message] = []
        self._requests: list[MPI.Request] = []

    @property
    def finished(self) -> bool:
        """Whether all messages have arrived."""
        return not self._active and not self._windows

    def advance(self) -> bool:
        """Start what fits into the windows and note what has arrived; returns whether anything happened."""
        # Start messages, then test all that are under way.
        started = bool(self._windows) and self._start()
        if not self._active:
            return started
        statuses: list[MPI.Status] = []  # mpi4py adds as many as it needs
        arrived = self._test(self._requests, statuses)
        if not arrived:
            return started

        # What has arrived makes room in its window.
        for place, status in zip(arrived, statuses, strict=True):
            message = self._active[place]
            message.window.room += message.size
            message.done(status)
        for place in sorted(arrived, reverse=True):
            del self._active[place], self._requests[place]
        return True

    def _start(self) -> bool:
        """Start what fits into the windows; returns whether there was anything."""
        before = len(self._active)
        for window in self._windows:
            while message := window.next():
                self._active.append(message)
                self._requests.append(message.start())
        self._windows = [window for window in self._windows if window.messages]
        return len(self._active) > before
