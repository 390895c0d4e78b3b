"""From rank 0 to all ranks: the schedules of iterations, several at a time where those to come are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.plan.schedule import Schedule

_MOST = 1 << 17
"""Numbers (int64) of schedules that go out together, about; a longer one goes alone."""

Coming = tuple[np.ndarray | None, int, int]
"""A batch of roots, int64 on rank 0 and None elsewhere, its epoch and its iteration."""


class ScheduleBroadcast:
    """Hands out schedules; those of the iterations that are `expected` are broadcast ahead.

    The first goes alone, so that no rank waits until others are made, then two, then four. Bytes count for the
    iteration whose schedule is handed out: an epoch that is stopped and resumed counts them once.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._held: dict[tuple[int, int], Schedule] = {}
        self._expected: list[Coming] = []
        self._together, self._longest = 1, 0

    def expect(self, coming: Sequence[Coming]) -> None:
        """Expect these iterations next, in this order, and no others. Local."""
        self._held, self._expected, self._together = {}, list(coming), 1

    def schedule(
        self, batch: np.ndarray | None, epoch: int, iteration: int, make: Callable[[np.ndarray, int, int], Schedule]
    ) -> Schedule:
        """Return the schedule of `batch`, which `make` makes on rank 0 of a batch, its epoch and its iteration.
        Collective.
        """
        place = epoch, iteration
        if place not in self._held:
            # Several schedules share a message, twice as many each time: their latency would exceed their bytes. Only
            # expected batches can be planned ahead; all ranks expect the same ones.
            known = bool(self._expected) and self._expected[0][1:] == place
            together = self._expected[: self._together] if known else [(batch, epoch, iteration)]
            buffers = None
            if batch is not None:
                buffers = _as_many_as_fit(make, together)
            # Schedules of batches of one size are about equally long.
            room = 1 + len(together) * (1 + self._longest)
            received = self._communicator.broadcast(buffers, "schedule", expected=room, counted=False)
            self._longest = max(self._longest, *received[1 : 1 + received[0]].tolist())
            for each in _apart(received):
                self._held[each.epoch, each.iteration] = each
                if known:
                    self._expected.pop(0)
            self._together *= 1 + known
        found = self._held.pop(place)
        if self._communicator.rank == 0:
            self._communicator.byte_counters.add_to_each("schedule", found.nbytes)
        return found


def _as_many_as_fit(make: Callable[[np.ndarray, int, int], Schedule], coming: Sequence[Coming]) -> np.ndarray:
    """Return int64: the number of schedules, their lengths, and their content, up to about _MOST numbers."""
    buffers: list[np.ndarray] = []
    for batch, epoch, iteration in coming:
        assert batch is not None, "rank 0 has all batches"
        buffers.append(make(batch, epoch, iteration).to_buffer())
        if sum(map(len, buffers)) + len(buffers[-1]) > _MOST:
            break
    return np.concatenate([np.array([len(buffers), *map(len, buffers)], np.int64), *buffers])


def _apart(buffers: np.ndarray) -> list[Schedule]:
    """Return the schedules that `_as_many_as_fit` put together."""
    count = int(buffers[0])
    ends = list(accumulate(buffers[1 : 1 + count].tolist(), initial=1 + count))
    return [Schedule.from_buffer(buffers[ends[k] : ends[k + 1]]) for k in range(count)]
