"""The two lanes of a rank: its training, and the work it does ahead of the iteration that is trained.

A lane is a thread's own order of collectives, on a communicator of its own. Each order is the same on all ranks and
waits for nothing of the other lane, so neither can block the other, however ranks differ in how far ahead they are.
Which lane a thread is in decides how what it does is sent (`wire`) and under what it is counted (`phases`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

FOREGROUND, AHEAD = LANES = (0, 1)
"""The lane of training itself, which every thread is in unless told otherwise, and the one of work done ahead."""


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
