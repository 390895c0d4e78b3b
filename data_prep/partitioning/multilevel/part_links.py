"""Parts numbered by the edges between them, of which a sample is counted while the graph streams by."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.part_ordering import add_cut_weights, near_numbers, no_cut_weights

_ENTRIES = 1 << 23
"""About how many entries are counted."""


def number_near(stream, assignment: np.ndarray, parts: int) -> np.ndarray:
    """The cut int32[n] of an AdjacencyStream with parts numbered anew: parts with many edges between them are near."""
    weights = no_cut_weights(parts)
    if parts <= 2 or not weights.size:
        return assignment
    step = 1 + stream.entries // _ENTRIES
    for chunk in stream.chunks():
        for begin in range(0, chunk.vertices, _ROWS * step):
            end = min(begin + _ROWS, chunk.vertices)
            homes = assignment[chunk.first + begin : chunk.first + end]
            add_cut_weights(chunk.indptr[begin : end + 1], chunk.neighbours, homes, assignment, weights)
    return near_numbers(weights + weights.T).astype(np.int32)[assignment]


_ROWS = 256
"""Rows that are counted at a time."""
