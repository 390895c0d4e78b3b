"""The channels of a rank: its training, the work it does ahead of the iteration that is trained, and feature rows.

A channel is an order of collectives, the same on all ranks, with an MPI communicator for it alone: none can block
another, however ranks differ in how far ahead they are. The channel of a thread decides how its messages are sent
(`leapmpi.comm.communicator`) and under what its seconds are counted (`phase_timers`). An iteration can be planned ahead
while the rows of the one before travel, since these have their own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

FOREGROUND, AHEAD, ROWS = CHANNELS = (0, 1, 2)
"""Training, in which every thread is by default; work done ahead of it; the feature rows that such work moves."""

NAMES = ("FOREGROUND", "AHEAD", "ROWS")
"""Names of CHANNELS in messages."""


class _OfThread(threading.local):
    channel = FOREGROUND


_of_thread = _OfThread()


def current() -> int:
    """Return the channel of the calling thread, one of CHANNELS."""
    return _of_thread.channel


def enter(channel: int) -> int:
    """Put the calling thread into `channel`, until it enters another; returns the one that it leaves."""
    before, _of_thread.channel = _of_thread.channel, channel
    return before


@contextmanager
def ahead() -> Iterator[None]:
    """Put the calling thread into the channel AHEAD while the body runs."""
    _of_thread.channel = AHEAD
    try:
        yield
    finally:
        _of_thread.channel = FOREGROUND


@contextmanager
def rows() -> Iterator[None]:
    """Put the calling thread into the channel ROWS while the body runs, if it works ahead; else nothing changes."""
    before = _of_thread.channel
    _of_thread.channel = ROWS if before == AHEAD else before
    try:
        yield
    finally:
        _of_thread.channel = before
