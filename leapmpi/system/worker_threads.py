"""Work on blocks by several threads, for kernels and system calls that release Python's lock.

The kernels of training share rows among the threads that `set_threads` allows a process. Each row is computed by one
thread, so that results do not depend on their number.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar
from weakref import WeakMethod

_MOST_THREADS = 8

Item = TypeVar("Item")
Result = TypeVar("Result")


def processor_count() -> int:
    """Return the threads worth starting: as `set_processor_count` says, else the processors given, at most eight."""
    return _Processors.count or min(_MOST_THREADS, given_processors())


def given_processors() -> int:
    """Return the processors that this process may use: those of its affinity mask, within its group's quota."""
    count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        # A container is often limited by processor time, as in "200000 100000" for two processors.
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(1, int(quota) // int(period)))
    return count


def set_processor_count(count: int) -> None:
    """Let `processor_count` return `count` from now on."""
    _Processors.count = count


class _Processors:
    """The number that `set_processor_count` chose; 0 before."""

    count = 0


class _RowThreads:
    """The threads of this process that share rows; the caller is one of them."""

    count = 1
    pool: ThreadPoolExecutor | None = None


_LEAST_ROWS = 64
"""Fewer rows are not worth the start of another thread."""

_PIECE_SECONDS = 0.5e-3
"""Target processor time of a piece of work, after which other work is attended to."""

_attended: list[WeakMethod[Callable[[], object]]] = []


def attend(action: Callable[[], object]) -> None:
    """Call `action` between pieces of the rows of the calling thread of `share_rows` from now on.

    It is a method of an object, with which it ends: what an error cut short is attended to no more.
    """
    _attended.append(WeakMethod(action, _forget))


def _forget(action: WeakMethod[Callable[[], object]]) -> None:
    """Forget the method of an object that has ended, unless it was left while it was called."""
    if action in _attended:
        _attended.remove(action)


def leave(action: Callable[[], object]) -> None:
    """Call `action` no more."""
    if WeakMethod(action) in _attended:
        _attended.remove(WeakMethod(action))


def leave_all() -> None:
    """Stop attending to other work, as it has failed."""
    _attended.clear()


def in_pieces(work: Callable[[int, int], object], first: int, end: int, least: int) -> None:
    """Call work(first, end) for ranges that make up [first, end), and what is to be attended to after each.

    Ranges are as long as takes half a millisecond of this thread, but no shorter than `least`.
    """
    # One piece where nothing waits for attention.
    size = least if _attended else end - first
    while first < end:
        last, begin = min(end, first + size), time.thread_time()
        work(first, last)
        spent = max(time.thread_time() - begin, 1e-6)
        for each in list(_attended):
            if action := each():
                action()
        # Grow at most eightfold: one measurement may be off. Other processes that run meanwhile do not count.
        first, size = last, max(least, int(size * min(8.0, _PIECE_SECONDS / spent)))


def set_threads(count: int) -> None:
    """Use `count` threads, at least one, for `share_rows` from now on."""
    if count != _RowThreads.count:
        _RowThreads.count = max(1, count)
        _RowThreads.pool = ThreadPoolExecutor(count - 1, "rows") if count > 1 else None


def threads() -> int:
    """Return the number of threads of `share_rows`."""
    return _RowThreads.count


def share_rows(kernel: Callable[..., None], rows: int, *arguments: object, least: int = _LEAST_ROWS) -> None:
    """Call kernel(first, end, *arguments), which releases Python's lock, for ranges that make up [0, rows).

    Fewer rows than `least` are left to the calling thread, and kernels get no fewer at a time. That thread attends to
    what `attend` named.
    """
    count, pool = _RowThreads.count, _RowThreads.pool
    threads_used = 1 if pool is None or rows < least else count
    bounds = [rows * number // threads_used for number in range(threads_used + 1)]
    run_ranges(pool, bounds, lambda _, first, end: kernel(first, end, *arguments), least)


def run_ranges(
    pool: Executor | None, bounds: Sequence[int], work: Callable[[int, int, int], object], least: int
) -> None:
    """Call work(number, first, end) for each range between `bounds`: the caller for the first, `pool` for the others.

    The caller does its range in pieces of no fewer than `least`, and attends to what `attend` named between them.
    Returns, or raises an error of `work`, when all have ended: until then what they work on is in use.
    """
    others = []
    if pool is not None:
        others = [pool.submit(work, number, *each) for number, each in enumerate(pairwise(bounds[1:]), 1)]
    try:
        in_pieces(partial(work, 0), bounds[0], bounds[1], least)
    finally:
        # Also after an error: other threads may still write to the caller's arrays.
        if others:
            wait(others)
    for other in others:
        other.result()


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """Run `work` on each item by `threads` threads; yield the results in the order of the items.

    At most one item more than threads is under way. `items` is iterated by the caller's thread. An error of `work` is
    raised in place of its result.
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
