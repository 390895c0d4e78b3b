"""Messages between the ranks of one communicator: begun, checked when they arrive, and brought to their end.

Where a courier is at work it makes all MPI calls; otherwise the calling thread does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from leapmpi.comm import mpi_buffers
from leapmpi.comm.collectives import Start
from leapmpi.comm.flow_control import FRAGMENT, Call, Message, MessageQueue, complete
from leapmpi.comm.polling import waits
from leapmpi.comm.progress_thread import ProgressThread, Ticket
from leapmpi.system import channels


class CommunicationError(RuntimeError):
    """The two sides of an exchange disagree on type or size: a defect of leapmpi, caught before data are used."""


class Transport:
    """What carries the messages of `Wire`; `ahead` are duplicates of `comm`, for the lanes AHEAD and ROWS.

    While `progress_thread` is set it makes all MPI calls, so that several threads may send and receive.
    """

    def __init__(self, comm: Any, ahead: Sequence[Any] = ()) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comms = (comm, *ahead)
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.progress_thread: ProgressThread | None = None

    @property
    def comm(self) -> Any:
        """The communicator of the calling thread's lane."""
        return self._comms[channels.current()]

    def _receives(self, into: Any, origin: int, code: int) -> list[Message]:
        """The receives that fill the bytes `into` from rank `origin`, each checked for type `code` and size."""
        # Looked up here: another thread starts them.
        comm = self.comm
        return [_Receive(self._mpi, comm, piece, origin, code) for piece in mpi_buffers.cut(into, FRAGMENT)]

    def _sends(self, out: Any, to: int, code: int) -> list[Message]:
        comm = self.comm
        return [_Send(self._mpi, comm, piece, to, code) for piece in mpi_buffers.cut(out, FRAGMENT)]

    def _call(self, start: Start) -> None:
        """Bring one MPI call to its end."""
        self._begin(MessageQueue(self._mpi, [Call(start)]))()

    def _begin(self, flow: MessageQueue) -> Callable[[], None]:
        """Start messages, or have the courier start them where there is one; what is returned waits for their end."""
        if self.progress_thread is None:
            flow.advance()
            return partial(complete, flow)
        return partial(_wait_for, self.progress_thread.carry(flow))

    def _finish(self, receives: list[Message], sends: list[Message]) -> None:
        """Bring all messages to an end."""
        self._start(receives, sends)()

    def _start(self, receives: list[Message], sends: list[Message]) -> Callable[[], None]:
        """Begin messages; what is returned waits for their end, and tells what was wrong with them."""
        with self._surplus_told():
            under_way = self._begin(MessageQueue(self._mpi, receives, sends))

        def finish() -> None:
            with self._surplus_told():
                under_way()

        return finish

    @contextmanager
    def _surplus_told(self) -> Iterator[None]:
        """Raises WireError where MPI finds a message longer than it should be."""
        try:
            yield
        except self._mpi.Exception as error:
            if error.Get_error_class() not in (self._mpi.ERR_TRUNCATE, self._mpi.ERR_IN_STATUS):
                raise
            raise CommunicationError(f"rank {self.rank} was sent more bytes than it expected ({error})") from error


class _Message(Message):
    """Bytes that travel between this rank and another, tagged with the code of their type."""

    __slots__ = ("_code", "_comm", "_memory", "_mpi", "_peer")

    def __init__(self, mpi: Any, comm: Any, memory: Any, peer: int, code: int) -> None:
        super().__init__(len(memory))
        self._mpi, self._comm, self._memory, self._peer, self._code = mpi, comm, memory, peer, code


class _Send(_Message):
    __slots__ = ()

    def start(self) -> Any:
        return self._comm.Isend([self._memory, self._mpi.BYTE], self._peer, self._code)


class _Receive(_Message):
    __slots__ = ()

    def start(self) -> Any:
        # Messages of one peer are matched in order, whatever their tag; the tag tells the type they were sent as.
        return self._comm.Irecv([self._memory, self._mpi.BYTE], self._peer, self._mpi.ANY_TAG)

    def done(self, status: Any) -> None:
        """Raises WireError when what came has another type or size than expected."""
        got, tag, rank = status.Get_count(), status.Get_tag(), self._comm.rank
        if tag != self._code:
            expected, got = mpi_buffers.DTYPES[self._code], mpi_buffers.DTYPES[tag]
            raise CommunicationError(f"rank {rank} expected {expected} from rank {self._peer}, got {got}")
        if got != self.size:
            raise CommunicationError(f"rank {rank} expected {self.size} bytes from rank {self._peer}, got {got}")


def _wait_for(order: Ticket) -> None:
    """Wait for what the courier carries; raises what went wrong with it."""
    with waits:
        order.wait()
