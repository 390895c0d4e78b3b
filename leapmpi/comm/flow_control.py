"""Messages under way: started in a fixed order, a bounded number of bytes at a time.

A link that many ranks feed at once is congested and slows down for all. Each rank therefore cuts what it sends into
fragments, sends to one peer after the other in ring order, and keeps only a window of bytes under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from leapmpi.comm.interleaving import runs_ahead, take_turns
from leapmpi.comm.polling import Backoff, mpi_calls, waits
from leapmpi.system.worker_threads import attend, leave

if TYPE_CHECKING:
    from mpi4py import MPI

Start = Callable[[], "MPI.Request"]
"""Starts one non-blocking MPI call and returns its request."""

Finish = Callable[[Start], None]
"""Starts an MPI call and waits for its end."""

FRAGMENT = 256 << 10
"""Bytes of one message of an exchange."""

WINDOW = 512 << 10
"""Bytes that a rank keeps under way in each direction."""


class Message:
    """One MPI message of `size` bytes, or one collective call, which counts none, that is yet to be started.

    The thread that makes MPI calls calls `start`, and `done`, where given, with the status of its arrival. `peer` and
    `code` are the other rank of the job and the type that is the message's tag, for people.
    """

    __slots__ = ("code", "done", "peer", "size", "start", "window")
    window: _Window

    def __init__(
        self,
        start: Start,
        size: int = 0,
        done: Callable[[MPI.Status], None] | None = None,
        peer: int | None = None,
        code: int = 0,
    ) -> None:
        self.start = start
        self.size = size
        self.done = done
        self.peer = peer
        self.code = code

    def __str__(self) -> str:
        """Describe the call: 'Irecv, rank 2, tag 3 (int64), 1,032 bytes', or the name of a collective call."""
        call = getattr(self.start, "func", self.start).__name__
        if self.peer is None:
            return call
        # Programs that only read their flags load no numpy.
        from leapmpi.comm.mpi_buffers import DTYPES

        return f"{call}, rank {self.peer}, tag {self.code} ({DTYPES[self.code]}), {self.size:,} bytes"


class _Window:
    """The messages of one direction that are yet to be started, and how many bytes may be under way."""

    __slots__ = ("messages", "room", "size")

    def __init__(self, messages: Iterable[Message], size: int) -> None:
        self.size = self.room = size
        self.messages = deque(messages)

    def next(self) -> Message | None:
        """Return the next message, if there is room for it now. One larger than the window travels alone."""
        if not self.messages or (self.messages[0].size > self.room and self.room < self.size):
            return None
        message = self.messages.popleft()
        message.window = self
        self.room -= message.size
        return message


class MessageQueue:
    """Messages of several directions, each in order: MPI matches the n-th message of a peer with its n-th receive."""

    def __init__(self, *directions: Sequence[Message]) -> None:
        """Queue the messages of each direction, in order of their start; none starts before the first `advance`."""
        self._windows = [_Window(messages, WINDOW) for messages in directions if messages]
        self._active: list[Message] = []
        self._requests: list[MPI.Request] = []

    def __str__(self) -> str:
        """Describe the messages under way, and the number that follow. Any thread may call this."""
        begun, windows = [str(each) for each in list(self._active)], list(self._windows)
        following = sum(len(each.messages) for each in windows)
        return "; ".join([*begun, f"{following} more to start"] if following or not begun else begun)

    @property
    def finished(self) -> bool:
        """Whether every message has arrived or gone."""
        return not self._active and not self._windows

    def advance(self) -> bool:
        """Start what fits into the windows and note what has arrived; returns whether anything happened."""
        # Start messages, then test all that are under way.
        started = bool(self._windows) and self._start()
        if not self._active:
            return started
        statuses: list[MPI.Status] = []  # mpi4py adds as many as it needs
        arrived = type(self._requests[0]).Testsome(self._requests, statuses)
        if not arrived:
            return started

        # What has arrived makes room in its window.
        for place, status in zip(arrived, statuses, strict=True):
            message = self._active[place]
            message.window.room += message.size
            if message.done:
                message.done(status)
        for place in sorted(arrived, reverse=True):
            del self._active[place], self._requests[place]
        return True

    def _start(self) -> bool:
        before = len(self._active)
        for window in self._windows:
            while message := window.next():
                self._active.append(message)
                self._requests.append(message.start())
        self._windows = [window for window in self._windows if window.messages]
        return len(self._active) > before


class UnderWay:
    """Messages that the calling thread takes further between pieces of its own work, until it waits for their end."""

    def __init__(self, messages: MessageQueue) -> None:
        self._messages = messages
        self._error: Exception | None = None
        self._step_waits = False
        mpi_calls.check()
        waits.moves += messages.advance()
        if not messages.finished:
            attend(self._attend)

    def wait(self) -> None:
        """Wait for the end of the messages; raises what went wrong with them. Called once.

        Interleaved work goes on meanwhile; else the thread sleeps while nothing happens.
        """
        backoff = Backoff()
        with waits.of(self._messages):
            self._step_waits = not runs_ahead()
            try:
                while not (self._error or self._messages.finished):
                    # Work ahead uses the wait; only if it has nothing to do either, the thread sleeps.
                    happened = self._attend()
                    backoff.note(happened)
                    if not happened and not take_turns():
                        time.sleep(backoff.nap())
            finally:
                self._step_waits = False
        if self._error is not None:
            raise self._error

    def _attend(self) -> bool:
        """Take the messages further; returns whether anything happened."""
        happened = False
        try:
            happened = self._messages.advance()
            waits.moves += happened
        except Exception as error:
            # It belongs to who waits, not to whose work goes on meanwhile.
            self._error = error
        if self._error or self._messages.finished:
            leave(self._attend)
            # Work ahead makes way for the step that has waited for these messages.
            if self._step_waits and runs_ahead():
                take_turns()
        return happened


def wait_for(start: Start) -> None:
    """Start an MPI call on the calling thread and wait for its end, asleep between tests."""
    UnderWay(MessageQueue([Message(start)])).wait()
