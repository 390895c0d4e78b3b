"""Squared column norms of P, the adjacency matrix with rows divided by in-degrees: the importance of each source.

||P[:, u]||^2 is the sum of 1 / degree(v)^2 over the v with u as an in-neighbour. Over the whole graph, each vertex
counts as its own in-neighbour, as in the authors' code. Otherwise a vertex that is nobody's in-neighbour would never be
drawn. Norms are integers (multiples of 2**-shift), so the sum does not depend on the order of vertices.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.system.counter_rng import bounded, fold
from leapmpi.system.jit import compiled


@compiled
def _add_squares(vertices, unit, loops, topology_indptr, topology_indices, norms):
    """Add unit / degree^2 (rounded down, at least 1) of each of `vertices` to the norms of its in-neighbours.

    With `loops`, each vertex is an in-neighbour of itself, and its degree is larger by one.
    """
    for i in range(len(vertices)):
        start, stop = topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]
        degree = stop - start + loops
        if degree > 0:
            square = max(1, unit // degree // degree)
            if loops:
                norms[vertices[i]] += square
            for e in range(start, stop):
                norms[topology_indices[e]] += square


def norm_unit(rows: int) -> int:
    """Return the norm of a row of one entry, such that the sum over `rows` rows stays below 2**62."""
    return 1 << min(40, 61 - max(1, rows).bit_length())


def column_norms(topology: Topology, vertices: np.ndarray, loops: bool = False, rows: int = 0) -> np.ndarray:
    """Return squared norms over the rows `vertices` (int64[k], distinct): int64[n], all in the same unit.

    With `loops` each vertex is an in-neighbour of itself. The sum stays below 2**62, also over ranks whose topologies
    have `rows` vertices together; 0: as many as this one.
    """
    norms = np.zeros(topology.vertices, np.int64)
    _add_squares(vertices, norm_unit(rows or topology.vertices), int(loops), topology.indptr, topology.indices, norms)
    return norms


@compiled
def _drawn_positions(hashed, size, up_to):
    """Draw `size` positions: the first entry of `up_to` (int64[n], cumulated norms) above a random number."""
    out = np.empty(size, np.int64)
    for j in range(size):
        point = np.int64(bounded(fold(hashed, j), up_to[-1]))
        out[j] = np.searchsorted(up_to, point, side="right")
    return out


class ByNorm:
    """Independent draws of vertices of the whole graph, with chances proportional to their squared column norms.

    norms: int64[n]; order: int64[n], the vertices by original id, so that their numbering does not matter; up_to:
    int64[n], the norms in that order, cumulated.
    """

    def __init__(self, topology: Topology) -> None:
        self.order = np.argsort(topology.original_id, kind="stable")
        self.norms = column_norms(topology, np.arange(topology.vertices), loops=True)
        self.up_to = np.cumsum(self.norms[self.order])

    @property
    def total(self) -> int:
        """Sum of all norms."""
        return int(self.up_to[-1]) if len(self.up_to) else 0

    def draw(self, hashed: np.uint64, size: int) -> np.ndarray:
        """Draw `size` vertices, int64, with repetition; none if there are no vertices."""
        return self.order[_drawn_positions(hashed, size if self.total else 0, self.up_to)]
