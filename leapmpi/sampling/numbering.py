"""What every sampler does to what it drew: number the vertices in order of first appearance, and describe them."""

from __future__ import annotations

import numpy as np

from leapmpi.compiled import compiled


@compiled
def number(vertices, place, src, known, indices):
    """Number vertices in order of first appearance.

    `place` (int32[n]) holds each vertex's position in `src`, -1 for none; `src` holds `known` vertices so far.
    Writes the position of each of `vertices` to `indices` and new vertices to `src`. Returns the new count.
    """
    for e in range(len(vertices)):
        vertex = vertices[e]
        position = place[vertex]
        if position < 0:
            position = np.int32(known)
            place[vertex] = position
            src[known] = vertex
            known += 1
        indices[e] = position
    return known


@compiled
def describe(topology_indptr, topology_original, src, first, end, original, degree):
    """Look up original ids and in-degrees of src[first:end]."""
    for i in range(first, end):
        vertex = src[i]
        original[i] = topology_original[vertex]
        degree[i] = topology_indptr[vertex + 1] - topology_indptr[vertex]


@compiled
def forget(place, src, count):
    """Make `place` forget the first `count` entries of `src`."""
    for i in range(count):
        place[src[i]] = -1


def grown(array: np.ndarray, capacity: int, kept: int) -> np.ndarray:
    """`array`, or a larger one with the same first `kept` entries when it holds fewer than `capacity`."""
    if len(array) >= capacity:
        return array
    larger = np.empty(capacity + capacity // 4, array.dtype)
    larger[:kept] = array[:kept]
    return larger
