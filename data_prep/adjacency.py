"""Edges made into the adjacency of a Graph: checked, sorted, without self-loops and duplicates, symmetric if wanted.

All work is counting and sorting within rows, so memory stays at a few times the size of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.compiled import compiled
from leapmpi.dataset.format import index_dtype
from leapmpi.errors import DataError


@dataclass(frozen=True)
class Adjacency:
    """In-neighbours by vertex, strictly ascending: indptr int64[n + 1], indices int32[m] (int64 from 2**31 on)."""

    indptr: np.ndarray
    indices: np.ndarray

    @property
    def vertices(self) -> int:
        """The number of vertices."""
        return len(self.indptr) - 1


@dataclass(frozen=True)
class EdgeCounts:
    """What became of the edges: read = loops + duplicates + distinct; written = distinct + reverse_added."""

    read: int
    loops: int
    duplicates: int
    reverse_added: int
    written: int


def check_ids(edges: np.ndarray, vertices: int, name: str) -> None:
    """Raise DataError naming the first edge of `edges` [2, E] with an id that is negative or not below `vertices`."""
    if edges.size == 0 or (edges.min() >= 0 and edges.max() < vertices):
        return
    bad = (edges < 0) | (edges >= vertices)
    row = int(np.argmax(bad.any(axis=0)))
    end = int(np.argmax(bad[:, row]))
    value, side = int(edges[end, row]), ("source", "destination")[end]
    fault = "is negative" if value < 0 else f"is out of range: the graph has vertices 0 ... {vertices - 1}"
    raise DataError(f"{name}: edge {row} (counted from 0): its {side} {value} {fault}")


@compiled
def _bucket(source, destination, indptr, indices):
    """Counting sort by destination without self-loops; returns the number of self-loops."""
    loops = 0
    for e in range(len(source)):
        if source[e] == destination[e]:
            loops += 1
        else:
            indptr[destination[e] + 1] += 1
    for v in range(len(indptr) - 1):
        indptr[v + 1] += indptr[v]
    place = indptr[:-1].copy()
    for e in range(len(source)):
        if source[e] != destination[e]:
            indices[place[destination[e]]] = source[e]
            place[destination[e]] += 1
    return loops


@compiled
def _sort_rows(indptr, indices):
    """Sort each row and drop repeated entries, moving rows together; returns the number of entries left."""
    written = 0
    start = indptr[0]
    for v in range(len(indptr) - 1):
        stop = indptr[v + 1]
        indices[start:stop].sort()
        first = written
        for e in range(start, stop):
            if written == first or indices[written - 1] != indices[e]:
                indices[written] = indices[e]
                written += 1
        start = stop
        indptr[v + 1] = written
    return written


@compiled
def _transpose(indptr, indices, out_indptr, out_indices):
    """Rows become columns; the rows of the result are ascending."""
    for e in range(len(indices)):
        out_indptr[indices[e] + 1] += 1
    for v in range(len(out_indptr) - 1):
        out_indptr[v + 1] += out_indptr[v]
    place = out_indptr[:-1].copy()
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            out_indices[place[indices[e]]] = v
            place[indices[e]] += 1


@compiled
def _union(a_indptr, a, b_indptr, b, out_indptr, out):
    """Merge two adjacencies row by row; rows are ascending on both sides. Returns the number of entries."""
    written = 0
    for v in range(len(a_indptr) - 1):
        i, j = a_indptr[v], b_indptr[v]
        while i < a_indptr[v + 1] or j < b_indptr[v + 1]:
            take_a = j >= b_indptr[v + 1] or (i < a_indptr[v + 1] and a[i] <= b[j])
            take_b = i >= a_indptr[v + 1] or (j < b_indptr[v + 1] and b[j] <= a[i])
            out[written] = a[i] if take_a else b[j]
            written += 1
            i += take_a
            j += take_b
        out_indptr[v + 1] = written
    return written


@compiled
def _roots(indptr, indices, root):
    """Union-find with path halving; the root of a component is its smallest vertex. Directions do not count."""
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            a, b = v, np.int64(indices[e])
            while root[a] != a:
                root[a] = root[root[a]]
                a = root[a]
            while root[b] != b:
                root[b] = root[root[b]]
                b = root[b]
            if a < b:
                root[b] = a
            else:
                root[a] = b
    for v in range(len(root)):
        root[v] = root[root[v]]


def build(edges: np.ndarray, vertices: int, *, directed: bool, name: str) -> tuple[Adjacency, EdgeCounts]:
    """The adjacency of `edges` int64[2, E] (source, destination), and what became of them.

    With `directed` false every edge is also taken backwards. Raises DataError when an id is out of range.
    """
    check_ids(edges, vertices, name)
    read = edges.shape[1]
    indptr = np.zeros(vertices + 1, np.int64)
    indices = np.empty(read, index_dtype(vertices))
    loops = _bucket(edges[0], edges[1], indptr, indices)
    distinct = _sort_rows(indptr, indices[: read - loops])
    found = Adjacency(indptr, indices[:distinct])
    if not directed:
        found = _symmetric(found)
    written = len(found.indices)
    return found, EdgeCounts(read, loops, read - loops - distinct, written - distinct, written)


def _symmetric(one_way: Adjacency) -> Adjacency:
    back = Adjacency(np.zeros_like(one_way.indptr), np.empty_like(one_way.indices))
    _transpose(one_way.indptr, one_way.indices, back.indptr, back.indices)
    indptr = np.zeros_like(one_way.indptr)
    indices = np.empty(2 * len(one_way.indices), one_way.indices.dtype)
    written = _union(one_way.indptr, one_way.indices, back.indptr, back.indices, indptr, indices)
    return Adjacency(indptr, indices[:written].copy())


def components(adjacency: Adjacency) -> np.ndarray:
    """int64[n]: the smallest vertex of each vertex's (weakly) connected component."""
    root = np.arange(adjacency.vertices)
    _roots(adjacency.indptr, adjacency.indices, root)
    return root


def induced(adjacency: Adjacency, keep: np.ndarray) -> Adjacency:
    """The adjacency among the vertices with `keep` bool[n], renumbered in order."""
    new_id = np.cumsum(keep) - 1
    degree = np.diff(adjacency.indptr)
    row = np.repeat(np.arange(adjacency.vertices), degree)
    inside = keep[row] & keep[adjacency.indices]
    size = np.bincount(row[inside], minlength=adjacency.vertices)[keep]
    indptr = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    kept = int(keep.sum())
    return Adjacency(indptr, new_id[adjacency.indices[inside]].astype(index_dtype(kept)))
