"""All ranks of a job in one process, in lock-step, over communicators that count.

Each virtual rank runs the code of a real one on a stack of its own (a greenlet). Where that exchanges data, it waits
until all others do (rule R4). Ids, lists and counts are then delivered, since they decide what ranks do next; rows,
values and gradients are counted only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from greenlet import getcurrent, greenlet

from leapmpi.comm.byte_counters import ByteCounters
from leapmpi.comm.communicator import CommunicationError, Communicator, Exchange
from leapmpi.comm.id_codec import IdCodec
from leapmpi.plan.traffic_model import Traffic

if TYPE_CHECKING:
    from leapmpi.comm.mpi_buffers import Array

CARRIED = frozenset({"ids", "topology", "schedule", "control"})
"""Kinds of data that are delivered."""

Result = TypeVar("Result")
Given = list[Any]
"""Data of each rank, passed to an exchange or received from it."""


class VirtualWorld:
    """A number of virtual ranks, with their communicators and the traffic that these have counted."""

    def __init__(self, ranks: int) -> None:
        self.traffic = Traffic(ranks)
        self.communicators = [CountingCommunicator(self, rank, ranks) for rank in range(ranks)]

    def take(self) -> Traffic:
        """Return the traffic counted so far, and count from zero again."""
        taken, self.traffic = self.traffic, Traffic(self.traffic.ranks)
        return taken

    def run(self, work: Callable[[int], Result]) -> list[Result]:
        """Return the results of `work(rank)` of all ranks, which may exchange data.

        Raises any exception of a rank, and CommunicationError where ranks do not take part in the same exchanges.
        """
        ranks = len(self.communicators)
        stacks = [greenlet(partial(work, rank)) for rank in range(ranks)]
        results: Given = [() for _ in stacks]
        # Every stack runs to its next exchange, which then delivers to all of them: ranks in lockstep, in one thread.
        while True:
            results = [stack.switch(*given) for stack, given in zip(stacks, results, strict=True)]
            running = [not stack.dead for stack in stacks]
            if not any(running):
                return results
            # Functions tell exchanges apart: each kind has one of this module, as a lambda would differ on every rank.
            if not all(running) or len({deliver for deliver, _ in results}) > 1:
                raise CommunicationError("virtual ranks do not take part in the same exchanges")
            deliver = results[0][0]
            results = [(each,) for each in deliver([given for _, given in results])]


class RankCounters(ByteCounters):
    """The counters of one rank, which add to the traffic of all."""

    def __init__(self, world: VirtualWorld, rank: int) -> None:
        self._world, self._rank = world, rank

    def add_to_rank(self, kind: str, count: int, rank: int) -> None:
        by_rank = np.zeros(self._world.traffic.ranks, np.int64)
        by_rank[rank] = count
        self.add_to_ranks(kind, count, by_rank)

    def add_to_ranks(self, kind: str, count: int, by_rank: np.ndarray) -> None:
        self._world.traffic.add_sent(kind, self._rank, by_rank)

    def add_to_each(self, kind: str, each: int) -> None:
        self.add_to_ranks(kind, each, np.full(self._world.traffic.ranks, each, np.int64))

    def add_rows(self, place: str, count: int) -> None:
        self._world.traffic.rows[place][self._rank] += count


class CountingCommunicator(Communicator):
    """The communicator of a virtual rank."""

    carries = False

    def __init__(self, world: VirtualWorld, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._counters = RankCounters(world, rank)

    @property
    def byte_counters(self) -> ByteCounters:
        return self._counters

    def barrier(self) -> None:
        return

    def _gathered_objects(self, value: Any) -> list[Any]:
        return _met(_all_to_all_ranks, value)

    def _gathered_rows(self, row: np.ndarray, kind: str) -> np.ndarray:
        return _met(_stacked, row) if kind in CARRIED else np.empty((self.size, *row.shape), row.dtype)

    def _started_maximum(self, value: int) -> Callable[[], int]:
        return lambda: value

    def _broadcast(self, array: np.ndarray | None, kind: str, expected: int | None) -> np.ndarray:
        return _met(_of_the_first, array)

    def _scattered(self, rows: np.ndarray | None, expected: int) -> np.ndarray:
        return _met(_rows_of_the_first, rows)

    def _started(self, exchanges: Sequence[Exchange]) -> Callable[[], None]:
        for send, send_counts, receive, _, kind in exchanges:
            if kind in CARRIED:
                receive[:] = _met(_swapped, (send, send_counts))[0]
        return lambda: None

    def start_pieces(
        self, pieces: Sequence[Sequence[np.ndarray]], rooms: Sequence[Sequence[int]], kind: str
    ) -> Callable[[], list[list[np.ndarray]]]:
        raise AssertionError("rows of forecasts hold nothing that could be packed")

    def _exchanged_counts(self, counts: np.ndarray) -> np.ndarray:
        return _met(_transposed, counts)

    def _exchanged_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> tuple[np.ndarray, np.ndarray]:
        return _met(_swapped, (ids, counts))

    def _spread_ids(self, ids: np.ndarray, counts: np.ndarray, ranges: IdCodec) -> list[np.ndarray]:
        return list(_met(_all_to_all_ranks, ids))

    def _hop(self, state: Array, to: int, origin: int) -> None:
        return

    def _reduce(self, flat: Array, widths: np.ndarray, kind: str) -> None:
        if kind in CARRIED:
            assert isinstance(flat, np.ndarray), "counts are in host memory"
            flat[:] = _met(_summed, flat.copy())


def _met(deliver: Callable[[Given], Given], given: Any) -> Any:
    """Wait for all ranks at an exchange; return this rank's result of `deliver` on the data that all have `given`."""
    parent = getcurrent().parent
    assert parent is not None, "ranks that exchange data are run by a VirtualWorld"
    return parent.switch((deliver, given))


def _all_to_all_ranks(given: Given) -> Given:
    return [given] * len(given)


def _of_the_first(given: Given) -> Given:
    return [given[0]] * len(given)


def _rows_of_the_first(given: Given) -> Given:
    return list(given[0])


def _stacked(given: Given) -> Given:
    rows = np.stack(given)
    rows.flags.writeable = False
    return [rows] * len(given)


def _summed(given: Given) -> Given:
    return [np.sum(given, axis=0)] * len(given)


def _transposed(given: Given) -> Given:
    return list(np.ascontiguousarray(np.stack(given).swapaxes(0, 1)))


def _swapped(given: Given) -> Given:
    """Deliver rows by receiver, with counts int64[ranks], to their receivers, ordered by sender."""
    ranks = len(given)
    counts = np.stack([of_each for _, of_each in given])
    receiver = np.repeat(np.tile(np.arange(ranks, dtype=np.uint16), ranks), counts.ravel())
    rows = np.concatenate([rows for rows, _ in given])[np.argsort(receiver, kind="stable")]
    of_each = np.split(rows, np.cumsum(counts.sum(axis=0))[:-1])
    return list(zip(of_each, np.ascontiguousarray(counts.T), strict=True))
