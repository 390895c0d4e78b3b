"""Work that a thread does while it waits for messages: iterations after the one that is trained.

The work has a stack of its own (a greenlet) and is ordinary code. Where it would wait for messages itself, whoever
waited before goes on. Only one of the two runs at a time, on one thread, so that MPI needs no support of threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FrameType

from greenlet import getcurrent, greenlet

from leapmpi.comm.polling import Backoff, waits
from leapmpi.errors import Interrupted
from leapmpi.system import channels
from leapmpi.system.worker_threads import leave_all


class InterleavedWork:
    """`body`, in the channel AHEAD, done piece by piece from now on where its thread waits, until it has ended.

    Each piece is done in the context that `piece` makes: modes that belong to the thread are those of whoever waits.
    There is one work at a time.
    """

    def __init__(
        self, body: Callable[[], None], piece: Callable[[], AbstractContextManager[object]] = nullcontext
    ) -> None:
        self._body, self._piece = body, piece
        self._thread = threading.get_ident()
        self._error: BaseException | None = None
        self._channel = channels.AHEAD
        self._stack = greenlet(self._run)
        _Turns.work = self

    @property
    def ended(self) -> bool:
        """Whether the body has returned, or raised."""
        return self._stack.dead

    @property
    def done(self) -> bool:
        """Whether the body has returned, without an error."""
        return self.ended and self._error is None

    def go_on(self) -> bool:
        """Resume the body until it waits or ends; returns whether it made progress. Not called within it."""
        if self.ended:
            return False
        moves = waits.moves
        outer = channels.enter(self._channel)
        waits.interleaved = True
        try:
            with self._piece():
                self._stack.switch()
        finally:
            waits.interleaved = False
            self._channel = channels.enter(outer)
        if self.ended:
            _Turns.work = None
            # A signal takes effect at once, not when the work is next requested.
            if isinstance(self._error, Interrupted) or not isinstance(self._error, Exception | None):
                raise self._error
        return self.ended or waits.moves != moves

    def finish(self, enough: Callable[[], bool] = lambda: False) -> None:
        """Resume until `enough` holds, or the body has ended; sleep while it makes no progress.

        Raises the body's error.
        """
        backoff = Backoff()
        while not (self.ended or enough()):
            # Sleep grows with idle turns, so that a long wait leaves the core to other ranks of the host.
            happened = self.go_on()
            backoff.note(happened)
            if not happened:
                time.sleep(backoff.nap())
        if self._error is not None and not enough():
            raise self._error

    def abandon(self) -> None:
        """Leave the body suspended: keep its objects for the life of the process, since messages may be under way."""
        if not self.ended:
            leave_all()
            waits.forget(channels.AHEAD)
            _abandoned.append(self)
        if _Turns.work is self:
            _Turns.work = None

    def _run(self) -> None:
        try:
            self._body()
        except BaseException as error:
            self._error = error

    @property
    def is_of_this_thread(self) -> bool:
        """Whether the caller's thread began it."""
        return self._thread == threading.get_ident()

    @property
    def is_running(self) -> bool:
        """Whether the caller is the body."""
        return getcurrent() is self._stack


class _Turns:
    """The work of this process that has begun and not ended."""

    work: InterleavedWork | None = None


def suspended_stack() -> FrameType | None:
    """Return the stack of the suspended body, or of its thread's main work while the body runs.

    Any thread may ask.
    """
    if (work := _Turns.work) is None:
        return None
    parent = work._stack.parent
    return work._stack.gr_frame or (parent.gr_frame if parent else None)


_abandoned: list[InterleavedWork] = []


def runs_ahead() -> bool:
    """Return whether the caller is interleaved work."""
    work = _Turns.work
    return work is not None and work.is_of_this_thread and work.is_running


def take_turns() -> bool:
    """Let others use the wait of the caller: the interleaved work, or, for that, who waited before it went on.

    Returns whether there is reason to look for news at once.
    """
    work = _Turns.work
    if work is None or not work.is_of_this_thread:
        return False
    # The work ahead waits itself: back to training, whose own wait may be over.
    if work.is_running:
        parent = work._stack.parent
        assert parent is not None, "a body that runs was switched to"
        parent.switch()
        return True
    return channels.current() == channels.FOREGROUND and work.go_on()
