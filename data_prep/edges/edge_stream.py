"""EdgeStream: the edges of a source, read by chunks on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from data_prep.edges.edge_records import Chunk, EdgeArrays, with_records
from leapmpi.errors import DataError

_EDGES_AT_ONCE = 1 << 20

ReadShare = Callable[[int, int], Iterator[Chunk]]
"""Reads the i-th of n shares of edges; one share after the other, these are all edges in their order."""


@dataclass(frozen=True)
class EdgeStream:
    """Edges that are read on demand: `chunks()` yields integers [2, k], sources over destinations.

    Where `carries` is the type of a record, it yields pairs of these and of what the edges carry.

    count: the number of all edges, where that is known beforehand. final: maps the ids in the chunks to vertex numbers,
    for streams whose numbers are known only once all edges have been read and the vertices are counted. mapped: the
    edges are those of an array, which are read again rather than copied to a temporary file. share: reads a part of the
    edges without the others, where the source allows it.
    """

    chunks: Callable[[], Iterator[Chunk]]
    count: int | None = None
    final: Callable[[np.ndarray], np.ndarray] | None = None
    carries: np.dtype | None = None
    mapped: bool = False
    share: ReadShare | None = None

    @property
    def resumable(self) -> bool:
        """Whether a later run need not read the edges again: they alone are learned from the source."""
        return self.final is None


def shares_of(read: Callable[[tuple[int, int]], Iterator[Chunk]]) -> ReadShare:
    """Return the reader of shares that `read` makes of (i, n); (0, 1) is the whole source.

    A fault is described as by reading the whole, which knows its row.
    """

    def share(i: int, n: int) -> Iterator[Chunk]:
        try:
            yield from read((i, n))
        except DataError:
            for _ in read((0, 1)):
                pass
            raise

    return share


Edges = np.ndarray | EdgeStream
CountVertices = Callable[[int, int], int]
"""Gives the number of vertices from the largest id (or the number of ids less one) and the number of edges."""


def as_stream(edges: Edges, arrays: EdgeArrays | None = None) -> EdgeStream:
    """Return `edges`, an array [2, E] that may be mapped or already a stream, as a stream with the data `arrays`.

    Raises DataError, later also from the stream, when `arrays` have another number of rows.
    """
    if not isinstance(edges, EdgeStream):
        # In chunks: the array may be mapped and larger than memory.
        starts, whole = range(0, edges.shape[1], _EDGES_AT_ONCE), edges
        edges = EdgeStream(
            lambda: (whole[:, start : start + _EDGES_AT_ONCE] for start in starts),
            edges.shape[1],
            mapped=True,
        )
    if not arrays:
        return edges
    if edges.count is not None:
        arrays.check_length(edges.count)
    plain = edges

    def chunks() -> Iterator[Chunk]:
        start = 0
        for chunk, _ in with_records(plain.chunks()):
            yield chunk, arrays.records(start, start + chunk.shape[1])
            start += chunk.shape[1]
        # Streams of unknown length are checked once they have been read.
        arrays.check_length(start)

    return replace(plain, chunks=chunks, carries=arrays.dtype, share=None)
