"""Edges between a source and the sort: read by chunks, their ids replaced by vertex numbers where necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_prep.edges.edge_sort import Adjacency, EdgeCounts, EdgeSorter
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace, require

_EDGES_AT_ONCE = 1 << 20
_BYTES_PER_VERTEX = 20  # held while components, labels and splits are checked; the rest is mapped
_MOST_VERTICES = 1 << 40  # refused before the edges are read rather than after


@dataclass(frozen=True)
class EdgeStream:
    """Edges that are read on demand: `chunks()` yields integers [2, k], sources over destinations.

    count: the number of all edges, where that is known beforehand. final: maps the ids in the chunks to vertex numbers,
    for streams whose numbers are known only once all edges have been read and the vertices are counted.
    """

    chunks: Callable[[], Iterator[np.ndarray]]
    count: int | None = None
    final: Callable[[np.ndarray], np.ndarray] | None = None


Edges = np.ndarray | EdgeStream
CountVertices = Callable[[int, int], int]
"""Gives the number of vertices from the largest id (or the number of ids less one) and the number of edges."""


def in_chunks(array: np.ndarray) -> EdgeStream:
    """The edges in `array` [2, E], which may be mapped."""

    def chunks() -> Iterator[np.ndarray]:
        for start in range(0, array.shape[1], _EDGES_AT_ONCE):
            yield array[:, start : start + _EDGES_AT_ONCE]

    return EdgeStream(chunks, array.shape[1])


class _StagedEdges:
    """Edges in a temporary file: all ids must be known before the edges can be sorted."""

    def __init__(self, edges: EdgeStream, workspace: Workspace, progress: Progress) -> None:
        self._path: Path = workspace.path("staged")
        self._chunks: list[tuple[int, np.dtype]] = []
        self.count = 0
        self.largest = -1
        with self._path.open("wb") as file:
            for chunk in edges.chunks():
                if chunk.shape[1]:
                    # Four bytes an id where these suffice.
                    narrow = chunk.min() >= -(2**31) and chunk.max() < 2**31
                    chunk = np.ascontiguousarray(chunk, np.int32 if narrow else np.int64)
                    self._chunks.append((chunk.shape[1], chunk.dtype))
                    self.largest = max(self.largest, int(chunk.max()))
                    self.count += chunk.shape[1]
                    file.write(chunk)
                    progress.reach(self.count)

    def chunks(self) -> Iterator[np.ndarray]:
        """The edges again."""
        with self._path.open("rb") as file:
            for count, dtype in self._chunks:
                yield np.fromfile(file, dtype, 2 * count).reshape(2, count)

    def ids(self) -> np.ndarray:
        """All ids that occur, ascending."""
        found = np.empty(0, np.int64)
        for chunk in self.chunks():
            fresh = _distinct(chunk.reshape(-1).astype(np.int64))
            place = np.minimum(np.searchsorted(found, fresh), max(0, len(found) - 1))
            if len(found):
                fresh = fresh[found[place] != fresh]
            if len(fresh):
                found = np.sort(np.concatenate([found, fresh]), kind="stable")  # two runs: a merge
        return found

    def remove(self) -> None:
        """Free the disk."""
        self._path.unlink()


def _distinct(ids: np.ndarray) -> np.ndarray:
    """`ids` in ascending order, each once."""
    ids = np.sort(ids)
    return ids[np.concatenate([[True], ids[1:] != ids[:-1]])[: len(ids)]]


def _check_capacity(vertices: int, workspace: Workspace) -> None:
    """Raise ResourceError where the steps after the sort would not fit in memory."""
    advice = "allow more, or import on another machine"
    require(workspace.memory, vertices * _BYTES_PER_VERTEX, f"importing {vertices:,} vertices", advice)


@dataclass(frozen=True)
class SortedEdges:
    """The adjacency of all edges, their counts, and the source's id of each vertex, where vertices were renumbered."""

    adjacency: Adjacency
    counts: EdgeCounts
    ids: np.ndarray | None


def sort_edges(
    edges: Edges,
    vertices: int | CountVertices,
    *,
    compact: bool,
    directed: bool,
    name: str,
    workspace: Workspace,
    progress: Progress = SILENT,
) -> SortedEdges:
    """Sort `edges` into an adjacency, each both ways unless `directed`; `name` is what messages call them.

    vertices: their number, or a function that gives it from the largest id and the number of edges. compact: ids are
    any numbers, and vertices are numbered by ascending id. Raises DataError naming the first edge with a bad id.
    """
    stream = in_chunks(edges) if isinstance(edges, np.ndarray) else edges
    staged = ids = None
    final = stream.final

    # Where the vertices are not counted yet, read all edges into a temporary file first.
    progress.start(stream.count, "edges read")
    if callable(vertices):
        staged = stream = _StagedEdges(stream, workspace, progress)
        ids = staged.ids() if compact else None
        vertices = vertices(staged.largest if ids is None else len(ids) - 1, staged.count)

    # Ids 0 ... n-1 are numbers already; others become numbers by binary search.
    if ids is not None and len(ids) and ids[0] == 0 and ids[-1] == len(ids) - 1:
        ids = None
    if ids is not None:

        def final(chunk: np.ndarray) -> np.ndarray:
            return np.searchsorted(ids, chunk)

    if vertices > _MOST_VERTICES:
        _check_capacity(vertices, workspace)

    # Sort.
    sorter = EdgeSorter(vertices, directed=directed, name=name, workspace=workspace)
    progress.start(stream.count, "edges taken")
    for chunk in stream.chunks():
        sorter.add(final(chunk) if final else chunk)
        progress.advance(chunk.shape[1])
    if staged:
        staged.remove()
    _check_capacity(vertices, workspace)
    adjacency, counts = sorter.finish(progress)
    return SortedEdges(adjacency, counts, ids)
