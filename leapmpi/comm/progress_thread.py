"""The thread that makes all MPI calls while a rank works in several lanes at once.

Other threads hand it their messages and wait, without using a processor, until these have arrived. It starts and
tests messages of all lanes in turn, those of training first, and never waits for one lane before it looks at the
others. MPI needs to offer THREAD_SERIALIZED: calls come from several threads, but never at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from leapmpi.comm.flow_control import Backoff, MessageQueue
from leapmpi.comm.polling import mpi_calls, waits
from leapmpi.system import channels


class CourierStopped(RuntimeError):
    """Messages were handed over after the courier had stopped, or were under way when it did."""


class Ticket:
    """Messages on their way, and what came of them."""

    def __init__(self, flow: MessageQueue) -> None:
        self._flow, self.lane = flow, channels.current()
        self.ended, self._error = False, None
        self._end = threading.Lock()
        self._end.acquire()

    def advance(self) -> bool:
        """Take the messages a step further; returns whether anything happened, their end included."""
        happened = False
        try:
            happened = self._flow.advance()
            if self._flow.finished:
                self.end()
        except Exception as error:
            self.end(error)
        return happened or self.ended

    def end(self, error: Exception | None = None) -> None:
        """The messages have arrived, or will not because of `error`."""
        self.ended, self._error = True, error
        self._end.release()

    def wait(self) -> None:
        """Wait for the end; raises what went wrong. Called once."""
        self._end.acquire()
        if self._error is not None:
            raise self._error


class ProgressThread:
    """Owns MPI from `start` to `stop`; the thread that started it must make no MPI call in between.

    `on_start` runs first on the thread, to select its GPU.
    """

    def __init__(self, on_start: Callable[[], None] | None = None) -> None:
        self._on_start = on_start
        self._inbox: SimpleQueue[Ticket | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Take MPI over from the calling thread."""
        self._thread = threading.Thread(target=self._work, name="leapmpi-courier", daemon=True)
        self._thread.start()
        mpi_calls.belong_to(self._thread.ident)

    def stop(self) -> None:
        """Give MPI back. What is still under way is given up: whoever waits for it gets CourierStopped."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread:
            self._inbox.put(None)
            thread.join()
            mpi_calls.belong_to(None)

    def carry(self, flow: MessageQueue) -> Ticket:
        """Start the messages of `flow`, in the lane of the calling thread, and see them through."""
        order = Ticket(flow)
        with self._lock:
            if not self._thread:
                raise CourierStopped("messages were handed over after the last")
            self._inbox.put(order)
        return order

    def _work(self) -> None:
        if self._on_start:
            self._on_start()
        under_way: list[Ticket] = []
        pace = Backoff()
        while self._take_in(under_way, pace):
            happened = False
            for order in under_way:
                happened |= order.advance()
            pace.note(happened)
            if happened:
                waits.moves += 1
                under_way = [order for order in under_way if not order.ended]
        for order in under_way:
            order.end(CourierStopped("messages were under way when the courier stopped"))

    def _take_in(self, under_way: list[Ticket], pace: Backoff) -> bool:
        """Take in a new order, waiting for one as long as nothing else is to be done. Returns False at the end."""
        try:
            order = self._inbox.get(timeout=pace.nap()) if under_way else self._inbox.get()
        except Empty:
            return True
        if order is None:
            return False
        pace.note(True)
        under_way.append(order)
        under_way.sort(key=lambda each: each.lane)
        return True
