"""Ranks that are threads of one process, for exact tests of what ranks tell each other, on any number of them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np


class ThreadRank:
    """One of `size` ranks: exchanges as those of a Communicator, and what was sent, by kind."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, slots: list) -> None:
        self.rank, self.size = rank, size
        self._barrier, self._slots = barrier, slots
        self.sent: dict[str, int] = {}
        self.exchanges = 0

    def _gathered(self, value):
        """The `value` of every rank."""
        self._slots[self.rank] = value
        self._barrier.wait(10)
        found = list(self._slots)
        self._barrier.wait(10)
        return found

    def exchange_counts(self, counts):
        return np.array([theirs[self.rank] for theirs in self._gathered(counts.copy())])

    def all_gather_rows(self, row, kind="control"):
        self._count(kind, (self.size - 1) * row.nbytes)
        return np.stack(self._gathered(row.copy()))

    def all_gather_pieces(self, piece, counts, kind):
        self._count(kind, (self.size - 1) * piece.nbytes)
        found = self._gathered(piece.copy())
        assert [len(each) for each in found] == counts.tolist()
        return np.concatenate(found)

    def all_reduce(self, flat, kind):
        flat[:] = np.sum(self._gathered(flat.copy()), axis=0)

    def _count(self, kind, size) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + size

    def start_exchange(self, send, send_counts, receive, receive_counts, kind) -> Callable[[], None]:
        assert (len(send), len(receive)) == (send_counts.sum(), receive_counts.sum())
        found = self._gathered((send.copy(), send_counts))
        self._count(kind, send.nbytes - int(send_counts[self.rank]) * send[:1].nbytes)
        self.exchanges += 1

        def end() -> None:
            start = 0
            for values, counts in found:
                begin = int(counts[: self.rank].sum())
                end = start + int(counts[self.rank])
                receive[start:end] = values[begin : begin + int(counts[self.rank])]
                start = end
            np.testing.assert_array_equal([counts[self.rank] for _, counts in found], receive_counts)

        return end

    def exchange(self, *arguments) -> None:
        self.start_exchange(*arguments)()


def on_ranks(size: int, work: Callable[[ThreadRank], object]) -> list:
    """What `work` gives on each of `size` ranks, which run at once. Raises what one of them raises."""
    barrier, slots = threading.Barrier(size), [None] * size

    def of_rank(rank: int):
        try:
            return work(ThreadRank(rank, size, barrier, slots))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        runs = [pool.submit(of_rank, rank) for rank in range(size)]
    errors = [error for each in runs if (error := each.exception())]
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    return [each.result() for each in runs]
