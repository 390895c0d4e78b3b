"""From rank 0 to all ranks: the schedules of iterations, several at a time where those to come are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.plan.schedule import Schedule
from leapmpi.plan.schedule_buffers import part_buffers, schedule_of, whole_buffer, words_of

_MOST = 1 << 17
"""Numbers (int64), of all ranks, of schedules that go out together, about; a longer one goes alone."""

Coming = tuple[np.ndarray | None, int, int]
"""A batch of roots, int64 on rank 0 and None elsewhere, its epoch and its iteration."""


@dataclass(frozen=True, eq=False)
class Reading:
    """The cells that each rank reads, where none reads all."""

    read: np.ndarray
    """int64[ranks, k]: for each rank, the ranks whose cells it reads."""
    rank_offsets: np.ndarray
    """int64[ranks + 1]: first vertex of each rank."""


class ScheduleBroadcast:
    """Hands out schedules; those of the iterations that are `expected` are sent ahead.

    The first goes alone, so that no rank waits until others are made, then two, then four. Bytes count for the
    iteration whose schedule is handed out: an epoch that is stopped and resumed counts them once.

    reading: what each rank gets; None for whole schedules. Rank 0 has those anyway.
    """

    def __init__(self, communicator: Communicator, reading: Reading | None = None) -> None:
        self._communicator, self._reading = communicator, reading
        self._held: dict[tuple[int, int], tuple[Schedule, np.ndarray]] = {}
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
            for found in self._handed_out(make, together):
                self._held[found[0].epoch, found[0].iteration] = found
                if known:
                    self._expected.pop(0)
            self._together *= 1 + known
        return self._counted(*self._held.pop(place))

    def alone(
        self, batch: np.ndarray | None, epoch: int, iteration: int, make: Callable[[np.ndarray, int, int], Schedule]
    ) -> Schedule:
        """Return what `schedule` does, for a batch that is none of those expected. Collective."""
        ((schedule, words),) = self._handed_out(make, [(batch, epoch, iteration)])
        return self._counted(schedule, words)

    def _counted(self, schedule: Schedule, words: np.ndarray) -> Schedule:
        if self._communicator.rank == 0:
            self._communicator.count("schedule", words, np.dtype(np.int64).itemsize)
        return schedule

    def _handed_out(
        self, make: Callable[[np.ndarray, int, int], Schedule], coming: Sequence[Coming]
    ) -> list[tuple[Schedule, np.ndarray]]:
        """Return the schedules of the first of `coming`, and int64[ranks], the words of each rank. Collective."""
        made, rows, communicator = [], None, self._communicator
        if communicator.rank == 0:
            made = self._as_many_as_fit(make, coming)
            lengths = [buffers.shape[1] for _, buffers, _ in made]
            facts = np.tile(np.array([len(made), *lengths], np.int64), (len(made[0][1]), 1))
            rows = np.concatenate([facts, *(buffers for _, buffers, _ in made)], axis=1)

        # Schedules of batches of one size are about equally long.
        room = 1 + len(coming) * (1 + self._longest + self._longest // 8)
        if self._reading is None:
            whole = None if rows is None else rows[0]
            received = communicator.broadcast(whole, "schedule", expected=room, counted=False)
        else:
            received = communicator.scatter(rows, "schedule", expected=room, counted=False)
        count = int(received[0])
        lengths = received[1 : 1 + count].tolist()
        self._longest = max(self._longest, *lengths)
        if made:
            return [(schedule, words) for schedule, _, words in made]
        ends = np.cumsum([1 + count, *lengths]).tolist()
        buffers = [received[ends[k] : ends[k + 1]] for k in range(count)]
        return [(schedule_of(each[: words_of(each)]), np.empty(0, np.int64)) for each in buffers]

    def _as_many_as_fit(
        self, make: Callable[[np.ndarray, int, int], Schedule], coming: Sequence[Coming]
    ) -> list[tuple[Schedule, np.ndarray, np.ndarray]]:
        """Return schedules with their buffers, int64[ranks or 1, words], and the words of each rank: about _MOST."""
        found = []
        for batch, epoch, iteration in coming:
            assert batch is not None, "rank 0 has all batches"
            schedule = make(batch, epoch, iteration)
            if self._reading is None:
                buffers = whole_buffer(schedule)[None, :]
                words = np.full(self._communicator.size, buffers.shape[1])
            else:
                buffers, words = part_buffers(schedule, self._reading.read, self._reading.rank_offsets)
            found.append((schedule, buffers, words))
            if sum(each.size for _, each, _ in found) + buffers.size > _MOST:
                break
        return found
