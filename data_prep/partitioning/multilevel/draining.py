"""Parts that are too full give vertices away while the graph streams by, others fill up the rest."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AdjacencyStream
from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.weighted_graph import NO_WEIGHTS, VertexWeights
from leapmpi.system.jit import compiled

_LOSSES = (0, 1, 3, 10, 1 << 40)
"""Limits for the growth of the cut by a move, from pass to pass."""


@compiled
def _drain(chunk, assignment, training, count, cap, among_training, most_loss, links):
    """Move vertices from parts with more than `cap` of them to parts with less.

    Only training vertices are moved and counted, or only the others. links int64[P] is 0 before and after.
    """
    first, indptr, neighbours, _ = chunk
    for row in range(len(indptr) - 1):
        v = first + row
        source = assignment[v]
        if count[source] <= cap or (len(training) > 0 and training[v] > 0) != among_training:
            continue
        for e in range(indptr[row], indptr[row + 1]):
            links[assignment[neighbours[e]]] += 1

        # To the part with most neighbours that is not full; without neighbours there, to the smallest.
        to = np.argmin(count)
        for e in range(indptr[row], indptr[row + 1]):
            p = assignment[neighbours[e]]
            if count[p] < cap and links[p] > links[to]:
                to = p
        if count[to] < cap and links[source] - links[to] <= most_loss:
            assignment[v] = to
            count[source] -= 1
            count[to] += 1

        # Only the touched entries are reset: P may be far larger than the degree.
        for e in range(indptr[row], indptr[row + 1]):
            links[assignment[neighbours[e]]] = 0
        links[source] = 0


def drain(stream: AdjacencyStream, assignment: np.ndarray, caps: Caps) -> None:
    """Make the parts int32[n] of all vertices keep the caps, in place; all vertices are in a part.

    First training vertices move, then others; as training vertices are at most `caps.training` in each part by then,
    this always succeeds.
    """
    training = stream.vertex_weights.training
    # A pass per loss, as long as a part is too full.
    for among_training, cap in ((True, caps.training), (False, caps.size)):
        for most_loss in _LOSSES:
            sizes, trainings = loads(assignment, stream.vertex_weights, caps.parts)
            count = trainings if among_training else sizes
            if count.max() <= cap:
                break
            links = np.zeros(caps.parts, np.int64)
            for chunk in stream.chunks():
                _drain(chunk, assignment, training, count, cap, among_training, most_loss, links)


def place_isolated(assignment: np.ndarray, training: np.ndarray, caps: Caps) -> None:
    """Give vertices without a part (-1) to the emptiest parts: training vertices where fewest training vertices are,
    others where fewest vertices are."""
    left = np.flatnonzero(assignment < 0)
    trains = training[left] > 0 if len(training) else np.zeros(len(left), bool)
    for ids, number in ((left[trains], 1), (left[~trains], 0)):
        count = loads(assignment, VertexWeights(NO_WEIGHTS, training), caps.parts)[number]
        assignment[ids] = _level(count, len(ids))


def _level(counts: np.ndarray, more: int) -> np.ndarray:
    """Choose parts int32[more] for `more` vertices that fill the emptiest of `counts` up to a common level."""
    # The highest level that does not take more, by bisection.
    low, high = 0, int(counts.max()) + more + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if np.maximum(0, middle - counts).sum() <= more else (low, middle)

    # What is left over goes to the emptiest parts, one each.
    added = np.maximum(0, low - counts)
    added[np.argsort(counts + added, kind="stable")[: more - int(added.sum())]] += 1
    return np.repeat(np.arange(len(counts), dtype=np.int32), added)
