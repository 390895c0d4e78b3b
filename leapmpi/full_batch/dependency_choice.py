"""Choice between computing remote inputs of a layer and receiving them: arithmetic on seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.system.jit import compiled


@dataclass(frozen=True)
class Prices:
    """Seconds of an iteration, and bytes, of one unit.

    row, edge: computing a destination of the layer below and one of its edges. new_input: an input of the layer below
    that is not here yet. row_bytes, edge_bytes, input_bytes: what these three take.
    """

    row: float
    edge: float
    new_input: float
    row_bytes: int
    edge_bytes: int
    input_bytes: int


@compiled
def _fresh(indptr, indices, present, vertices, k):
    """Return how many of vertices[k] and its in-neighbours are not present."""
    vertex = vertices[k]
    fresh = 0 if present[vertex] else 1
    for e in range(indptr[k], indptr[k + 1]):
        if indices[e] != vertex and not present[indices[e]]:
            fresh += 1
    return fresh


@compiled
def _first_seconds(indptr, indices, present, vertices, row, edge, new_input, seconds):
    for k in range(len(vertices)):
        degree = indptr[k + 1] - indptr[k]
        seconds[k] = row + degree * edge + _fresh(indptr, indices, present, vertices, k) * new_input


@compiled
def _take(indptr, indices, present, vertices, order, sent, row, edge, new_input, sizes, room, cached, seconds):
    """Cache vertices in `order` while that is cheaper than `sent` and fits `room`; return the bytes taken."""
    taken = 0.0
    for k in order:
        degree = indptr[k + 1] - indptr[k]
        fresh = _fresh(indptr, indices, present, vertices, k)
        seconds[k] = row + degree * edge + fresh * new_input
        size = sizes[0] + degree * sizes[1] + fresh * sizes[2]
        # Inputs of a cached vertex are present for later ones, whose cost is therefore counted only now.
        if seconds[k] < sent and taken + size <= room:
            taken += size
            cached[k] = True
            present[vertices[k]] = True
            for e in range(indptr[k], indptr[k + 1]):
                present[indices[e]] = True
        else:
            seconds[k] = sent
    return taken


@dataclass(frozen=True, eq=False)
class Caching:
    """For each candidate, bool[k] `cached`, and float64[k], the `seconds` of its way; `taken` bytes over all."""

    cached: np.ndarray
    seconds: np.ndarray
    taken: float


def choose_cached(
    indptr: np.ndarray,
    indices: np.ndarray,
    candidates: np.ndarray,
    present: np.ndarray,
    sent: float,
    prices: Prices,
    room: float,
    exchange: float = 0.0,
) -> Caching:
    """Return which of `candidates` (int64[k], distinct) to compute here, where communicating one takes `sent` seconds.

    indptr, indices: int64[k + 1] and the in-neighbours of each candidate. present: bool[n], inputs of the layer below
    that are here anyway. At most `room` bytes are taken. exchange: seconds that communicating takes beside the rows;
    where computing all is cheaper than that, and fits, all are computed.
    """
    # Cheapest candidates first: each one that is taken makes inputs present, which may make later ones cheaper.
    first = np.empty(len(candidates))
    rates = prices.row, prices.edge, prices.new_input
    _first_seconds(indptr, indices, present, candidates, *rates, first)
    order = np.argsort(first, kind="stable")
    sizes = np.array([prices.row_bytes, prices.edge_bytes, prices.input_bytes], np.float64)

    def taken(sent: float) -> Caching:
        here, cached, seconds = present.copy(), np.zeros(len(candidates), bool), first.copy()
        size = _take(indptr, indices, here, candidates, order, sent, *rates, sizes, float(room), cached, seconds)
        return Caching(cached, seconds, float(size))

    # The fixed cost of an exchange vanishes only if nothing at all is communicated.
    found = taken(sent)
    if found.cached.all():
        return found
    whole = taken(np.inf)
    return whole if whole.cached.all() and whole.seconds.sum() < found.seconds.sum() + exchange else found


def choose_kept(candidates: int, sent: float, row_bytes: int, room: float) -> Caching:
    """Return how many features to keep, of as many `candidates`: those that fit, the first ones."""
    count = candidates if room >= candidates * row_bytes else int(max(0.0, room) // max(1, row_bytes))
    cached = np.arange(candidates) < count
    return Caching(cached, np.where(cached, 0.0, sent), float(count * row_bytes))


def choose_sums(seconds: np.ndarray, owner: np.ndarray, pairs: np.ndarray, of_sum: float) -> np.ndarray:
    """Return which owners send sums: bool[ranks], those whose sums take less time than all that would be done else.

    seconds, owner: float64[k] and int64[k], of each remote source its way without sums, and its home. pairs:
    int64[ranks], sums that each owner would send, of `of_sum` seconds each.
    """
    others = np.bincount(owner, weights=seconds, minlength=len(pairs))
    return (pairs > 0) & (pairs * of_sum < others)
