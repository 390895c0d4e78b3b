"""Waiting for MPI without burning a processor: test, then sleep in proportion to how long nothing has happened.

Every wait of leapmpi goes through `Backoff`: `flow_control.complete` for the calling thread, and the loop of the
progress thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from leapmpi.system import channels

_EAGER_TESTS = 5
"""Tests without a sleep between them, for messages that have as good as arrived."""

_SHORTEST_NAP, _LONGEST_NAP = 20e-6, 1e-3
"""Seconds."""

_SHARE = 1 / 8
"""A nap takes so much of what was slept since the last news: a message comes that much later at most."""


class Waits:
    """Progress of this process in waiting for other ranks. The watchdog's thread reads it.

    `begun` counts waits. All ranks run the same collectives, so the counts of two ranks differ only by what one rank
    has done ahead of the other. `moves` counts beginnings and ends of waits, and arrivals of messages. `waiting` is
    true while training is in a wait, or gets no work because the work done ahead is in a wait.
    """

    def __init__(self) -> None:
        self.moves = 0
        self.for_work = False
        """Whether training is waiting for work that is done ahead."""
        self.interleaved = False
        """Whether the thread that trains does work ahead within a wait of training."""
        self._begun = [0 for _ in channels.CHANNELS]
        self._within = [False for _ in channels.CHANNELS]
        self.waited_for: list[tuple[int, object] | None] = [None for _ in channels.CHANNELS]
        """By channel, the thread that waits now and the messages for which it does, where they are known."""

    @property
    def begun(self) -> int:
        """Waits begun so far, on all channels."""
        return sum(self._begun)

    @property
    def waiting(self) -> bool:
        """Whether this rank cannot go on without other ranks."""
        training, *others = self._within
        if self.interleaved:
            return any(others)
        return training or (self.for_work and any(others))

    def forget(self, channel: int) -> None:
        """Cancel a wait of `channel`."""
        self._within[channel], self.waited_for[channel] = False, None

    def of(self, messages: object) -> Waits:
        """Return the context in which the calling thread waits for `messages`, whose text describes them."""
        self.waited_for[channels.current()] = threading.get_ident(), messages
        return self

    def __enter__(self) -> None:
        self._begun[channels.current()] += 1
        self.moves += 1
        self._within[channels.current()] = True

    def __exit__(self, *error: object) -> None:
        self.moves += 1
        self.forget(channels.current())


waits = Waits()
"""The waits of this process."""


class Carried(Protocol):
    """Messages of a channel, whose text says what they are."""

    channel: int


class MpiCalls:
    """Thread that may make MPI calls, where one has taken them over (`leapmpi.comm.progress_thread`)."""

    owner: int | None = None
    """The identifier of the thread that alone makes MPI calls now; None: any thread does, one at a time."""

    carried: Sequence[Carried] = ()
    """The messages that it takes further for other threads."""

    def check(self) -> None:
        """Raise RuntimeError in a thread that may not make MPI calls now: a defect of leapmpi."""
        if self.owner not in (None, threading.get_ident()):
            raise RuntimeError("an MPI call from a thread that does not own MPI; go through Communicator")


mpi_calls = MpiCalls()
"""The owner of MPI in this process."""


class Backoff:
    """Schedule of sleeps between tests: none at first, then longer ones while nothing happens."""

    def __init__(self) -> None:
        self._idle = 0
        self._slept = 0.0

    def note(self, happened: bool) -> None:
        """Take note of whether the last test found anything new."""
        self._idle = 0 if happened else self._idle + 1
        if happened:
            self._slept = 0.0

    def nap(self) -> float:
        """Return the seconds to sleep before the next test."""
        if self._idle <= _EAGER_TESTS:
            return 0.0
        nap = min(max(_SHORTEST_NAP, _SHARE * self._slept), _LONGEST_NAP)
        self._slept += nap
        return nap
