"""Repairs of a cut: no part empty, none too full of vertices or training vertices, few more edges cut."""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import largest_part
from leapmpi.system.jit import compiled

_PASSES = 8


def fill_empty(assignment: np.ndarray, parts: int) -> None:
    """Give each empty part of `assignment` (int64[n], in place) one vertex of the largest parts. Needs n >= parts."""
    sizes = np.bincount(assignment, minlength=parts)
    empty = np.flatnonzero(sizes == 0)
    if not len(empty):
        return
    order = np.argsort(assignment, kind="stable")
    rank = np.empty(len(assignment), np.int64)
    rank[order] = np.arange(len(assignment)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Vertices of highest rank within their part come off the tops of the largest parts; rank 0 always stays.
    assignment[np.argsort(-rank, kind="stable")[: len(empty)]] = empty


def rebalance(
    indptr: np.ndarray,
    neighbours: np.ndarray,
    assignment: np.ndarray,
    training: np.ndarray,
    parts: int,
    tolerance: float,
) -> None:
    """Move vertices of an undirected graph until no part exceeds `tolerance` times the mean, in place.

    First training vertices (bool[n]) move, then others even out the sizes. Vertices with most neighbours in a part
    with room, compared with their own part, move first. Means that are not whole are rounded up.
    """
    for movable, counted in ((training, training), (~training, np.ones_like(training))):
        limit = largest_part(int(counted.sum()), parts, tolerance)
        for _ in range(_PASSES):
            counts = np.bincount(assignment[counted], minlength=parts)
            if counts.max() <= limit:
                break
            candidates = np.flatnonzero(movable & (counts > limit)[assignment])
            _move(indptr, neighbours, assignment, candidates, counts, limit)


def _move(indptr, neighbours, assignment, candidates, counts, limit) -> None:
    target, gain = _best_targets(indptr, neighbours, assignment, candidates, counts < limit)
    for i in np.argsort(-gain, kind="stable"):
        v = candidates[i]
        home = assignment[v]
        if counts[home] <= limit:
            continue
        to = target[i] if target[i] >= 0 and counts[target[i]] < limit else int(np.argmin(counts))
        assignment[v] = to
        counts[home] -= 1
        counts[to] += 1


@compiled
def _best_targets(indptr, neighbours, assignment, candidates, room):
    """For each candidate the part with room that holds most of its neighbours (-1: none), and the gain in edges."""
    target = np.full(len(candidates), -1, np.int64)
    gain = np.zeros(len(candidates), np.int64)
    links = np.zeros(len(room), np.int64)
    for i in range(len(candidates)):
        v = candidates[i]
        for e in range(indptr[v], indptr[v + 1]):
            links[assignment[neighbours[e]]] += 1
        most = 0
        for e in range(indptr[v], indptr[v + 1]):
            part = assignment[neighbours[e]]
            if room[part] and (links[part] > most or (links[part] == most and part < target[i])):
                most = links[part]
                target[i] = part
        gain[i] = most - links[assignment[v]]
        for e in range(indptr[v], indptr[v + 1]):
            links[assignment[neighbours[e]]] = 0
    return target, gain
