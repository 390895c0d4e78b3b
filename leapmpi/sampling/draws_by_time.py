"""Draws among the edges of an interval of times, which each destination has for itself.

A long list whose times ascend is searched by halves; other lists are read whole. What is drawn is the same.
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.node_wise import distinct_positions
from leapmpi.system.jit import compiled

_SHORT = 16
"""Edges of a list that is read whole in any case."""


def ascending_lists(indptr: np.ndarray, edge_time: np.ndarray, relation: np.ndarray | None) -> np.ndarray:
    """Mark the first edge of each list whose times ascend: bool[edges]. In a typed graph each relation has a list."""
    found = np.zeros(len(edge_time), bool)
    _mark(indptr, edge_time, np.zeros(len(edge_time), np.uint8) if relation is None else relation, found)
    return found


@compiled
def _mark(indptr, edge_time, relation, found):
    for v in range(len(indptr) - 1):
        begin, ascends = indptr[v], True
        for e in range(indptr[v], indptr[v + 1]):
            if relation[e] != relation[begin]:
                found[begin] = ascends
                begin, ascends = e, True
            elif e > begin:
                ascends &= edge_time[e - 1] <= edge_time[e]
        if begin < indptr[v + 1]:
            found[begin] = ascends


@compiled
def _place(edge_time, start, stop, time, after):
    """Return the first position whose time is not below `time`, or, if `after`, above it; `stop` without one."""
    while start < stop:
        middle = (start + stop) >> 1
        if edge_time[middle] < time or (after and edge_time[middle] == time):
            start = middle + 1
        else:
            stop = middle
    return start


@compiled
def _searched(ascending, start, degree):
    """Return whether a list is searched: it is long, and its times ascend."""
    return degree > _SHORT and len(ascending) > 0 and ascending[start]


@compiled
def count_seen(first, end, vertices, degree, topology_indptr, edge_time, ascending, low, high, counts):
    """Count the in-edges of destinations first..end-1 with a time in [low[i], high[i]]; `ascending` marks lists."""
    for i in range(first, end):
        count, start = 0, topology_indptr[vertices[i]]
        if _searched(ascending, start, degree[i]):
            stop = start + degree[i]
            begin = _place(edge_time, start, stop, low[i], False)
            counts[i] = max(0, _place(edge_time, start, stop, high[i], True) - begin)
            continue
        for e in range(start, start + degree[i]):
            count += low[i] <= edge_time[e] <= high[i]
        counts[i] = count


@compiled
def uniform(first, end, vertices, degree, begins, sources, edge_time, ascending, low, high, counts, indptr, out, draw):
    """Write sources drawn uniformly; draw: hashes of key, hop and bound, original ids of the destinations."""
    hashed, original = draw
    largest, most = 0, 0
    for i in range(first, end):
        largest, most = max(largest, counts[i]), max(most, indptr[i + 1] - indptr[i])
    marks, held = np.zeros(largest // 64 + 1, np.uint64), np.empty(most, sources.dtype)
    for i in range(first, end):
        chosen = held[: indptr[i + 1] - indptr[i]]
        distinct_positions(hashed[i], original[i], counts[i], chosen, marks)

        # Positions count only edges of the interval, so scan the list until the last one is found.
        found, passed, e = 0, 0, begins[vertices[i]]
        if len(chosen) and _searched(ascending, e, degree[i]):
            begin = _place(edge_time, e, e + degree[i], low[i], False)
            for found in range(len(chosen)):
                out[indptr[i] + found] = sources[begin + np.int64(chosen[found])]
            continue
        while found < len(chosen):
            if low[i] <= edge_time[e] <= high[i]:
                if passed == np.int64(chosen[found]):
                    out[indptr[i] + found] = sources[e]
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
def latest(first, end, vertices, degree, begins, sources, edge_time, ascending, low, high, counts, indptr, out, draw):
    """Write the sources of the latest edges; of equal times those of small original ids. `draw` is not read."""
    most = 0
    for i in range(first, end):
        most = max(most, indptr[i + 1] - indptr[i])
    # One buffer serves all destinations: the latest times seen, smallest first.
    held = np.empty(most, edge_time.dtype)
    for i in range(first, end):
        start = begins[vertices[i]]
        stop = start + degree[i]
        place, wanted = indptr[i], indptr[i + 1] - indptr[i]
        if wanted == 0:
            continue

        if _searched(ascending, start, degree[i]):
            last = _place(edge_time, start, stop, high[i], True)
            oldest = edge_time[last - wanted]
            newer = _place(edge_time, start, last, oldest, True)
            tied = _place(edge_time, start, last, oldest, False)
            for e in range(tied, tied + wanted - (last - newer)):
                out[place] = sources[e]
                place += 1
            for e in range(newer, last):
                out[place] = sources[e]
                place += 1
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
                out[place] = sources[e]
                place += 1
