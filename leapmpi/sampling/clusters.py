"""Clusters of vertices with few edges between them, the same for any numbering of the vertices.

Vertices in order of a breadth-first search are cut into runs of equal length; then labels spread: in a few passes, each
vertex joins the cluster that most of its in-neighbours belong to, where there is room.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.system.jit import compiled

_PASSES = 8
_ROOM = 1.2
"""Size that a cluster may reach, as a multiple of the mean."""


@compiled
def _breadth_first(starts, topology_indptr, topology_indices):
    """All vertices in order of searches from each of `starts` (int64[n], a permutation) that is not found yet."""
    order, found = np.empty(len(starts), np.int64), np.zeros(len(starts), np.bool_)
    count = head = 0
    for start in starts:
        if not found[start]:
            found[start] = True
            order[count] = start
            count += 1
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
def _spread(order, label, size, room, topology_indptr, topology_indices, votes):
    """One pass: each vertex, in `order`, joins the cluster with most votes, its own in case of a tie."""
    moved = 0
    for vertex in order:
        best, own = label[vertex], label[vertex]
        start, stop = topology_indptr[vertex], topology_indptr[vertex + 1]
        for e in range(start, stop):
            votes[label[topology_indices[e]]] += 1
        for e in range(start, stop):
            other = label[topology_indices[e]]
            more = votes[other] > votes[best] or (votes[other] == votes[best] and best != own and other < best)
            if more and (other == own or size[other] < room):
                best = other
        for e in range(start, stop):
            votes[label[topology_indices[e]]] = 0
        if best != own:
            size[own] -= 1
            size[best] += 1
            label[vertex] = best
            moved += 1
    return moved


def clusters_of(topology: Topology, count: int) -> np.ndarray:
    """int32[n]: the cluster, of `count`, of each vertex. None exceeds the mean size by more than a fifth."""
    n = topology.vertices
    starts = np.argsort(topology.original_id, kind="stable")
    order = _breadth_first(starts, topology.indptr, topology.indices)
    label = np.empty(n, np.int32)
    label[order] = np.arange(n) * count // max(1, n)
    size, votes = np.bincount(label, minlength=count), np.zeros(count, np.int64)
    room = int(np.ceil(_ROOM * n / count))
    for _ in range(_PASSES):
        if not _spread(starts, label, size, room, topology.indptr, topology.indices, votes):
            break
    return label
