"""Draws among the edges of an interval of times, which each destination has for itself."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.node_wise import distinct_positions
from leapmpi.system.jit import compiled


@compiled
def count_seen(first, end, vertices, degree, topology_indptr, edge_time, low, high, counts):
    """Count the in-edges of destinations first..end-1 with a time in [low[i], high[i]]."""
    for i in range(first, end):
        count, start = 0, topology_indptr[vertices[i]]
        for e in range(start, start + degree[i]):
            count += low[i] <= edge_time[e] <= high[i]
        counts[i] = count


@compiled
def uniform(
    first, end, vertices, degree, topology_indptr, topology_indices, edge_time, low, high, counts, indptr, out, draw
):
    """Write sources drawn uniformly; draw: hashes of key, hop and bound, original ids of the destinations."""
    hashed, original = draw
    largest, most = 0, 0
    for i in range(first, end):
        largest, most = max(largest, counts[i]), max(most, indptr[i + 1] - indptr[i])
    marks, held = np.zeros(largest // 64 + 1, np.uint64), np.empty(most, topology_indices.dtype)
    for i in range(first, end):
        chosen = held[: indptr[i + 1] - indptr[i]]
        distinct_positions(hashed[i], original[i], counts[i], chosen, marks)

        # Positions count only edges of the interval, so scan the list until the last one is found.
        found, passed, e = 0, 0, topology_indptr[vertices[i]]
        while found < len(chosen):
            if low[i] <= edge_time[e] <= high[i]:
                if passed == np.int64(chosen[found]):
                    out[indptr[i] + found] = topology_indices[e]
                    found += 1
                passed += 1
            e += 1


@compiled
def _sink(heap, time):
    """Replace the smallest entry of `heap`, a binary heap, by `time`."""
    place = 0
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if time <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = time


@compiled
def latest(
    first, end, vertices, degree, topology_indptr, topology_indices, edge_time, low, high, counts, indptr, out, draw
):
    """Write the sources of the latest edges; of equal times those of small original ids. `draw` is not read."""
    most = 0
    for i in range(first, end):
        most = max(most, indptr[i + 1] - indptr[i])
    # One buffer serves all destinations: the latest times seen, smallest first.
    held = np.empty(most, edge_time.dtype)
    for i in range(first, end):
        start = topology_indptr[vertices[i]]
        stop = start + degree[i]
        place, wanted = indptr[i], indptr[i + 1] - indptr[i]
        if wanted == 0:
            continue

        # Find the time of the oldest taken edge, and the number of edges taken of that time.
        oldest, ties = low[i], wanted
        if wanted < counts[i]:
            newest = held[:wanted]
            newest[:] = low[i]
            for e in range(start, stop):
                if newest[0] < edge_time[e] <= high[i]:
                    _sink(newest, edge_time[e])
            oldest = newest[0]
            for j in range(wanted):
                ties -= newest[j] > oldest

        # Take edges in the order of the list, so that sources ascend by original id (rule R1).
        for e in range(start, stop):
            time = edge_time[e]
            if oldest <= time <= high[i] and (time > oldest or ties > 0):
                ties -= time == oldest
                out[place] = topology_indices[e]
                place += 1
