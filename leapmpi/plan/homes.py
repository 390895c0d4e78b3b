"""Home rank of a vertex: ranks hold contiguous groups of parts, hence contiguous ranges of ids.

Parts with many edges between them have near numbers, so a contiguous group cuts few edges.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled

_STEPS = 3
"""Ranks that are looked at one by one, before all are halved."""

_AT_ONCE = 1 << 20
"""Number of ids processed together."""


def part_starts(parts: int, ranks: int) -> np.ndarray:
    """Return the first part of each rank, int64[ranks + 1], with numbers of parts that differ by at most one.

    Raises DataError if there are more ranks than parts.
    """
    if ranks > parts:
        raise DataError(
            f"{counted(ranks, 'rank')} were started, but the dataset has {counted(parts, 'part')}; "
            f"partition the graph again with --parts {ranks}, or start at most {counted(parts, 'rank')}"
        )
    return -(-np.arange(ranks + 1, dtype=np.int64) * parts // ranks)


def parts_of_rank(parts: int, ranks: int, rank: int) -> range:
    """Return the parts of `rank`: those p with p * ranks // parts == rank. At least one.

    Raises DataError if there are more ranks than parts.
    """
    first, end = part_starts(parts, ranks)[rank : rank + 2].tolist()
    return range(first, end)


def rank_offsets(offsets: np.ndarray, ranks: int, starts: np.ndarray | None = None) -> np.ndarray:
    """Return the first vertex of each rank, int64[ranks + 1].

    offsets: int64[P + 1], first vertex of each part. starts: int64[ranks + 1], first part of each rank; None for those
    of `part_starts`, which raises DataError if there are more ranks than parts.
    """
    starts = part_starts(len(offsets) - 1, ranks) if starts is None else starts
    return np.asarray(offsets, np.int64)[starts]


@compiled
def home_rank(vertex, rank_offsets):
    """Return what `home_of` does, for one vertex, in kernels."""
    ranks = len(rank_offsets) - 1
    if vertex >= rank_offsets[ranks]:
        return ranks
    if vertex < rank_offsets[0]:
        return -1
    # Ranks have about as many vertices each: the rank is near to where it would be then.
    rank = min(ranks - 1, int(vertex * (ranks / rank_offsets[ranks])))
    for _ in range(_STEPS):
        if vertex < rank_offsets[rank]:
            rank -= 1
        elif vertex >= rank_offsets[rank + 1]:
            rank += 1
        else:
            return rank
    low, high = 0, ranks
    while high - low > 1:
        middle = (low + high) >> 1
        if rank_offsets[middle] <= vertex:
            low = middle
        else:
            high = middle
    return low


@compiled
def _find_homes(ids, rank_offsets, homes):
    for i in range(len(ids)):
        homes[i] = home_rank(ids[i], rank_offsets)


def home_of(ids: np.ndarray, rank_offsets: np.ndarray) -> np.ndarray:
    """Return the home rank of each vertex: int64[k] for ids int64[k], all of them in [0, rank_offsets[-1])."""
    if not len(ids) or not ids.flags.writeable or not ids.flags.c_contiguous or ids.dtype != np.int64:
        return np.searchsorted(rank_offsets, ids, side="right") - 1
    homes = np.empty(ids.shape, np.int64)
    _find_homes(ids.reshape(-1), rank_offsets, homes.reshape(-1))
    return homes


def in_range(ids: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return the ones of `ids` (int64[k]) in [first, end), in their order, with little extra memory."""
    return np.concatenate([np.empty(0, np.int64), *(each[(first <= each) & (each < end)] for each in _blocks(ids))])


def home_counts(ids: np.ndarray, rank_offsets: np.ndarray) -> np.ndarray:
    """Count the `ids` (int64[k]) of each home rank, int64[ranks], with little extra memory."""
    ranks = len(rank_offsets) - 1
    counts = (np.bincount(home_of(each, rank_offsets), minlength=ranks) for each in _blocks(ids))
    return sum(counts, np.zeros(ranks, np.int64))


def _blocks(ids: np.ndarray) -> Iterator[np.ndarray]:
    return (ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE))
