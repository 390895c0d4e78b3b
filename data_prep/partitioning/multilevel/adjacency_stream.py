"""A graph on disk whose edges are read chunk by chunk into one buffer: no page of the file stays with the process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from data_prep.mapped_arrays import read_into
from data_prep.partitioning.multilevel.weighted_graph import NO_WEIGHTS, Chunk, VertexWeights, WeightedGraph
from data_prep.progress import SILENT, Progress
from leapmpi.dataset.graph import Graph
from leapmpi.system.jit import unsigned
from leapmpi.system.worker_threads import in_order, processor_count

_ROWS = 1 << 20
"""At most so many rows in a chunk, whatever their edges."""

_LEAST_READ = 1 << 20
"""Entries that are worth a thread."""

_LARGEST_CHUNK = 1 << 22
"""Entries: beyond this a larger chunk saves no time."""


class AdjacencyStream:
    """An undirected graph whose neighbours are read in chunks of about `chunk_entries` entries.

    indptr int64[n + 1], and neighbours int32 or int64 [entries], are memory-mapped or plain arrays. A row longer than
    a chunk is a chunk of its own. `progress` follows the passes.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        neighbours: np.ndarray,
        chunk_entries: int,
        vertex_weights: VertexWeights,
        progress: Progress = SILENT,
    ) -> None:
        self.indptr = indptr
        self.neighbours = neighbours
        self.vertices = len(indptr) - 1
        self.entries = len(neighbours)
        self.vertex_weights = vertex_weights
        # A chunk holds at least one row, however long.
        self._chunk_entries = max(1, chunk_entries)
        self._progress = progress
        self._rows_ahead = 1 + 2 * self._chunk_entries * self.vertices // max(1, self.entries)
        """Rows of twice as many entries as a chunk, on average: read to find where it ends."""
        self._buffer = np.empty(0, neighbours.dtype)

    def degrees(self) -> np.ndarray:
        """Count the neighbours of each vertex: int32[n]."""
        out = np.empty(self.vertices, np.int32)
        for first in range(0, self.vertices, _ROWS):
            rows = np.empty(min(_ROWS, self.vertices - first) + 1, np.int64)
            read_into(self.indptr, first, rows)
            out[first : first + len(rows) - 1] = np.diff(rows)
        return out

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks of the graph in the order of vertices."""
        self._progress.start_pass(self.entries)
        first = 0
        while first < self.vertices:
            indptr = self._rows(first)

            # The buffer grows to the largest chunk.
            start, stop = int(indptr[0]), int(indptr[-1])
            if stop - start > len(self._buffer):
                self._buffer = np.empty(
                    max(stop - start, min(self._chunk_entries, self.entries)), self.neighbours.dtype
                )
            into = self._buffer[: stop - start]
            self._read(start, into)
            yield Chunk(first, indptr - start, unsigned(into), NO_WEIGHTS)
            first += len(indptr) - 1
            self._progress.reach(stop)

    def _read(self, start: int, into: np.ndarray) -> None:
        """Read neighbours from entry `start` on: threads copy ranges from the cache of the system at the same time."""
        size = max(_LEAST_READ, -(-len(into) // processor_count()))
        ranges = ((begin, into[begin : begin + size]) for begin in range(0, len(into), size))
        for _ in in_order(lambda each: read_into(self.neighbours, start + each[0], each[1]), ranges):
            pass

    def _rows(self, first: int) -> np.ndarray:
        """Return indptr int64 of the rows that make the chunk from row `first` on."""
        most, ahead = min(_ROWS, self.vertices - first), self._rows_ahead
        while True:
            indptr = np.empty(min(ahead, most) + 1, np.int64)
            read_into(self.indptr, first, indptr)
            if ahead >= most or indptr[-1] - indptr[0] > self._chunk_entries:
                break
            ahead *= 4
        rows = int(np.searchsorted(indptr, indptr[0] + self._chunk_entries, side="right")) - 1
        return indptr[: max(1, rows) + 1]


AnyGraph = AdjacencyStream | WeightedGraph
"""Algorithms that read rows in order take either."""


def edge_chunks(graph: Graph, share: float, progress: Progress = SILENT) -> Iterator[Chunk]:
    """Yield all rows of `graph` in their order, in chunks of about `share` of the edges."""
    most = min(_LARGEST_CHUNK, int(share * graph.edges))
    return AdjacencyStream(graph.indptr, graph.indices, most, VertexWeights(NO_WEIGHTS, NO_WEIGHTS), progress).chunks()
