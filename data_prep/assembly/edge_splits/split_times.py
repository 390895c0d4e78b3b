"""Cuts of the times of edges, so that the oldest train and the newest test.

The time of an edge is that of its pair of vertices: the earlier one where both directions have a time of their own, for
the pair is known from then on. So both directions stay in one split, and so do edges of equal time.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from leapmpi.dataset.edge_splits import edge_place
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.row_blocks import row_groups
from leapmpi.errors import DataError, counted
from leapmpi.system.jit import compiled

_BLOCK = 64 * 2**20


@dataclass(frozen=True)
class TimeSplit:
    """times: int64[m] or float64[m], mapped, the time of the pair of each edge; the last ones of two splits."""

    times: np.ndarray
    last_train: int | float
    last_val: int | float


@compiled
def _of_pairs(indptr, indices, whole_indptr, whole_indices, original, first, time, out):
    """Write the time of the pair of each edge of the rows from `first` on; `time` holds those of all edges."""
    start = indptr[0]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i] - start, indptr[i + 1] - start):
            back = edge_place(first + i, np.int64(indices[e]), whole_indptr, whole_indices, original)
            own = time[start + e]
            out[e] = own if back < 0 else min(own, time[back])


@compiled
def _around(times, value):
    """Count the times below `value` and those at most `value`; also return the largest below (else `value`)."""
    below, upto, largest = 0, 0, value
    for e in range(len(times)):
        if times[e] < value:
            if not below or times[e] > largest:
                largest = times[e]
            below += 1
        upto += times[e] <= value
    return below, upto, largest


def time_split(graph: Graph, shares: tuple[float, float, float]) -> TimeSplit:
    """Cut the times of the edges of `graph` so that the splits come as near to `shares` as equal times allow.

    Two temporary files of 8 bytes an edge hold the times. One is partially sorted around the cuts in place: a block of
    the graph is in memory at a time. Raises DataError where a split that has a share would be empty.
    """
    time = graph.edge_data.time
    assert time is not None, "edges have times"
    whole = np.asarray(graph.indptr), np.asarray(graph.indices), np.asarray(graph.original_id)
    with closing(temporary_file()) as kept, closing(temporary_file()) as ordered:
        # Two copies of the times: one stays in the order of the edges, one is sorted around the cuts.
        for start, stop in row_groups(graph.indptr, 24, 32, _BLOCK):
            indptr = np.array(graph.indptr[start : stop + 1])
            indices = np.array(graph.indices[indptr[0] : indptr[-1]])
            of_pairs = np.empty(len(indices), time.dtype)
            _of_pairs(indptr, indices, *whole, start, np.asarray(time), of_pairs)
            for file in (kept, ordered):
                of_pairs.tofile(file)
        times = mapped(kept, time.dtype, graph.edges)
        # Only the cuts need their place in the order, so a partition does instead of a sort.
        cuts = [round(share * graph.edges) for share in (shares[0], shares[0] + shares[1])]
        in_order = mapped(ordered, time.dtype, graph.edges, "r+")
        if graph.edges:
            in_order.partition([min(cut, graph.edges - 1) for cut in cuts])
        (trained, last_train), (seen, last_val) = (_cut(in_order, cut) for cut in cuts)

    # A share that no edge meets.
    for name, share, size in zip(
        ("training", "validation", "test"), shares, (trained, seen - trained, graph.edges - seen), strict=True
    ):
        if share and not size:
            raise DataError(
                f"--split-edges by time leaves no {name} edge: edges of equal time stay together, and too many of the "
                f"{counted(graph.edges, 'edge')} have the same; give other shares, or --split-edges-by hash"
            )
    return TimeSplit(times, last_train, last_val)


def _cut(in_order: np.ndarray, place: int) -> tuple[int, int | float]:
    """Count the edges before the cut nearest to `place` that parts no equal times; also return the last time before.

    `in_order` has at `place` what it would have there when sorted. The first time is never cut off.
    """
    edges = len(in_order)
    if not edges:
        return 0, 0
    below, upto, largest = _around(in_order, in_order[min(place, edges - 1)])
    if place == edges or not below or upto - place < place - below:
        return int(upto), in_order[min(place, edges - 1)].item()
    return int(below), np.asarray(largest).item()
