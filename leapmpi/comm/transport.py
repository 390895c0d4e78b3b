"""Messages between the ranks of one communicator: begun, checked when they arrive, and brought to their end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from leapmpi.comm import mpi_buffers
from leapmpi.comm.communicator import CommunicationError
from leapmpi.comm.flow_control import FRAGMENT, Message, MessageQueue, Start, UnderWay
from leapmpi.comm.mpi_buffers import DeviceBytes
from leapmpi.comm.progress_thread import ProgressThread
from leapmpi.system import channels

if TYPE_CHECKING:
    from mpi4py import MPI


Result = TypeVar("Result")


@dataclass
class _Carrier:
    """Caller of MPI for several transports of one process."""

    thread: ProgressThread | None = None


class Transport:
    """Carries the messages of `Communicator`.

    While `progress_thread` is set it makes all MPI calls, so that several threads may send and receive.
    """

    def __init__(self, comm: MPI.Intracomm, ahead: Sequence[MPI.Intracomm] = ()) -> None:
        """Serve training by `comm`; `ahead` are duplicates of it for the channels AHEAD and ROWS."""
        from mpi4py import MPI

        self._mpi: ModuleType = MPI
        self._comms = (comm, *ahead)
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._carrier = _Carrier()
        self._members: Sequence[int] = range(self.size)
        """Rank of the job for each rank."""

    @property
    def progress_thread(self) -> ProgressThread | None:
        """The thread that makes all MPI calls, while there is one."""
        return self._carrier.thread

    @progress_thread.setter
    def progress_thread(self, thread: ProgressThread | None) -> None:
        self._carrier.thread = thread

    @property
    def comm(self) -> MPI.Intracomm:
        """The MPI communicator of the calling thread's channel."""
        return self._comms[channels.current()]

    def _receives(self, into: np.ndarray | DeviceBytes, origin: int, code: int) -> list[Message]:
        """Build the receives that fill the bytes `into` from rank `origin`, each checked for type `code` and size."""
        # The communicator is looked up here: another thread, of no channel, starts them. Messages of one peer are
        # matched in order, whatever their tag; the tag is the type they were sent as.
        start, byte, tag = self.comm.Irecv, self._mpi.BYTE, self._mpi.ANY_TAG
        found, peer = [], self._members[origin]
        for part in mpi_buffers.parts(len(into), FRAGMENT):
            size = part.stop - part.start
            check = partial(self._check_arrival, origin, code, size)
            found.append(Message(partial(start, [into[part], byte], origin, tag), size, check, peer, code))
        return found

    def _receive(self, into: np.ndarray, origin: int, code: int, check: Callable[[MPI.Status], None]) -> Message:
        """Build the receive of a message of at most len(into) bytes of type `code`; `check` raises for a wrong one."""
        start = partial(self.comm.Irecv, [into, self._mpi.BYTE], origin, self._mpi.ANY_TAG)
        return Message(start, len(into), check, self._members[origin], code)

    def _check_arrival(self, origin: int, code: int, size: int, status: MPI.Status) -> None:
        """Raise CommunicationError when what came has another type or size than expected."""
        tag = status.Get_tag()
        if tag != code:
            expected, got = mpi_buffers.DTYPES[code], mpi_buffers.DTYPES[tag]
            raise CommunicationError(f"rank {self.rank} expected {expected} from rank {origin}, got {got}")
        count = status.Get_count()
        if count != size:
            raise CommunicationError(f"rank {self.rank} expected {size} bytes from rank {origin}, got {count}")

    def _sends(self, out: np.ndarray | DeviceBytes, to: int, code: int) -> list[Message]:
        start, byte, peer = self.comm.Isend, self._mpi.BYTE, self._members[to]
        return [
            Message(partial(start, [out[part], byte], to, code), part.stop - part.start, peer=peer, code=code)
            for part in mpi_buffers.parts(len(out), FRAGMENT)
        ]

    def _call(self, start: Start) -> None:
        self._begin(MessageQueue([Message(start)]))()

    def _begin(self, messages: MessageQueue) -> Callable[[], None]:
        """Start messages, or have the progress thread start them; what is returned waits for their end.

        Without that thread they move on while the calling one runs kernels.
        """
        if self.progress_thread is None:
            return UnderWay(messages).wait
        return self.progress_thread.carry(messages).wait

    def _start(self, *directions: list[Message]) -> Callable[[], None]:
        """Begin messages; what is returned waits for their end, and raises CommunicationError for wrong ones."""
        wait = self._size_checked(partial(self._begin, MessageQueue(*directions)))
        return partial(self._size_checked, wait)

    def _size_checked(self, call: Callable[[], Result]) -> Result:
        """Return the result of `call`. Raises CommunicationError if MPI finds a message longer than expected in it."""
        try:
            return call()
        except self._mpi.Exception as error:
            if error.Get_error_class() not in (self._mpi.ERR_TRUNCATE, self._mpi.ERR_IN_STATUS):
                raise
            raise CommunicationError(f"rank {self.rank} was sent more bytes than it expected ({error})") from error
