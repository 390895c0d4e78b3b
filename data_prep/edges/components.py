"""The connected components of an adjacency, and the adjacency among some of its vertices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.edges.edge_sort import Adjacency
from data_prep.progress import SILENT, Progress
from data_prep.workspace import Workspace
from leapmpi.dataset.edge_data import EdgeData
from leapmpi.dataset.hdf5.names import index_dtype
from leapmpi.dataset.hdf5.row_blocks import row_groups
from leapmpi.system.jit import compiled

_BLOCK_BYTES = 64 * 2**20
_FEW_ENTRIES, _ALL_ENTRIES = 2, 2**62
_SAMPLED = 1024
"""Vertices in the sample that finds the largest component."""


@dataclass(frozen=True)
class Components:
    """The (weakly) connected components.

    root [n]: the smallest vertex in the component of each vertex. count: the number of components; isolated: of those
    with a single vertex. largest, largest_root: the size and the root of the largest; of several, the smallest root.
    """

    root: np.ndarray
    count: int
    largest: int
    largest_root: int
    isolated: int


@compiled
def _root_of(root, v):
    """Return the root of `v`; the path to it is halved."""
    while root[v] != v:
        root[v] = root[root[v]]
        v = np.int64(root[v])
    return v


@compiled
def _join(first, indptr, indices, most, below, giant, root):
    """Join the rows by union-find with path halving; the root of a component is its smallest vertex.

    Takes the first `most` entries of each row; with `below`, only those smaller than the row's vertex. Rows in the
    component of the vertex `giant` are left out; -1 is in none.
    """
    for row in range(len(indptr) - 1):
        v = np.int64(first + row)
        # Most vertices are in one component: once that is known their lists need not be read.
        if giant >= 0 and _root_of(root, v) == _root_of(root, giant):
            continue
        begin = indptr[row] - indptr[0]
        for e in range(begin, min(indptr[row + 1] - indptr[0], begin + most)):
            b = np.int64(indices[e])
            # Entries ascend, so that no later one is smaller.
            if below and b > v:
                break
            a, b = _root_of(root, v), _root_of(root, b)
            # The smaller root wins, so that the result does not depend on the order of edges.
            if a < b:
                root[b] = a
            else:
                root[a] = b


@compiled
def _sizes(root, size):
    """Point every vertex to the root of its component, and count the vertices of each component in `size` [n].

    Returns components, the size and the root of the largest, and single vertices.
    """
    for v in range(len(root)):
        # Ascending order makes one step enough.
        root[v] = root[root[v]]
        size[root[v]] += 1
    count, largest, largest_root, isolated = 0, 0, 0, 0
    for v in range(len(size)):
        count += size[v] > 0
        isolated += size[v] == 1
        if size[v] > largest:
            largest, largest_root = np.int64(size[v]), v
    return count, largest, largest_root, isolated


@compiled
def _kept(indptr, indices, first, keep, new_id, degree, out):
    """Write the neighbours of a few rows to `out`, those among the vertices to `keep` and with their new numbers.

    degree int64[rows] gets the number of each row; returns the sum.
    """
    filled = 0
    for row in range(len(indptr) - 1):
        before = filled
        if keep[first + row]:
            for e in range(indptr[row] - indptr[0], indptr[row + 1] - indptr[0]):
                if keep[indices[e]]:
                    out[filled] = new_id[indices[e]]
                    filled += 1
        degree[row] = filled - before
    return filled


def components(adjacency: Adjacency, *, symmetric: bool, progress: Progress = SILENT) -> Components:
    """Find the components of `adjacency`, which has every edge in both directions if `symmetric`.

    Takes memory for two numbers per vertex, and for a block of edges.
    """
    dtype = index_dtype(adjacency.vertices)
    root = np.arange(adjacency.vertices, dtype=dtype)

    # A few entries of each row join most vertices to one component. Both ends name an edge of a symmetric adjacency, so
    # rows in that component need not be read (Afforest: Sutton, Ben-Nun, Barak, IPDPS 2018).
    passes: list[tuple[int, bool]] = [(_ALL_ENTRIES, symmetric)]
    if symmetric and adjacency.vertices >= _SAMPLED:
        passes = [(_FEW_ENTRIES, False), (_ALL_ENTRIES, False)]
    progress.start(adjacency.vertices * len(passes), "vertices")
    for number, (most, below) in enumerate(passes):
        giant = _frequent(root) if number else -1
        for start, stop in row_groups(adjacency.indptr, 8, adjacency.indices.itemsize, _BLOCK_BYTES):
            indptr = np.asarray(adjacency.indptr[start : stop + 1])
            indices = np.asarray(adjacency.indices[indptr[0] : indptr[-1]])
            _join(start, indptr, indices, most, below, giant, root)
            progress.reach(number * adjacency.vertices + stop)
    return Components(root, *map(int, _sizes(root, np.zeros(adjacency.vertices, dtype))))


def _frequent(root: np.ndarray) -> int:
    """Return the root of a component that is probably the largest so far, by a sample."""
    roots = [int(_root_of(root, v)) for v in range(0, len(root), len(root) // _SAMPLED)]
    return max(sorted(set(roots)), key=roots.count)


def induced(adjacency: Adjacency, keep: np.ndarray, workspace: Workspace) -> Adjacency:
    """Build the adjacency among the vertices with `keep` bool[n], renumbered in order, in temporary files."""
    # The new number of each kept vertex.
    kept = int(np.count_nonzero(keep))
    dtype = index_dtype(kept)
    new_id = np.cumsum(keep, dtype=index_dtype(len(keep) + 1))
    new_id -= 1

    # Copy the rows block by block.
    path = workspace.path("indices")
    total = row = 0
    bounds = workspace.array("indptr", (kept + 1,), np.int64)
    with workspace.written(path) as file:
        for start, stop in row_groups(adjacency.indptr, 16, 2 * adjacency.indices.itemsize, _BLOCK_BYTES):
            indptr = np.asarray(adjacency.indptr[start : stop + 1])
            indices = np.asarray(adjacency.indices[indptr[0] : indptr[-1]])
            degree, out = np.empty(stop - start, np.int64), np.empty(len(indices), dtype)
            filled = _kept(indptr, indices, start, keep, new_id, degree, out)
            file.write(out[:filled])
            kept_degrees = degree[keep[start:stop]]
            bounds[row + 1 : row + 1 + len(kept_degrees)] = total + np.cumsum(kept_degrees)
            total += filled
            row += len(kept_degrees)
    data = _kept_data(adjacency, keep, total, workspace)
    return Adjacency(bounds, workspace.map(path, dtype, (total,)), data)


def _kept_data(adjacency: Adjacency, keep: np.ndarray, edges: int, workspace: Workspace) -> EdgeData:
    """Copy the data of the `edges` edges among the vertices with `keep` bool[n] to temporary files."""
    arrays = {}
    for name, array in adjacency.data.arrays().items():
        path = workspace.path(name)
        with workspace.written(path) as file:
            entry = 2 * adjacency.data.row_bytes + adjacency.indices.itemsize
            for start, stop in row_groups(adjacency.indptr, 16, entry, _BLOCK_BYTES):
                indptr = np.asarray(adjacency.indptr[start : stop + 1])
                edge = slice(indptr[0], indptr[-1])
                kept = np.repeat(keep[start:stop], np.diff(indptr)) & keep[adjacency.indices[edge]]
                file.write(np.ascontiguousarray(array[edge][kept]).data)
        arrays[name] = workspace.map(path, array.dtype, (edges, *array.shape[1:]))
    return adjacency.data.with_arrays(arrays)
