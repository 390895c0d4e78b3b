"""Rows on their way between ranks: packed, then under way, then arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from leapmpi.comm.communicator import Communicator


class RowExchange:
    """Rows that others asked this rank for (`send`), and room for those it asked for (`receive`).

    `begin`, `wait` and `unpack` are called in this order, in one lane, which moves one exchange at a time.

    `unpack` makes of what has arrived what was wanted.
    """

    def __init__(
        self,
        communicator: Communicator,
        kind: str,
        sent: tuple[Any, np.ndarray],
        arriving: tuple[Any, np.ndarray],
        unpack: Callable[[Any], Any],
    ) -> None:
        self._communicator, self._kind, self._sent, self._arriving, self._unpack = (
            communicator,
            kind,
            sent,
            arriving,
            unpack,
        )
        self._end: Callable[[], None] | None = None

    def begin(self) -> None:
        """Set the rows off. Collective."""
        self._end = self._communicator.start_exchange(*self._sent, *self._arriving, self._kind)

    def wait(self) -> None:
        """Wait until all are here; no more than that where they are. Collective."""
        if self._end:
            end, self._end = self._end, None
            end()
            self._sent = None

    def unpack(self) -> Any:
        """What was wanted. Local."""
        return self._unpack(self._arriving[0])

    def complete(self) -> Any:
        """Move the rows and unpack them. Collective."""
        self.begin()
        self.wait()
        return self.unpack()
