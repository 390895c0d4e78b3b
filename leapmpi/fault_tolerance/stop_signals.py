"""Stopping a job before it is done: signals, noticed between steps and decided by all ranks together.

A signal's handler only takes a note. In every iteration each rank says one word, which crosses ranks while the
iteration runs, so that agreeing costs no round trip; the word that matters most is heard by all.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leapmpi.errors import Interrupted

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)

_SAME_EVENT = 1.0
"""Seconds within which a second signal is taken for the first one, come by another way."""

_SAME_CAUSE = 10.0
"""The same for a signal of another kind: a scheduler's SIGTERM, which a batch script passes on as SIGUSR2."""

_KILLED = 128
"""The exit code of a process that a signal ended is this plus the signal's number."""


class Signals:
    """What this process was asked by SIGTERM, SIGUSR2 or SIGINT.

    `number` is the first one that came, 0 before. While `polled` is true somebody asks for it between steps; otherwise
    there is nothing to save, and the signal raises Interrupted with `exit_code` where it arrives. A second signal
    always does.
    """

    def __init__(self) -> None:
        self.number = 0
        self.polled = False
        self.exit_code: int | None = None
        self._since = 0.0

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Take note of signals while the body runs; afterwards they do what they did before."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self._hear) for each in SIGNALS}
        # A launcher that shuts its own ears may leave those of its children shut.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, signal.SIG_DFL if handler is None else handler)

    def _hear(self, number: int, frame: object) -> None:
        del frame
        now, name = time.monotonic(), signal.Signals(number).name
        if self.number and now - self._since < (_SAME_EVENT if number == self.number else _SAME_CAUSE):
            return
        again = self.number != 0
        self.number, self._since = number, now
        if again:
            raise Interrupted(f"a second signal, {name}, ended the job at once", _KILLED + number)
        if not self.polled:
            raise Interrupted(f"{name} ended the job", self.exit_code or _KILLED + number)


NOTHING, SAVE, STOP = 0, 1, 2


@dataclass(frozen=True)
class StopRequest:
    """What one rank wants: NOTHING, SAVE a checkpoint, or STOP after saving one.

    `signal` is the signal that `rank` was sent, 0 when the job's time runs out.
    """

    wish: int = NOTHING
    signal: int = 0
    rank: int = 0

    def packed(self) -> int:
        """One number; of two words the one that matters more is the larger."""
        return self.wish << 48 | self.signal << 32 | self.rank

    @classmethod
    def unpacked(cls, number: int) -> StopRequest:
        """The word that `packed` made `number` of."""
        return cls(number >> 48, number >> 32 & 0xFFFF, number & 0xFFFF_FFFF)

    def reason(self) -> str:
        """Why to stop, for people."""
        if self.signal:
            return f"{signal.Signals(self.signal).name} on rank {self.rank}"
        return "the job's time is running out"


class StopVote:
    """One word of all ranks per iteration: `ask` at its start, `answer` at its end. `wish` gives this rank's word."""

    def __init__(self, communicator: Communicator, wish: Callable[[], StopRequest]) -> None:
        self.communicator = communicator
        self.wish = wish
        self._heard: Callable[[], int] | None = None

    def ask(self) -> None:
        """Send this rank's word on its way. Collective."""
        self._heard = self.communicator.start_all_reduce_maximum(self.wish().packed())

    def answer(self) -> StopRequest:
        """The word that matters most of those asked for last, the same on all ranks. Collective."""
        return StopRequest.unpacked(self._heard())
