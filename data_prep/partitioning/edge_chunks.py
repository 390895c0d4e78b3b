"""A graph's rows in consecutive chunks, so that a method that streams holds one chunk of the edges at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from data_prep.mapped_arrays import read_into
from data_prep.progress import SILENT, Progress
from leapmpi.dataset.graph import Graph

_LARGEST_CHUNK = 1 << 22
"""Edges: beyond this a larger chunk saves no time."""


class EdgeChunk(NamedTuple):
    """The in-neighbours of vertices first, first + 1, ...: those of first + i are indices[indptr[i]:indptr[i + 1]]."""

    first: int
    indptr: np.ndarray
    indices: np.ndarray


def edge_chunks(graph: Graph, share: float, progress: Progress = SILENT) -> Iterator[EdgeChunk]:
    """All rows of `graph` in their order, in chunks of whole rows of about `share` of the edges.

    A row that is longer than that makes a chunk of its own. Arrays of a mapped file are read past the map, whose pages
    would stay with this process. `progress` follows the edges.
    """
    progress.start_pass(graph.edges)
    most = max(1, min(_LARGEST_CHUNK, int(share * graph.edges)))
    first = 0
    while first < graph.vertices:
        # The last row that still fits.
        begin = int(graph.indptr[first])
        last = int(np.searchsorted(graph.indptr, begin + most, side="right")) - 1
        last = min(graph.vertices, max(first + 1, last))
        end = int(graph.indptr[last])

        # A copy of the rows.
        indptr = np.asarray(graph.indptr[first : last + 1]) - begin
        indices = np.empty(end - begin, graph.indices.dtype)
        read_into(graph.indices, begin, indices)
        yield EdgeChunk(first, indptr, indices)
        progress.reach(end)
        first = last
