"""Threads that share the work of one sampler; the caller is one of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from leapmpi.system.worker_threads import run_ranges

_LEAST = 2048
"""Fewest entries worth another thread."""

_PIECE = 64
"""Fewest entries between two looks at messages."""


class SamplerThreads:
    """Pool of `size` threads, started on first use.

    Work is a function of (thread, first, end) that releases the GIL.
    """

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self._pool = ThreadPoolExecutor(self.size - 1, "sampler") if self.size > 1 else None

    def share(self, first: int, end: int, work: Callable[[int, int, int], object]) -> None:
        """Call `work` for equal ranges that make up [first, end)."""
        threads = self.size if end - first >= _LEAST else 1
        run_ranges(self._pool, [first + (end - first) * t // threads for t in range(threads + 1)], work, _PIECE)

    def share_by_cost(self, until: np.ndarray, work: Callable[[int, int, int], object]) -> None:
        """Call `work` for ranges of about equal cost that make up [0, n).

        until: int64[n + 1], ascending from 0: the cost of all entries before each.
        """
        n = len(until) - 1
        total = int(until[-1])
        if self.size == 1 or total < _LEAST:
            run_ranges(None, [0, n], work, _PIECE)
            return
        inner = np.searchsorted(until, [total * t // self.size for t in range(1, self.size)])
        run_ranges(self._pool, [0, *inner.tolist(), n], work, _PIECE)
