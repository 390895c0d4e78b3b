"""Clusters of vertices with few edges between them, the same for any numbering of the vertices.

Vertices in order of a breadth-first search are cut into clusters of equal size. Then, in a few passes of label
propagation, each vertex joins the cluster that most of its in-neighbours belong to, where that is not full.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.system.jit import compiled

_PASSES = 8
_LARGEST = 1.2
"""Size of a cluster at most, as a multiple of the mean."""


@compiled
def breadth_first(starts, topology_indptr, topology_indices):
    """All vertices in the order of breadth-first searches: int64[n].

    starts: int64[n], a permutation of the vertices; a search starts at each one that no search has found yet.
    """
    order, found = np.empty(len(starts), np.int64), np.zeros(len(starts), np.bool_)
    count = head = 0
    for start in starts:
        if not found[start]:
            found[start] = True
            order[count] = start
            count += 1

        # `order` is the queue of the search too.
        while head < count:
            vertex = order[head]
            head += 1
            for e in range(topology_indptr[vertex], topology_indptr[vertex + 1]):
                u = topology_indices[e]
                if not found[u]:
                    found[u] = True
                    order[count] = u
                    count += 1
    return order


@compiled
def _propagate_labels(order, label, size, largest, topology_indptr, topology_indices, votes):
    """One pass: each vertex, in `order`, joins the cluster of most of its in-neighbours; on a tie it stays.

    Updates `label` int32[n] and `size` int64[clusters], which is `largest` at most. `votes` is all 0, before and after.
    Returns how many vertices changed their cluster.
    """
    moved = 0
    for vertex in order:
        best, current = label[vertex], label[vertex]
        start, stop = topology_indptr[vertex], topology_indptr[vertex + 1]

        # Count the in-neighbours of each cluster, and find the largest count; of equal counts, the lowest number.
        for e in range(start, stop):
            votes[label[topology_indices[e]]] += 1
        for e in range(start, stop):
            other = label[topology_indices[e]]
            more = votes[other] > votes[best] or (votes[other] == votes[best] and best != current and other < best)
            if more and (other == current or size[other] < largest):
                best = other

        # Clear the counts that were used, and move the vertex.
        for e in range(start, stop):
            votes[label[topology_indices[e]]] = 0
        if best != current:
            size[current] -= 1
            size[best] += 1
            label[vertex] = best
            moved += 1
    return moved


def clusters_of(topology: Topology, count: int) -> np.ndarray:
    """The cluster of each vertex: int32[n], in [0, count). No cluster exceeds the mean size by more than a fifth."""
    n = topology.vertices

    # Equal runs of a breadth-first order.
    starts = np.argsort(topology.original_id, kind="stable")
    order = breadth_first(starts, topology.indptr, topology.indices)
    label = np.empty(n, np.int32)
    label[order] = np.arange(n) * count // max(1, n)

    # Label propagation, until no vertex changes its cluster.
    size = np.bincount(label, minlength=count)
    votes = np.zeros(count, np.int64)
    largest = int(np.ceil(_LARGEST * n / count))
    for _ in range(_PASSES):
        if not _propagate_labels(starts, label, size, largest, topology.indptr, topology.indices, votes):
            break
    return label
