"""One pass over the rows of a graph or a part, in blocks: what is larger than memory is read once for all that asks.

Other threads check and hash a block while this one digests, or writes, the blocks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np

from leapmpi.dataset.content_hash import content_lanes
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.row_blocks import BLOCK_BYTES, row_groups
from leapmpi.dataset.sparse_features import Features, arrays_of, row_bytes
from leapmpi.dataset.validation import check_features, check_lists
from leapmpi.system.worker_threads import in_order

Sink = Callable[[np.ndarray], None]

SWEPT = (names.INDICES, names.FEATURES, names.FEATURE_INDICES, names.FEATURE_DATA)
"""Arrays whose blocks sinks of a sweep may see: those that may be larger than memory."""


class RowSource(Protocol):
    """What a Graph and a Part have in common: the data of some vertices, row by row."""

    indptr: np.ndarray
    indices: np.ndarray
    original_id: np.ndarray
    features: Features | None
    labels: np.ndarray | None
    split: np.ndarray | None


def groups_of(rows: RowSource, limit: int = BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Ranges of `rows` whose features and lists of in-neighbours take about `limit` bytes."""
    width = 0 if rows.features is None else row_bytes(rows.features)
    return row_groups(rows.indptr, width + 16, rows.indices.itemsize, limit)


def is_natural(original_id: np.ndarray) -> bool:
    """Whether strictly ascending, non-negative ids are 0, 1, 2, ..."""
    return len(original_id) > 0 and int(original_id[-1]) == len(original_id) - 1


def scan(
    rows: RowSource,
    original_of: np.ndarray | None,
    vertices: int,
    first: int,
    where: str,
    *,
    features: bool = True,
    hashed: bool = True,
    sinks: Mapping[str, Sink] | None = None,
    progress: Callable[[int], object] | None = None,
) -> np.ndarray:
    """Check the lists of in-neighbours and the features of `rows`, and return the content lanes uint64[2] of them.

    original_of: the original id of each of the `vertices` that indices name, None where it is the id itself. first:
    the id of the first row. features: whether to look at them at all (lanes are those of rows without, if not).
    hashed: whether lanes are wanted; zeros otherwise.
    sinks: by array, what is to see all of its blocks in order, in this thread. progress: told of rows done.
    `rows.indptr` must have been checked.

    Raises DataError naming array, row and value of the first fault; `where` opens the message.
    """
    sinks = sinks or {}
    wide = rows.features if features else None

    def examined(bounds: tuple[int, int]) -> tuple[int, np.ndarray, np.ndarray, Features | None]:
        start, stop = bounds
        indptr = np.asarray(rows.indptr[start : stop + 1])
        indices = np.asarray(rows.indices[indptr[0] : indptr[-1]])
        check_lists(indptr, indices, original_of, vertices, first + start, where)
        block = None if wide is None else wide[start:stop]
        if block is not None:
            check_features(block, where, start)
        split, labels = (None if array is None else array[start:stop] for array in (rows.split, rows.labels))
        if not hashed:
            return stop, np.zeros(2, np.uint64), indices, block
        bounds = indptr - indptr[0]
        lanes = content_lanes(rows.original_id[start:stop], split, labels, block, bounds, indices, original_of)
        return stop, lanes, indices, block

    total = np.zeros(2, np.uint64)
    for done, lanes, indices, block in in_order(examined, groups_of(rows)):
        with np.errstate(over="ignore"):
            total += lanes
        for name, array in {names.INDICES: indices, **arrays_of(block)}.items():
            if name in sinks:
                sinks[name](array)
        if progress:
            progress(done)
    return total
