"""Messages between the ranks of one communicator: begun, checked when they arrive, and brought to their end.

Where a progress thread runs it makes all MPI calls; otherwise the calling thread does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm import mpi_buffers
from leapmpi.comm.collectives import Start
from leapmpi.comm.flow_control import FRAGMENT, Call, Message, MessageQueue
from leapmpi.comm.mpi_buffers import DeviceBytes
from leapmpi.comm.polling import complete, waits
from leapmpi.comm.progress_thread import ProgressThread, Ticket
from leapmpi.system import channels

if TYPE_CHECKING:
    from mpi4py import MPI


class CommunicationError(RuntimeError):
    """The two sides of an exchange disagree on type or size: a defect of leapmpi, caught before data are used."""


class Transport:
    """Carries the messages of `Communicator`.

    While `progress_thread` is set it makes all MPI calls, so that several threads may send and receive.
    """

    def __init__(self, comm: MPI.Intracomm, ahead: Sequence[MPI.Intracomm] = ()) -> None:
        """`comm` serves training; `ahead` are duplicates of it for the channels AHEAD and ROWS."""
        from mpi4py import MPI

        self._mpi: ModuleType = MPI
        self._comms = (comm, *ahead)
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.progress_thread: ProgressThread | None = None

    @property
    def comm(self) -> MPI.Intracomm:
        """The MPI communicator of the calling thread's channel."""
        return self._comms[channels.current()]

    def _receives(self, into: np.ndarray | DeviceBytes, origin: int, code: int) -> list[Message]:
        """The receives that fill the bytes `into` from rank `origin`, each checked for type `code` and size."""
        # Looked up here: another thread, of no channel, starts them.
        comm = self.comm
        return [_Receive(self._mpi, comm, part, origin, code) for part in mpi_buffers.cut(into, FRAGMENT)]

    def _sends(self, out: np.ndarray | DeviceBytes, to: int, code: int) -> list[Message]:
        """The messages that bring the bytes `out`, of type `code`, to rank `to`."""
        comm = self.comm
        return [_Send(self._mpi, comm, part, to, code) for part in mpi_buffers.cut(out, FRAGMENT)]

    def _call(self, start: Start) -> None:
        """Bring one MPI call to its end."""
        self._begin(MessageQueue(self._mpi, [Call(start)]))()

    def _begin(self, messages: MessageQueue) -> Callable[[], None]:
        """Start messages, or have the progress thread start them; what is returned waits for their end."""
        if self.progress_thread is None:
            messages.advance()
            return partial(complete, messages)
        return partial(_wait_for, self.progress_thread.carry(messages))

    def _finish(self, receives: list[Message], sends: list[Message]) -> None:
        """Bring all messages to an end."""
        self._start(receives, sends)()

    def _start(self, receives: list[Message], sends: list[Message]) -> Callable[[], None]:
        """Begin messages; what is returned waits for their end, and raises CommunicationError for wrong ones."""
        with self._size_checked():
            wait = self._begin(MessageQueue(self._mpi, receives, sends))

        def finish() -> None:
            with self._size_checked():
                wait()

        return finish

    @contextmanager
    def _size_checked(self) -> Iterator[None]:
        """Raises CommunicationError where MPI finds a message longer than expected in the body."""
        try:
            yield
        except self._mpi.Exception as error:
            if error.Get_error_class() not in (self._mpi.ERR_TRUNCATE, self._mpi.ERR_IN_STATUS):
                raise
            raise CommunicationError(f"rank {self.rank} was sent more bytes than it expected ({error})") from error


class _Message(Message):
    """Bytes that travel between this rank and another, tagged with the code of their type."""

    __slots__ = ("_code", "_comm", "_memory", "_mpi", "_peer")

    def __init__(
        self, mpi: ModuleType, comm: MPI.Intracomm, memory: np.ndarray | DeviceBytes, peer: int, code: int
    ) -> None:
        super().__init__(len(memory))
        self._mpi = mpi
        self._comm = comm
        self._memory = memory
        self._peer = peer
        self._code = code


class _Send(_Message):
    __slots__ = ()

    def start(self) -> MPI.Request:
        return self._comm.Isend([self._memory, self._mpi.BYTE], self._peer, self._code)


class _Receive(_Message):
    __slots__ = ()

    def start(self) -> MPI.Request:
        # Messages of one peer are matched in order, whatever their tag; the tag is the type they were sent as.
        return self._comm.Irecv([self._memory, self._mpi.BYTE], self._peer, self._mpi.ANY_TAG)

    def done(self, status: MPI.Status) -> None:
        """Raises CommunicationError when what came has another type or size than expected."""
        tag = status.Get_tag()
        rank = self._comm.rank
        if tag != self._code:
            expected, got = mpi_buffers.DTYPES[self._code], mpi_buffers.DTYPES[tag]
            raise CommunicationError(f"rank {rank} expected {expected} from rank {self._peer}, got {got}")
        count = status.Get_count()
        if count != self.size:
            raise CommunicationError(f"rank {rank} expected {self.size} bytes from rank {self._peer}, got {count}")


def _wait_for(ticket: Ticket) -> None:
    """Wait for what the progress thread carries; raises what went wrong with it."""
    with waits:
        ticket.wait()
