"""Work on blocks by several threads, for kernels and system calls that release Python's lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MOST_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def processor_count() -> int:
    """Threads worth starting: the processors this process may use, at most eight."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """`work` of each item by `threads` threads, the results in the order of the items.

    At most one item more than threads is under way. `items` is iterated by the caller's thread. An error of `work` is
    raised where its result would have come.
    """
    threads = threads or processor_count()
    with ThreadPoolExecutor(threads) as pool:
        # The oldest result is taken when all threads have work and one item waits.
        waiting: list[Future[Result]] = []
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > threads:
                yield waiting.pop(0).result()
        while waiting:
            yield waiting.pop(0).result()
