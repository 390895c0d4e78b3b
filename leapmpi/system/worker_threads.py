"""Work on blocks by several threads, for kernels and system calls that release Python's lock.

The kernels of training share rows among the threads that `set_threads` allows a process. Each row is computed by one
thread, so that results do not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from itertools import pairwise
from typing import TypeVar

_MOST_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def processor_count() -> int:
    """Threads worth starting: the processors this process may use, at most eight."""
    return min(_MOST_THREADS, len(os.sched_getaffinity(0)))


class _RowThreads:
    """The threads of this process that share rows; the caller is one of them."""

    count = 1
    pool: ThreadPoolExecutor | None = None


_LEAST_ROWS = 64
"""Fewer rows are not worth the start of another thread."""


def set_threads(count: int) -> None:
    """From now on `share_rows` uses `count` threads, at least one."""
    if count != _RowThreads.count:
        _RowThreads.count = max(1, count)
        _RowThreads.pool = ThreadPoolExecutor(count - 1, "rows") if count > 1 else None


def threads() -> int:
    """How many threads `share_rows` uses."""
    return _RowThreads.count


def share_rows(kernel: Callable[..., None], rows: int, *arguments: object, least: int = _LEAST_ROWS) -> None:
    """Call kernel(first, end, *arguments), which releases Python's lock, for ranges that make up [0, rows).

    Fewer rows than `least` are left to the calling thread.
    """
    count, pool = _RowThreads.count, _RowThreads.pool
    if pool is None or rows < least:
        kernel(0, rows, *arguments)
        return
    bounds = [rows * number // count for number in range(count + 1)]
    run_ranges(pool, bounds, lambda _, first, end: kernel(first, end, *arguments))


def run_ranges(pool: Executor | None, bounds: Sequence[int], work: Callable[[int, int, int], object]) -> None:
    """Call work(number, first, end) for each range between `bounds`: the caller for the first, `pool` for the others.

    Returns, or raises an error of `work`, when all have ended: until then what they work on is in use.
    """
    others = []
    if pool is not None:
        others = [pool.submit(work, number, *each) for number, each in enumerate(pairwise(bounds[1:]), 1)]
    try:
        work(0, bounds[0], bounds[1])
    finally:
        wait(others)
    for other in others:
        other.result()


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
