"""The union graph of a typed graph: its vertices, and every pair that some relation joins, as one plain edge."""

from __future__ import annotations

import numpy as np

from data_prep.mapped_arrays import mapped, temporary_file
from leapmpi.dataset.graph import Graph
from leapmpi.dataset.hdf5.row_blocks import row_groups
from leapmpi.system.jit import compiled

_BLOCK_BYTES = 32 << 20


@compiled
def _sorted_rows(indptr, indices, ends):
    """Sort each row of `indices` in place, without repeats; write their ends to `ends` int64[rows]; return the last."""
    written = 0
    for row in range(len(indptr) - 1):
        start, stop = indptr[row] - indptr[0], indptr[row + 1] - indptr[0]
        indices[start:stop].sort()
        first = written
        for e in range(start, stop):
            if written == first or indices[written - 1] != indices[e]:
                indices[written] = indices[e]
                written += 1
        ends[row] = written
    return written


def union_of(graph: Graph) -> Graph:
    """Return the union graph of a typed graph, with edges in a temporary file; a plain graph itself.

    Methods cut the union graph, as their rows must ascend and name each neighbour once.
    """
    if graph.types is None:
        return graph
    file, indptr, total = temporary_file(), np.zeros(graph.vertices + 1, np.int64), 0
    for start, stop in row_groups(graph.indptr, 8, graph.indices.itemsize, _BLOCK_BYTES):
        bounds = np.asarray(graph.indptr[start : stop + 1])
        rows = np.array(graph.indices[bounds[0] : bounds[-1]])
        # Block by block to a file: the edges may be larger than memory.
        kept = _sorted_rows(bounds, rows, indptr[start + 1 : stop + 1])
        indptr[start + 1 : stop + 1] += total
        rows[:kept].tofile(file)
        total += int(kept)
    indices = mapped(file, graph.indices.dtype, total)
    return Graph(indptr, indices, split=graph.split, original_id=graph.original_id, attributes={"directed": True})
