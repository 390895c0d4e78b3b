"""The lanes of a rank: its training, the work it does ahead of the iteration that is trained, and the rows it moves.

A lane is an order of collectives, on a communicator of its own. Each order is the same on all ranks and waits for
nothing of another lane, so none can block another, however ranks differ in how far ahead they are. Which lane a
thread is in decides how its messages are sent (`communicator`) and under what they are counted (`phases`). The thread
that works ahead moves feature rows in a lane apart, so that it can plan an iteration while the rows of the one before
travel.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

FOREGROUND, AHEAD, ROWS = LANES = (0, 1, 2)
"""The lane of training itself, which every thread is in unless told otherwise, that of work done ahead, and that of the
feature rows which such work moves."""


class _OfThread(threading.local):
    lane = FOREGROUND


_of_thread = _OfThread()


def current() -> int:
    """The lane of the calling thread, one of LANES."""
    return _of_thread.lane


@contextmanager
def ahead() -> Iterator[None]:
    """Put the calling thread into the lane AHEAD while the body runs."""
    _of_thread.lane = AHEAD
    try:
        yield
    finally:
        _of_thread.lane = FOREGROUND


@contextmanager
def rows() -> Iterator[None]:
    """Put the calling thread into the lane ROWS while the body runs, if it works ahead; else it stays in its own."""
    before = _of_thread.lane
    _of_thread.lane = ROWS if before == AHEAD else before
    try:
        yield
    finally:
        _of_thread.lane = before
