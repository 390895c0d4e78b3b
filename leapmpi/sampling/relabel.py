"""Relabelling: drawn vertices get local ids in order of first appearance; their ids and degrees are looked up."""

from __future__ import annotations

import numpy as np

from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_AHEAD = 32
"""Entries between asking for a cache line and using it."""


@compiled
def number(vertices, place, base, src, known, indices):
    """Number vertices in order of first appearance; returns how many there are now.

    `place` (int32[n]) holds `base` + the position of each vertex in `src`, and less than `base` for vertices that are
    not in it. `src` holds `known` vertices so far. Writes the position of each of `vertices` to `indices`, and new
    vertices to `src`, which must have room for one entry more than that.
    """
    # No branch depends on what was drawn: processors could not predict it. So `src[known]` is always written, and the
    # entry counts only where the vertex is new.
    for e in range(len(vertices)):
        if e + _AHEAD < len(vertices):
            prefetch(place, np.intp(vertices[e + _AHEAD]))
        vertex = vertices[e]
        position = np.int64(place[vertex]) - base
        new = position < 0
        position = known if new else position
        place[vertex] = np.int32(base + position)
        src[known] = vertex
        known += np.int64(new)
        indices[e] = np.int32(position)
    return known


@compiled
def look_up(topology_indptr, topology_original, src, first, end, original, degree):
    """Look up original ids and in-degrees of src[first:end]."""
    for i in range(first, end):
        if i + _AHEAD < end:
            prefetch(topology_indptr, np.intp(src[i + _AHEAD]))
            prefetch(topology_original, np.intp(src[i + _AHEAD]))
        vertex = src[i]
        original[i] = topology_original[vertex]
        degree[i] = topology_indptr[vertex + 1] - topology_indptr[vertex]


def grown(array: np.ndarray, capacity: int, kept: int) -> np.ndarray:
    """An array with room for `capacity` + 1 entries: `array`, or a larger copy of its first `kept` entries.

    `number` may write to the one entry more.
    """
    if len(array) > capacity:
        return array
    larger = np.empty(capacity + capacity // 4 + 1, array.dtype)
    larger[:kept] = array[:kept]
    return larger
