"""Threads that share the work of one sampler; the caller is one of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_LEAST = 2048
"""Fewer entries than this are not worth waking another thread."""


class SamplerThreads:
    """`size` threads, made when first needed. Work is a function of (member, first, end) that frees the lock."""

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self._pool = ThreadPoolExecutor(self.size - 1, "sampler") if self.size > 1 else None

    def share(self, first: int, end: int, work: Callable[[int, int, int], object]) -> None:
        """Call `work` for equal ranges that together are [first, end)."""
        members = self.size if end - first >= _LEAST else 1
        self._run([first + (end - first) * m // members for m in range(members + 1)], work)

    def share_by_cost(self, until: np.ndarray, work: Callable[[int, int, int], object]) -> None:
        """Call `work` for ranges of about equal cost that together are [0, n).

        until: int64[n + 1], ascending from 0: the cost of all entries before each.
        """
        n, total = len(until) - 1, int(until[-1])
        if self.size == 1 or total < _LEAST:
            work(0, 0, n)
            return
        inner = np.searchsorted(until, [total * m // self.size for m in range(1, self.size)])
        self._run([0, *inner.tolist(), n], work)

    def _run(self, bounds: list[int], work: Callable[[int, int, int], object]) -> None:
        others = [self._pool.submit(work, m, bounds[m], bounds[m + 1]) for m in range(1, len(bounds) - 1)]
        try:
            work(0, bounds[0], bounds[1])
        finally:
            for other in others:
                other.result()
