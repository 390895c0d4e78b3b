"""Stacks of all threads of this process, for debugging a hang, with the messages that each waits for."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterator

from leapmpi.comm.interleaving import suspended_stack
from leapmpi.comm.polling import mpi_calls, waits
from leapmpi.system.channels import NAMES


def thread_stacks(training: int) -> Iterator[str]:
    """Format each thread but the caller's; that with the identifier `training`, which trains, comes first."""
    names = {each.ident: each.name for each in threading.enumerate()}
    frames = sys._current_frames()
    frames.pop(threading.get_ident())
    for thread in sorted(frames, key=lambda each: each != training):
        yield f"\n{names.get(thread, f'thread {thread}')}{' (training)' if thread == training else ''}\n"
        for sentence in _at_messages(thread):
            yield f"  {sentence}\n"
        yield from traceback.format_stack(frames[thread])

    # The work ahead may have no thread of its own.
    if frame := suspended_stack():
        yield "\nsuspended on the same thread: work ahead, or training while that work goes on\n"
        yield from traceback.format_stack(frame)


def _at_messages(thread: int) -> Iterator[str]:
    """Describe the messages that `thread` waits for by channel, and those it carries for other threads."""
    for name, waited_for in zip(NAMES, list(waits.waited_for), strict=True):
        if waited_for and waited_for[0] == thread:
            yield f"waits in channel {name} for {waited_for[1]}"
    if thread == mpi_calls.owner:
        for each in list(mpi_calls.carried):
            yield f"carries in channel {NAMES[each.channel]}: {each}"
