"""Clusters of vertices with few edges between them, independent of the numbering of vertices.

A breadth-first order of the vertices is cut into clusters of equal size. A few passes of label propagation follow: each
vertex joins the cluster of most of its in-neighbours, unless that cluster is full.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.system.jit import compiled

_PASSES = 8
_LARGEST = 1.2
"""Largest size of a cluster, as a multiple of the mean."""


@compiled
def breadth_first(starts, topology_indptr, topology_indices):
    """Return all vertices in the order of breadth-first searches: int64[n].

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
    """Run one pass: each vertex, in `order`, joins the cluster of most of its in-neighbours; a tie keeps it.

    Updates `label` int32[n] and `size` int64[clusters], which is `largest` at most. `votes` is all 0, before and after.
    Returns the number of vertices that changed their cluster.
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

        # Clear only the counts in use: there are many clusters.
        for e in range(start, stop):
            votes[label[topology_indices[e]]] = 0
        if best != current:
            size[current] -= 1
            size[best] += 1
            label[vertex] = best
            moved += 1
    return moved


def clusters_of(topology: Topology, count: int) -> np.ndarray:
    """Return the cluster of each vertex: int32[n], in [0, count). No cluster exceeds the mean size by over a fifth."""
    n = topology.vertices

    # Start with equal slices of a breadth-first order.
    starts = np.argsort(topology.original_id, kind="stable")
    order = breadth_first(starts, topology.indptr, topology.indices)
    label = np.empty(n, np.int32)
    label[order] = np.arange(n) * count // max(1, n)

    # Improve them by label propagation, until no vertex changes its cluster.
    size = np.bincount(label, minlength=count)
    votes = np.zeros(count, np.int64)
    largest = int(np.ceil(_LARGEST * n / count))
    for _ in range(_PASSES):
        if not _propagate_labels(starts, label, size, largest, topology.indptr, topology.indices, votes):
            break
    return label
