"""The undirected graph under a Graph, in memory: every edge in both directions, no duplicates."""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.graph import Graph
from leapmpi.system.jit import compiled


@compiled
def _transpose(indptr, indices):
    """Reverse the edges as compressed rows; each row comes out ascending."""
    # A counting sort by source.
    n = len(indptr) - 1
    out_indptr = np.zeros(n + 1, np.int64)
    for e in range(len(indices)):
        out_indptr[indices[e] + 1] += 1
    for v in range(n):
        out_indptr[v + 1] += out_indptr[v]
    fill = out_indptr[:-1].copy()
    out = np.empty_like(indices)
    for v in range(n):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            out[fill[u]] = v
            fill[u] += 1
    return out_indptr, out


@compiled
def _merge_rows(a_indptr, a, b_indptr, b, out_indptr, out, write):
    """Merge the ascending rows of a and b: sizes to `out_indptr`, or with `write` the rows to `out`."""
    total = 0
    for v in range(len(a_indptr) - 1):
        i, j = a_indptr[v], b_indptr[v]
        i_end, j_end = a_indptr[v + 1], b_indptr[v + 1]
        while i < i_end or j < j_end:
            # The smaller of the two heads; an equal one is taken from both.
            if j == j_end or (i < i_end and a[i] < b[j]):
                u = a[i]
                i += 1
            elif i == i_end or b[j] < a[i]:
                u = b[j]
                j += 1
            else:
                u = a[i]
                i += 1
                j += 1
            if write:
                out[total] = u
            total += 1
        out_indptr[v + 1] = total


class Undirected:
    """The undirected graph under `graph`: `indptr` int64[n+1], `edges` entries, and `fill` to write the neighbours."""

    def __init__(self, graph: Graph) -> None:
        self._forward = (np.asarray(graph.indptr), np.asarray(graph.indices))
        self._backward = _transpose(*self._forward)
        self.indptr = np.zeros(graph.vertices + 1, np.int64)
        _merge_rows(*self._forward, *self._backward, self.indptr, np.empty(0, np.int64), False)

    @property
    def edges(self) -> int:
        """Entries of all lists of neighbours: twice the undirected edges."""
        return int(self.indptr[-1])

    def fill(self, out: np.ndarray) -> None:
        """Write the neighbours of all vertices, each list ascending, to `out` (integers [edges])."""
        _merge_rows(*self._forward, *self._backward, self.indptr, out, True)
