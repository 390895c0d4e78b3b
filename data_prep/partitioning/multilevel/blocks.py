"""Blocks of vertices, worked on by threads such that the result does not depend on their number.

Within a block all proposals are made from the labels of before the block, in parallel; then they are applied one after
the other. Where blocks begin depends on the vertices and the chunk alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.weighted_graph import Chunk

_BLOCKS_PER_GRAPH = 256
_SMALLEST, _LARGEST = 16, 1 << 14


def block_ranges(chunk: Chunk, vertices: int) -> Iterator[tuple[int, int]]:
    """Return the ranges (begin, end) of rows of `chunk` that are blocks of a graph with that many vertices."""
    step = min(_LARGEST, max(_SMALLEST, vertices // _BLOCKS_PER_GRAPH))
    for begin in range(0, chunk.vertices, step):
        yield begin, min(begin + step, chunk.vertices)


class Workers:
    """Threads that run a compiled kernel on sections of a range of rows; the kernels release the interpreter's lock."""

    _WORTHWHILE = 1 << 14  # entries: below, handing work over takes longer than the work

    def __init__(self, threads: int, pool: ThreadPoolExecutor | None) -> None:
        self.count = threads
        self._pool = pool

    def over_rows(self, indptr: np.ndarray, begin: int, end: int, work: Callable[[int, int, int], None]) -> None:
        """Call work(begin, end, thread) for sections of the rows with about equally many entries."""
        first, entries = int(indptr[begin]), int(indptr[end] - indptr[begin])
        if self._pool is None or entries < self._WORTHWHILE:
            work(begin, end, 0)
            return

        # Cut the rows where the entries are divided evenly; the calling thread takes the first section.
        aims = [first + entries * t // self.count for t in range(1, self.count)]
        bounds = [begin, *(begin + np.searchsorted(indptr[begin:end], aims)).tolist(), end]
        futures = [self._pool.submit(work, bounds[t], bounds[t + 1], t) for t in range(1, self.count)]
        work(bounds[0], bounds[1], 0)
        for future in futures:
            future.result()


@contextmanager
def workers(threads: int) -> Iterator[Workers]:
    """Return workers with `threads` threads."""
    if threads <= 1:
        yield Workers(1, None)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        yield Workers(threads, pool)


def move_by_blocks(graph: AnyGraph, team: Workers, propose: Callable, apply: Callable[..., int]) -> int:
    """Apply `apply` to the blocks of a graph in one pass; returns the sum of its results.

    Threads call propose(chunk, target, blocked, begin, end, thread), which writes to target int32 and blocked bool by
    row of the chunk; then apply(chunk, begin, end, target, blocked) is called once.
    """
    target, blocked = np.empty(0, np.int32), np.empty(0, bool)
    total = 0
    for chunk in graph.chunks():
        if chunk.vertices > len(target):
            target, blocked = np.empty(chunk.vertices, np.int32), np.empty(chunk.vertices, bool)
        work = partial(propose, chunk, target, blocked)
        for begin, end in block_ranges(chunk, graph.vertices):
            team.over_rows(chunk.indptr, begin, end, work)
            total += apply(chunk, begin, end, target, blocked)
    return total
