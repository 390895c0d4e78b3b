"""Exchanges of unknown size: each message starts with its length and carries as much as fits.

A packet is a little larger than the last one between the two ranks, whose size both know; the rest follows in further
messages. So sizes that hardly change from one exchange to the next cost no message and no wait.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.comm.flow_control import FRAGMENT
from leapmpi.comm.transport import Transport

if TYPE_CHECKING:
    from mpi4py import MPI

_HEADER = 8
"""Bytes of the int64 that says how many bytes a packet and what follows it hold."""

_LEAST, _MOST = 1 << 10, FRAGMENT - _HEADER
"""Bytes for which a packet has room."""


class Packets:
    """The exchanges of one channel of `carrier`, one after the other. All ranks make them alike."""

    def __init__(self, carrier: Transport) -> None:
        self._carrier = carrier
        self._sent = np.zeros(carrier.size, np.int64)
        self._received = np.zeros(carrier.size, np.int64)

    def exchange(self, out: np.ndarray, sizes: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        """Send the bytes `out` (uint8, in order of destination rank), `sizes` int64[ranks] of them to each. Collective.

        Returns the bytes that others sent, in order of their ranks, and int64[ranks], how many each. `code` is that of
        their type. Raises CommunicationError where a peer sends another type.
        """
        carrier, rank, ranks = self._carrier, self._carrier.rank, self._carrier.size
        ends = np.concatenate(([0], np.cumsum(sizes))).tolist()
        others = [((rank - step) % ranks, (rank + step) % ranks) for step in range(1, ranks)]

        # In each step every rank sends to another rank than all others do.
        receives, sends, arrived = [], [], {}
        for origin, to in others:
            arrived[origin] = np.empty(_HEADER + _room(self._received[origin]), np.uint8)
            check = partial(self._check, origin, code, arrived[origin])
            receives.append(carrier._receive(arrived[origin], origin, code, check))
            fitting = min(ends[to + 1] - ends[to], _room(self._sent[to]))
            packet = np.empty(_HEADER + fitting, np.uint8)
            packet[:_HEADER].view(np.int64)[0] = ends[to + 1] - ends[to]
            packet[_HEADER:] = out[ends[to] : ends[to] + fitting]
            sends += carrier._sends(packet, to, code)
        carrier._start(receives, sends)()

        # All lengths are known now.
        theirs = sizes.copy()
        for origin, _ in others:
            theirs[origin] = _length(arrived[origin])
        starts = np.concatenate(([0], np.cumsum(theirs))).tolist()
        received = np.empty(starts[-1], np.uint8)
        received[starts[rank] : starts[rank + 1]] = out[ends[rank] : ends[rank + 1]]

        # What did not fit follows.
        receives, sends = [], []
        for origin, to in others:
            room, begin, end = _room(self._received[origin]), starts[origin], starts[origin + 1]
            received[begin : min(begin + room, end)] = arrived[origin][_HEADER : _HEADER + min(room, end - begin)]
            receives += carrier._receives(received[min(begin + room, end) : end], origin, code)
            sends += carrier._sends(out[min(ends[to] + _room(self._sent[to]), ends[to + 1]) : ends[to + 1]], to, code)
        if receives or sends:
            carrier._start(receives, sends)()
        self._sent, self._received = sizes, theirs
        return received, theirs

    def _check(self, origin: int, code: int, packet: np.ndarray, status: MPI.Status) -> None:
        """Raise CommunicationError where another packet came from `origin` than the one that begins `packet`."""
        room = len(packet) - _HEADER
        held = min(_length(packet), room) if status.Get_count() >= _HEADER else 0
        self._carrier._check_arrival(origin, code, _HEADER + held, status)


def _room(last: int) -> int:
    """Return the bytes to reserve where the last exchange had `last` bytes."""
    return int(min(max(_LEAST, last + last // 4), _MOST))


def _length(packet: np.ndarray) -> int:
    return int(packet[:_HEADER].view(np.int64)[0])
