"""The thread that makes all MPI calls while a rank works in several channels at once.

Other threads hand it their messages and wait, without using a processor, until these have arrived. It starts and tests
the messages of all channels in turn, those of training first, and never waits for one channel before it looks at the
others. MPI needs to offer THREAD_SERIALIZED: calls come from several threads, but never at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from leapmpi.comm.flow_control import MessageQueue
from leapmpi.comm.polling import Backoff, mpi_calls, waits
from leapmpi.system import channels


class ProgressThreadStopped(RuntimeError):
    """Messages were handed over after the progress thread had stopped, or were under way when it did."""


class Ticket:
    """Messages that the progress thread carries for another thread, which waits for their end."""

    def __init__(self, messages: MessageQueue) -> None:
        """Start with `messages` of the calling thread's channel."""
        self.channel = channels.current()
        self.ended = False
        self._messages = messages
        self._error: Exception | None = None
        self._end = threading.Lock()
        self._end.acquire()

    def __str__(self) -> str:
        return str(self._messages)

    def advance(self) -> bool:
        """Take the messages a step further; returns whether anything happened, their end included."""
        happened = False
        try:
            happened = self._messages.advance()
            if self._messages.finished:
                self.end()
        except Exception as error:
            self.end(error)
        return happened or self.ended

    def end(self, error: Exception | None = None) -> None:
        """Mark the messages as arrived, or as failed because of `error`."""
        self.ended = True
        self._error = error
        self._end.release()

    def wait(self) -> None:
        """Wait for the end of the messages; raises what went wrong with them. Called once."""
        with waits.of(self._messages):
            self._end.acquire()
        if self._error is not None:
            raise self._error


class ProgressThread:
    """Owns MPI from `start` to `stop`; the thread that started it must make no MPI call in between."""

    def __init__(self, on_start: Callable[[], None] | None = None) -> None:
        """Start the thread; `on_start` runs first on it, to select its GPU."""
        self._on_start = on_start
        self._inbox: SimpleQueue[Ticket | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Take MPI over from the calling thread."""
        self._thread = threading.Thread(target=self._work, name="leapmpi-progress", daemon=True)
        self._thread.start()
        mpi_calls.owner = self._thread.ident

    def stop(self) -> None:
        """Give MPI back. Messages still under way are given up: who waits for them gets ProgressThreadStopped."""
        # Under the lock, so that no messages come in behind the end.
        with self._lock:
            thread, self._thread = self._thread, None
        if thread:
            self._inbox.put(None)
            thread.join()
            mpi_calls.owner = None

    def carry(self, messages: MessageQueue) -> Ticket:
        """Start `messages`, in the channel of the calling thread, and see them through."""
        ticket = Ticket(messages)
        with self._lock:
            if not self._thread:
                raise ProgressThreadStopped("messages were handed over to a progress thread that has stopped")
            self._inbox.put(ticket)
        return ticket

    def _work(self) -> None:
        if self._on_start:
            self._on_start()
        tickets: list[Ticket] = []
        mpi_calls.carried = tickets
        backoff = Backoff()

        while self._take_in(tickets, backoff):
            happened = False
            for ticket in tickets:
                happened |= ticket.advance()
            backoff.note(happened)
            if happened:
                waits.moves += 1
                mpi_calls.carried = tickets = [ticket for ticket in tickets if not ticket.ended]

        # End the waits for messages that are given up.
        mpi_calls.carried = ()
        for ticket in tickets:
            ticket.end(ProgressThreadStopped("messages were under way when the progress thread stopped"))

    def _take_in(self, tickets: list[Ticket], backoff: Backoff) -> bool:
        """Add a new ticket to `tickets`; wait for one while there is nothing else to do. Returns False at the end."""
        # While messages are under way, the wait for a new ticket is the sleep between two tests.
        try:
            ticket = self._inbox.get(timeout=backoff.nap()) if tickets else self._inbox.get()
        except Empty:
            return True
        if ticket is None:
            return False

        # Training's messages come first.
        backoff.note(True)
        tickets.append(ticket)
        tickets.sort(key=lambda each: each.channel)
        return True
