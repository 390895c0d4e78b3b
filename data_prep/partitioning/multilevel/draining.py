"""Parts that are too full give vertices away while the graph streams by, others fill up the rest."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps, loads
from data_prep.partitioning.multilevel.weighted_graph import VertexWeights
from leapmpi.system.jit import compiled

_LOSSES = (0, 1, 3, 10, 1 << 40)
"""What a move may lose, from pass to pass."""

_UNWEIGHTED = np.empty(0, np.int32)


@compiled
def _drain(first, indptr, neighbours, assignment, training, count, cap, among_training, most_loss, links):
    """Move vertices (of them that train, or that do not) from parts with more than `cap` to parts with less."""
    for row in range(len(indptr) - 1):
        v = first + row
        home = assignment[v]
        if count[home] <= cap or (len(training) > 0 and training[v] > 0) != among_training:
            continue
        for e in range(indptr[row], indptr[row + 1]):
            links[assignment[neighbours[e]]] += 1
        to = np.argmin(count)
        for e in range(indptr[row], indptr[row + 1]):
            p = assignment[neighbours[e]]
            if count[p] < cap and links[p] > links[to]:
                to = p
        if count[to] < cap and links[home] - links[to] <= most_loss:
            assignment[v] = to
            count[home] -= 1
            count[to] += 1
        for e in range(indptr[row], indptr[row + 1]):
            links[assignment[neighbours[e]]] = 0
        links[home] = 0


def drain(stream, assignment: np.ndarray, caps: Caps) -> None:
    """Make the parts int32[n] of all vertices of an AdjacencyStream keep the caps, in place.

    First training vertices move, then others; as training vertices are at most `caps.training` in each part by then,
    this always succeeds.
    """
    training = stream.vertex_weights.training
    for among_training, cap in ((True, caps.training), (False, caps.size)):
        for most_loss in _LOSSES:
            sizes, trainings = loads(assignment, stream.vertex_weights, caps.parts)
            count = trainings if among_training else sizes
            if count.max() <= cap:
                break
            links = np.zeros(caps.parts, np.int64)
            for c in stream.chunks():
                _drain(c.first, c.indptr, c.neighbours, assignment, training, count, cap, among_training, most_loss,
                       links)  # fmt: skip


def place_isolated(assignment: np.ndarray, training: np.ndarray, caps: Caps) -> None:
    """Give vertices without a part (-1) to parts with room: training vertices where fewest train, others where fewest
    are."""
    left = np.flatnonzero(assignment < 0)
    trains = training[left] > 0 if len(training) else np.zeros(len(left), bool)
    for ids, number in ((left[trains], 1), (left[~trains], 0)):
        count = loads(assignment, VertexWeights(_UNWEIGHTED, training), caps.parts)[number]
        assignment[ids] = _level(count, len(ids))


def _level(counts: np.ndarray, more: int) -> np.ndarray:
    """Parts int32[more] for `more` vertices that fill the emptiest of `counts` up to a common level."""
    low, high = 0, int(counts.max()) + more + 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if np.maximum(0, middle - counts).sum() <= more else (low, middle)
    room = np.maximum(0, low - counts)
    room[np.argsort(counts + room, kind="stable")[: more - int(room.sum())]] += 1
    return np.repeat(np.arange(len(counts), dtype=np.int32), room)
