"""Writer of the rows of a graph to the files of its parts, in one pass over a graph that may exceed memory.

Threads share the work: one renumbers in-neighbours, one writes them, one writes all other arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5 import names
from leapmpi.dataset.hdf5.row_blocks import row_groups, row_ranges
from leapmpi.dataset.hdf5.writer import ArrayWriter, NewFile
from leapmpi.dataset.sparse_features import Features, SparseFeatures, row_bytes
from leapmpi.system.jit import compiled, unsigned
from leapmpi.system.worker_threads import in_order

_ROW_BYTES = 24
"""A row of a block of lists: its number, where its list begins, and where its part's begins."""


@dataclass(frozen=True)
class Renumbering:
    """The parts and new numbers of the vertices of a graph.

    part: int32[n]; new_of: int32|int64[n], the new number of each vertex; offsets: int64[P + 1], part p has the new
    numbers offsets[p] to offsets[p + 1] (exclusive); edges: int64[P], in-edges of each part; vertices: integers[n], all
    vertices in the order in which parts have them, None for that of the graph.
    """

    part: np.ndarray
    new_of: np.ndarray
    offsets: np.ndarray
    edges: np.ndarray
    vertices: np.ndarray | None = None

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return the rows of the graph at places start ... stop - 1 of the order: int64."""
        return np.arange(start, stop) if self.vertices is None else self.vertices[start:stop].astype(np.int64)


@compiled
def _count(part, indptr, vertices, edges):
    """Add the rows of each part to `vertices` [P], and their entries to `edges` [P]."""
    for v in range(len(part)):
        vertices[part[v]] += 1
        edges[part[v]] += indptr[v + 1] - indptr[v]


@compiled
def _number(vertices, part, next_of, new_of):
    """Give each of `vertices` the next number of its part; next_of [P] holds the first numbers and is changed."""
    for v in vertices:
        new_of[v] = next_of[part[v]]
        next_of[part[v]] += 1


@compiled
def _by_part(part, first, starts, rows):
    """Write the rows of the k parts from `first` on to `rows`, grouped by part, in their order in each.

    Group i is rows[starts[i]:starts[i + 1]], with starts [k + 1] zero before.
    """
    # Counting sort: sizes, their sums, then the rows.
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
    """Write the renumbered in-neighbours of `rows` to `out`, those of rows[i] to out[bounds[i]:bounds[i + 1]]."""
    filled = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            out[filled] = new_of[indices[e]]
            filled += 1
        bounds[i + 1] = filled


@compiled
def _entries_of(indptr, rows, out):
    """Write the places of the entries of `rows` to `out`, row by row."""
    filled = 0
    for row in rows:
        for e in range(indptr[row], indptr[row + 1]):
            out[filled] = e
            filled += 1


def renumber(graph: Graph, assignment: np.ndarray, parts: int, vertices: np.ndarray | None = None) -> Renumbering:
    """Number the vertices part by part; within a part in the order of `vertices` (integers[n], all of them).

    By default they keep that of the graph, which is that of original ids.
    """
    part = np.ascontiguousarray(assignment, np.int32)
    sizes = np.zeros(parts, np.int64)
    edges = np.zeros(parts, np.int64)
    _count(part, np.asarray(graph.indptr), sizes, edges)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    new_of = np.empty(len(part), names.index_dtype(len(part)))
    found, next_of = Renumbering(part, new_of, offsets, edges, vertices), offsets[:-1].copy()
    for start, stop in row_ranges(len(part), 8):
        _number(found.rows(start, stop), part, next_of, new_of)
    return found


def type_offsets(graph: Graph, order: Renumbering) -> np.ndarray:
    """Return int64[P, T + 1]: part p has the new numbers [p, t] to [p, t + 1] of type t; [P, 1] for a plain graph."""
    sections = [] if graph.typed is None else list(pairwise(graph.typed.offsets.tolist()))
    parts = len(order.edges)
    counts = [np.bincount(order.part[start:stop], minlength=parts) for start, stop in sections]
    ends = np.cumsum(np.array(counts, np.int64).reshape(len(sections), parts), axis=0)
    return order.offsets[:-1, None] + np.concatenate([np.zeros((1, parts), np.int64), ends]).T


class PartWriter:
    """Writes the arrays of consecutive parts; file i of `files` holds part first + i.

    block_bytes: in-neighbours and other arrays each hold about as many bytes of the graph at a time.
    """

    def __init__(self, graph: Graph, order: Renumbering, first: int, files: list[NewFile], block_bytes: int) -> None:
        self._graph = graph
        self._order = order
        self._first = first
        self._block_bytes = block_bytes
        vertex_data: dict[str, Features | None] = {**graph.arrays(features=False), names.FEATURES: graph.features}
        self._edge_data = graph.edge_data.arrays()
        for name in (names.INDPTR, names.INDICES, names.FEATURE_SCALE, *self._edge_data):
            vertex_data.pop(name, None)
        self._vertex_data = {name: array for name, array in vertex_data.items() if array is not None}
        self._type_offsets = type_offsets(graph, order)
        self._entries = np.zeros_like(order.edges)
        """int64[P]: entries of the sparse features of each part."""
        if isinstance(graph.features, SparseFeatures):
            _count(order.part, np.asarray(graph.features.indptr), np.zeros_like(order.edges), self._entries)
        self._writers = [self._arrays_of(first + i, file) for i, file in enumerate(files)]

    def _arrays_of(self, part: int, file: NewFile) -> dict[str, ArrayWriter]:
        """Create a writer by name for each array of `part` in `file`."""
        rows = int(self._order.offsets[part + 1] - self._order.offsets[part])
        entries = int(self._entries[part])
        lengths = {
            names.INDPTR: rows + 1,
            names.INDICES: int(self._order.edges[part]),
            names.FEATURE_SCALE: 2,
            names.FEATURE_INDPTR: rows + 1,
            names.FEATURE_INDICES: entries,
            names.FEATURE_DATA: entries,
            **dict.fromkeys(self._edge_data, int(self._order.edges[part])),
        }
        for t, count in enumerate(np.diff(self._type_offsets[part]).tolist()):
            lengths |= {names.type_features(t): count, names.type_scale(t): 2}
        # An array of another length than that of the rows is listed above.
        writers = {
            name: file.array(name, (lengths.get(name, rows), *array.shape[1:]), array.dtype)
            for name, array in self._graph.arrays().items()
            if array is not None
        }
        # Row offsets begin at 0; blocks append the ends of their rows.
        for name in {names.INDPTR, names.FEATURE_INDPTR} & writers.keys():
            writers[name].append(np.zeros(1, np.int64))
        # Scales are those of the whole graph, the same in every part.
        if self._graph.feature_scale is not None:
            writers[names.FEATURE_SCALE].append(self._graph.feature_scale)
        for t, scale in enumerate(self._graph.typed.scales if self._graph.typed else ()):
            if scale is not None:
                writers[names.type_scale(t)].append(scale)
        return writers

    def write(self, progress: Callable[[int], object] | None = None) -> None:
        """Write all arrays of these parts; `progress` is called with the number of vertices done.

        Raises OSError when the disk is full.
        """
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self._write_neighbours, progress), pool.submit(self._write_vertex_data)]:
                done.result()

        # Digests go through HDF5, which one thread may use at a time.
        for writers in self._writers:
            for writer in writers.values():
                writer.finish()

    def _groups(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of these parts at places start ... stop - 1 of the order, by part: see `_by_part`."""
        starts = np.zeros(len(self._writers) + 1, np.int64)
        among, rows = np.empty(stop - start, np.int64), self._order.rows(start, stop)
        _by_part(self._order.part[rows], self._first, starts, among)
        return rows[among[: starts[-1]]], starts

    def _ranges(self, entry_bytes: int) -> Iterator[tuple[int, int]]:
        """Return ranges of places whose rows and lists, at `entry_bytes` per entry, make a block."""
        indptr = self._graph.indptr
        if self._order.vertices is None:
            yield from row_groups(indptr, _ROW_BYTES, entry_bytes, self._block_bytes)
            return
        for start, stop in row_ranges(self._graph.vertices, _ROW_BYTES, self._block_bytes):
            rows = self._order.rows(start, stop)
            ends = np.concatenate([[0], np.cumsum(indptr[rows + 1] - indptr[rows])])
            for low, high in row_groups(ends, _ROW_BYTES, entry_bytes, self._block_bytes):
                yield start + low, start + high

    def _write_neighbours(self, progress: Callable[[int], object] | None) -> None:
        # Lists are appended, so remember the entries of each part so far.
        ends = np.zeros(len(self._writers), np.int64)

        # A thread renumbers the next blocks of rows while this one appends to the files: three blocks are held.
        graph = self._graph
        entry = 4 * (graph.indices.itemsize + graph.edge_data.row_bytes) + (8 if self._edge_data else 0)
        for stop, starts, bounds, arrays in in_order(self._lists_of, self._ranges(entry), 1):
            for i, (low, high) in self._slices(starts):
                begin, end = bounds[low], bounds[high]
                for name, array in arrays.items():
                    self._writers[i][name].append(array[begin:end])
                self._writers[i][names.INDPTR].append(bounds[low + 1 : high + 1] - begin + ends[i])
                ends[i] += end - begin
            if progress:
                progress(stop)

    def _lists_of(self, places: tuple[int, int]) -> tuple[int, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Gather the lists of the rows at places start ... stop - 1 of the order, by part.

        Returns stop, the bounds of the parts among the rows, those of the rows, and arrays of edges by name.
        """
        start, stop = places
        indptr, indices = np.asarray(self._graph.indptr), np.asarray(self._graph.indices)
        rows, starts = self._groups(start, stop)
        bounds = np.zeros(len(rows) + 1, np.int64)
        out = np.empty(int((indptr[rows + 1] - indptr[rows]).sum()), self._order.new_of.dtype)
        _lists(indptr, unsigned(indices), rows, self._order.new_of, bounds, out)
        return stop, starts, bounds, {names.INDICES: out, **self._edge_rows(indptr, rows, len(out))}

    def _edge_rows(self, indptr: np.ndarray, rows: np.ndarray, count: int) -> dict[str, np.ndarray]:
        """Return the data of the `count` edges of `rows`, by the names of the arrays."""
        if not self._edge_data:
            return {}
        entries = np.empty(count, np.int64)
        _entries_of(indptr, rows, entries)
        return {name: array[entries] for name, array in self._edge_data.items()}

    def _write_vertex_data(self) -> None:
        size = sum(row_bytes(array) for array in self._vertex_data.values())
        of_types = self._graph.typed.features if self._graph.typed else ()
        size += max((row_bytes(features) for features in of_types if features is not None), default=0)

        # The entries of sparse features each part has so far.
        ends = np.zeros(len(self._writers), np.int64)

        # One block of rows at a time: gather by part, then append to each file.
        for start, stop in row_ranges(self._graph.vertices, 2 * size + 8, self._block_bytes):
            rows, starts = self._groups(start, stop)
            for name, array in self._vertex_data.items():
                block = array[rows]
                for i, (low, high) in self._slices(starts):
                    part, writers = block[low:high], self._writers[i]
                    if isinstance(part, SparseFeatures):
                        writers[names.FEATURE_INDICES].append(part.indices)
                        writers[names.FEATURE_DATA].append(part.data)
                        writers[names.FEATURE_INDPTR].append(part.indptr[1:] + ends[i])
                        ends[i] += len(part.indices)
                    else:
                        writers[name].append(part)
            for i, (low, high) in self._slices(starts):
                self._append_by_type(rows[low:high], self._writers[i])

    def _append_by_type(self, rows: np.ndarray, writers: dict[str, ArrayWriter]) -> None:
        """Append the features of `rows`, sorted by type, to the arrays of their types."""
        typed = self._graph.typed
        if typed is None:
            return
        bounds = np.searchsorted(typed.types_of(rows), np.arange(len(typed.features) + 1))
        for t, features in enumerate(typed.features):
            if features is not None and bounds[t] < bounds[t + 1]:
                block = features[rows[bounds[t] : bounds[t + 1]] - typed.offsets[t]]
                writers[names.type_features(t)].append(block)

    @staticmethod
    def _slices(starts: np.ndarray) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield (i, (start, stop)) of each group that is not empty."""
        for i in np.flatnonzero(np.diff(starts)).tolist():
            yield i, (int(starts[i]), int(starts[i + 1]))
