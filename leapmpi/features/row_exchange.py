"""One exchange of rows between ranks: packed, then moving, then arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.comm.communicator import Communicator

if TYPE_CHECKING:
    from leapmpi.comm.mpi_buffers import Array


class RowExchange:
    """The rows that others requested from this rank, and memory for those that this rank requested.

    Call `begin`, `wait` and `unpack` in this order, in one lane (leapmpi/system/channels.py), which moves one exchange
    at a time.

    Args:
        communicator: moves the rows.
        kind: the kind under which bytes are counted.
        sent: the packed rows, sorted by the rank they go to, and int64[ranks]: how many go to each.
        arriving: memory for the requested rows, and int64[ranks]: how many come from each rank.
        unpack: makes the result of the rows that have arrived.
    """

    def __init__(
        self,
        communicator: Communicator,
        kind: str,
        sent: tuple[Array, np.ndarray],
        arriving: tuple[Array, np.ndarray],
        unpack: Callable[[Any], Any],
    ) -> None:
        self._communicator = communicator
        self._kind = kind
        self._sent: tuple[Array, np.ndarray] | None = sent
        self._arriving = arriving
        self._unpack = unpack
        self._end: Callable[[], None] | None = None

    def begin(self) -> None:
        """Start moving the rows. Collective."""
        assert self._sent is not None, "rows are sent once"
        rows, counts = self._sent
        arriving, arriving_counts = self._arriving
        self._end = self._communicator.start_exchange(rows, counts, arriving, arriving_counts, self._kind)

    def wait(self) -> None:
        """Wait until all rows have arrived; a second call does nothing. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            self._sent = None

    def unpack(self) -> Any:
        """The result, once the rows have arrived. Local."""
        return self._unpack(self._arriving[0])

    def complete(self) -> Any:
        """Move the rows and unpack them. Collective."""
        self.begin()
        self.wait()
        return self.unpack()
