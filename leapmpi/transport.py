"""Messages between the ranks of one communicator: begun, checked when they arrive, and brought to their end.

Where a courier is at work it makes all MPI calls; otherwise the calling thread does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from leapmpi import lane, message
from leapmpi.courier import Courier
from leapmpi.flow import FRAGMENT, Flow, Message, advance_all, complete
from leapmpi.gathering import Start
from leapmpi.waiting import waits


class WireError(RuntimeError):
    """The two sides of an exchange disagree on type or size: a defect of leapmpi, caught before data are used."""


class Transport:
    """What carries the messages of `Wire`; `ahead` is a duplicate of `comm`, for the lane AHEAD.

    While `courier` is set it makes all MPI calls, so that several threads may send and receive.
    """

    def __init__(self, comm: Any, ahead: Any = None) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comms = (comm, ahead)
        self.rank: int = comm.rank
        self.size: int = comm.size
        self.courier: Courier | None = None

    @property
    def comm(self) -> Any:
        """The communicator of the calling thread's lane."""
        return self._comms[lane.current()]

    def _receives(self, into: Any, origin: int, code: int) -> list[Message]:
        """The receives that fill `into` from rank `origin`, each checked for type `code` and size."""
        # Looked up here: another thread starts them.
        comm = self.comm

        def message_of(part: slice) -> Message:
            # Messages of one peer are matched in order, whatever their tag; the tag tells the type they were sent as.
            where, tag = [into[part], self._mpi.BYTE], self._mpi.ANY_TAG
            size = part.stop - part.start
            return Message(
                size,
                lambda: comm.Irecv(where, source=origin, tag=tag),
                lambda status: self._check_arrival(status, size, code),
            )

        return [message_of(part) for part in message.pieces(len(into), FRAGMENT)]

    def _sends(self, out: Any, to: int, code: int) -> list[Message]:
        comm = self.comm

        def message_of(part: slice) -> Message:
            what = [out[part], self._mpi.BYTE]
            return Message(part.stop - part.start, lambda: comm.Isend(what, dest=to, tag=code))

        return [message_of(part) for part in message.pieces(len(out), FRAGMENT)]

    def _call(self, start: Start) -> None:
        """Bring one MPI call to its end."""
        self._carry(Flow(self._mpi, [Message(0, start)]))

    def _carry(self, *flows: Flow) -> None:
        """Wait until all messages have arrived."""
        self._begin(*flows)()

    def _begin(self, *flows: Flow) -> Callable[[], None]:
        """Start messages, or have the courier start them where there is one; what is returned waits for their end."""
        if self.courier is None:
            advance_all(flows)
            return partial(complete, *flows)
        return partial(_wait_for, self.courier.carry(flows))

    def _finish(self, receives: list[Message], sends: list[Message]) -> None:
        """Bring all messages to an end."""
        self._start(receives, sends)()

    def _start(self, receives: list[Message], sends: list[Message]) -> Callable[[], None]:
        """Begin messages; what is returned waits for their end, and tells what was wrong with them."""
        with self._surplus_told():
            under_way = self._begin(Flow(self._mpi, receives), Flow(self._mpi, sends))

        def finish() -> None:
            with self._surplus_told():
                under_way()

        return finish

    @contextmanager
    def _surplus_told(self) -> Iterator[None]:
        """Messages move in the body; raise WireError when one is longer than it should be, as early as that is seen."""
        try:
            yield
        except self._mpi.Exception as error:
            if error.Get_error_class() not in (self._mpi.ERR_TRUNCATE, self._mpi.ERR_IN_STATUS):
                raise
            raise WireError(f"rank {self.rank} was sent more bytes than it expected ({error})") from error

    def _check_arrival(self, status: Any, size: int, code: int) -> None:
        origin, got = status.Get_source(), status.Get_count(self._mpi.BYTE)
        if status.Get_tag() != code:
            raise WireError(
                f"rank {self.rank} expected {message.DTYPES[code]} from rank {origin}, "
                f"got {message.DTYPES[status.Get_tag()]}"
            )
        if got != size:
            raise WireError(f"rank {self.rank} expected {size} bytes from rank {origin}, got {got}")


def _wait_for(messages: Future[None]) -> None:
    """Wait for what the courier carries; raises what went wrong with it."""
    with waits:
        messages.result()
