"""The rows of a graph dealt to the files of its parts, in one pass over the graph: it may be larger than memory.

Two threads share the work: one deals lists of in-neighbours, the other all that vertices have besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.graph_file import stored_dtype
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.writer import ArrayWriter, NewFile
from leapmpi.dataset.row_blocks import row_groups, row_ranges
from leapmpi.dataset.sparse_features import SparseFeatures, arrays_of, row_bytes
from leapmpi.system.jit import compiled


@dataclass(frozen=True)
class Renumbering:
    """Where the vertices of a graph go: part int32[n] of each, its new number new_of [n], offsets int64[P + 1] of the
    parts in the new numbers, and edges int64[P], the in-edges of each part."""

    part: np.ndarray
    new_of: np.ndarray
    offsets: np.ndarray
    edges: np.ndarray


@compiled
def _count(part, indptr, vertices, edges):
    for v in range(len(part)):
        vertices[part[v]] += 1
        edges[part[v]] += indptr[v + 1] - indptr[v]


@compiled
def _number(part, next_of, new_of):
    for v in range(len(part)):
        new_of[v] = next_of[part[v]]
        next_of[part[v]] += 1


@compiled
def _by_part(part, first, starts, rows):
    """Write the rows of the parts first ... to `rows`, by part in ascending order; `starts` [k + 1] says where."""
    parts = len(starts) - 1
    for p in part:
        if first <= p < first + parts:
            starts[p - first + 1] += 1
    for i in range(parts):
        starts[i + 1] += starts[i]
    place = starts[:-1].copy()
    for v in range(len(part)):
        p = part[v] - first
        if 0 <= p < parts:
            rows[place[p]] = v
            place[p] += 1


@compiled
def _lists(indptr, indices, rows, new_of, bounds, out):
    """Write the renumbered in-neighbours of `rows` to `out`, and where each list ends to `bounds` [len(rows) + 1]."""
    filled = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]] - indptr[0], indptr[rows[i] + 1] - indptr[0]):
            out[filled] = new_of[indices[e]]
            filled += 1
        bounds[i + 1] = filled


def renumber(graph: Graph, assignment: np.ndarray, parts: int) -> Renumbering:
    """New numbers part by part; within a part vertices keep their order, which is that of original ids."""
    part = np.ascontiguousarray(assignment, np.int32)
    sizes, edges = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    _count(part, np.asarray(graph.indptr), sizes, edges)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    new_of = np.empty(len(part), names.index_dtype(len(part)))
    _number(part, offsets[:-1].copy(), new_of)
    return Renumbering(part, new_of, offsets, edges)


def entries_of_parts(features: SparseFeatures, order: Renumbering) -> np.ndarray:
    """int64[P]: entries of the rows of each part."""
    vertices, entries = np.zeros_like(order.edges), np.zeros_like(order.edges)
    _count(order.part, np.asarray(features.indptr), vertices, entries)
    return entries


def _append_sparse(writers: dict[str, ArrayWriter], rows: SparseFeatures, before: int) -> int:
    """Write `rows` after `before` entries; returns how many there are then."""
    writers[names.FEATURE_INDICES].append(rows.indices)
    writers[names.FEATURE_DATA].append(rows.data)
    writers[names.FEATURE_INDPTR].append(rows.indptr[1:] + before)
    return before + len(rows.indices)


class PartWriter:
    """Writes the arrays of consecutive parts, of which file i of `files` holds part first + i.

    block_bytes: about as much of the graph is held at a time, by each of two threads.
    """

    def __init__(self, graph: Graph, order: Renumbering, first: int, files: list[NewFile], block_bytes: int) -> None:
        self._graph, self._order, self._first, self._block_bytes = graph, order, first, block_bytes
        self._vertex_data = {
            name: array
            for name, array in (
                (names.ORIGINAL_ID, graph.original_id),
                (names.SPLIT, graph.split),
                (names.LABELS, graph.labels),
                (names.FEATURES, graph.features),
            )
            if array is not None
        }
        features = self._vertex_data.get(names.FEATURES)
        self._entries = entries_of_parts(features, order) if isinstance(features, SparseFeatures) else None
        self._writers = [self._arrays_of(first + i, file) for i, file in enumerate(files)]

    def _arrays_of(self, part: int, file: NewFile) -> dict[str, ArrayWriter]:
        rows, edges = int(self._order.offsets[part + 1] - self._order.offsets[part]), int(self._order.edges[part])
        dtype = names.index_dtype(self._graph.vertices)
        return {
            names.INDPTR: file.array(names.INDPTR, (rows + 1,), "<i8"),
            names.INDICES: file.array(names.INDICES, (edges,), dtype),
            **{
                name: file.array(name, self._shape(name, array, rows, part), stored_dtype(array))
                for name, array in self._stored_vertex_data()
            },
        }

    def _stored_vertex_data(self) -> Iterator[tuple[str, np.ndarray]]:
        """The arrays of vertices' data as they are stored."""
        for name, array in self._vertex_data.items():
            yield from arrays_of(array).items() if name == names.FEATURES else [(name, array)]

    def _shape(self, name: str, array: np.ndarray, rows: int, part: int) -> tuple[int, ...]:
        """The shape of array `name` in `part`, which has so many `rows`."""
        if name == names.FEATURE_INDPTR:
            return (rows + 1,)
        if name in (names.FEATURE_INDICES, names.FEATURE_DATA):
            return (int(self._entries[part]),)
        return (rows, *array.shape[1:])

    def deal(self, progress: Callable[[int], object] | None = None) -> None:
        """Write all arrays of these parts; `progress` is told how many vertices have been looked at.

        Raises OSError when the disk is full.
        """
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self._deal_lists, progress), pool.submit(self._deal_vertex_data)]:
                done.result()
        for writers in self._writers:
            for writer in writers.values():
                writer.finish()

    def _groups(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows start ... stop - 1 that are dealt now, counted from `start` and grouped by part, and the groups."""
        starts = np.zeros(len(self._writers) + 1, np.int64)
        rows = np.empty(stop - start, np.int64)
        _by_part(self._order.part[start:stop], self._first, starts, rows)
        return rows[: starts[-1]], starts

    def _deal_lists(self, progress: Callable[[int], object] | None) -> None:
        graph = self._graph
        ends = np.zeros(len(self._writers), np.int64)
        for writers in self._writers:
            writers[names.INDPTR].append(np.zeros(1, np.int64))
        for start, stop in row_groups(graph.indptr, 24, 2 * graph.indices.itemsize, self._block_bytes):
            indptr = np.asarray(graph.indptr[start : stop + 1])
            indices = np.asarray(graph.indices[indptr[0] : indptr[-1]])
            rows, starts = self._groups(start, stop)
            bounds, out = np.zeros(len(rows) + 1, np.int64), np.empty(len(indices), self._order.new_of.dtype)
            _lists(indptr, indices, rows, self._order.new_of, bounds, out)
            for i, (low, high) in self._slices(starts):
                begin, end = bounds[low], bounds[high]
                self._writers[i][names.INDICES].append(out[begin:end])
                self._writers[i][names.INDPTR].append(bounds[low + 1 : high + 1] - begin + ends[i])
                ends[i] += end - begin
            if progress:
                progress(stop)

    def _deal_vertex_data(self) -> None:
        size = sum(row_bytes(array) for array in self._vertex_data.values())
        ends = np.zeros(len(self._writers), np.int64)
        if self._entries is not None:
            for writers in self._writers:
                writers[names.FEATURE_INDPTR].append(np.zeros(1, np.int64))
        for start, stop in row_ranges(self._graph.vertices, 2 * size + 8, self._block_bytes):
            rows, starts = self._groups(start, stop)
            for name, array in self._vertex_data.items():
                block = array[start:stop][rows]
                for i, (low, high) in self._slices(starts):
                    if isinstance(block, SparseFeatures):
                        ends[i] = _append_sparse(self._writers[i], block[low:high], ends[i])
                    else:
                        self._writers[i][name].append(block[low:high])

    @staticmethod
    def _slices(starts: np.ndarray) -> Iterator[tuple[int, tuple[int, int]]]:
        for i in np.flatnonzero(np.diff(starts)):
            yield i, (int(starts[i]), int(starts[i + 1]))
