"""Fiduccia-Mattheyses refinement of a partition into many parts, on a graph in memory.

Fiduccia, Mattheyses: "A linear-time heuristic for improving network partitions", DAC 1982: the best move is made even
if it loses, no vertex moves twice in a pass, and the pass is rolled back to its best moment. Vertices wait in a heap by
the gain of their best move that keeps the caps; links int32[n, P] holds the weight between each vertex and each part.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps, PartLoads, excess, part_loads
from data_prep.partitioning.multilevel.weighted_graph import Chunk, WeightedGraph
from leapmpi.system.jit import compiled

_PASSES = 8
"""Most passes over a graph."""

_MOST_LINKS = 1 << 24
"""Vertices times parts, beyond which nothing is done."""

_NEVER = -(1 << 62)
"""The gain where no move keeps the caps."""

_NOT_QUEUED = -1
_LOCKED = -2
"""Places in the heap of vertices that are not in it; locked ones have moved, or are fixed, and stay out of it."""


class MoveQueue(NamedTuple):
    """A binary heap of vertices, largest key first.

    heap int32[n] holds the vertices, place int32[n] where each vertex stands in it, key int64[n] the gains.
    """

    heap: np.ndarray
    place: np.ndarray
    key: np.ndarray


@compiled
def _sift_up(queue, i):
    heap, place, key = queue
    v = heap[i]
    while i > 0:
        parent = (i - 1) >> 1
        if key[heap[parent]] >= key[v]:
            break
        heap[i] = heap[parent]
        place[heap[i]] = i
        i = parent
    heap[i] = v
    place[v] = i


@compiled
def _sift_down(queue, i, count):
    heap, place, key = queue
    v = heap[i]
    # Children move up until `v` fits: one write a level instead of an exchange.
    while True:
        child = 2 * i + 1
        if child >= count:
            break
        if child + 1 < count and key[heap[child + 1]] > key[heap[child]]:
            child += 1
        if key[heap[child]] <= key[v]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    heap[i] = v
    place[v] = i


@compiled
def _set_key(queue, count, v, new):
    """Give vertex v the key `new`, adding it to the queue or, with _NEVER, removing it.

    Returns the new number of vertices in the queue.
    """
    heap, place, key = queue
    i = place[v]
    if i < 0:
        if new == _NEVER:
            return count
        heap[count] = v
        key[v] = new
        _sift_up(queue, count)
        return count + 1

    # The last vertex of the heap takes the place of the one that is removed.
    if new == _NEVER:
        count -= 1
        place[v] = _NOT_QUEUED
        if i < count:
            heap[i] = heap[count]
            place[heap[i]] = i
            _sift_up(queue, i)
            _sift_down(queue, place[heap[i]], count)
        return count
    # Only one direction can violate the order of the heap.
    old = key[v]
    key[v] = new
    if new > old:
        _sift_up(queue, i)
    elif new < old:
        _sift_down(queue, i, count)
    return count


@compiled
def _weights(v, vertex_weights):
    """Return the vertices, and training vertices, that a vertex stands for."""
    size, training = vertex_weights
    return size[v] if len(size) else 1, training[v] if len(training) else 0


@compiled
def _best_move(v, links, parts, vertex_weights):
    """Find the part with capacity to which a vertex has most weight, and the gain of the move; (-1, _NEVER): none.

    Equal weights: the smaller part.
    """
    v_size, v_training = _weights(v, vertex_weights)
    source = parts.assignment[v]
    to, most = -1, -1
    for p in range(len(parts.sizes)):
        if p == source or links[v, p] < most:
            continue
        if parts.sizes[p] + v_size > parts.limits[0] or parts.trainings[p] + v_training > parts.limits[1]:
            continue
        # Of parts with equal weight the smallest, which helps balance.
        if links[v, p] > most or parts.sizes[p] < parts.sizes[to]:
            to, most = p, links[v, p]
    return to, (np.int64(most) - links[v, source] if to >= 0 else _NEVER)


@compiled
def _add_links(rows, assignment, links):
    for v in range(len(assignment)):
        for e in range(rows.indptr[v], rows.indptr[v + 1]):
            links[v, assignment[rows.neighbours[e]]] += rows.weights[e] if len(rows.weights) else 1


@compiled
def _transfer(v, to, rows, parts, links, vertex_weights):
    """Move a vertex, and bring the loads and the links of its neighbours up to date."""
    v_size, v_training = _weights(v, vertex_weights)
    source = parts.assignment[v]
    parts.assignment[v] = to
    parts.sizes[source] -= v_size
    parts.sizes[to] += v_size
    parts.trainings[source] -= v_training
    parts.trainings[to] += v_training
    for e in range(rows.indptr[v], rows.indptr[v + 1]):
        u = np.int64(rows.neighbours[e])
        w = rows.weights[e] if len(rows.weights) else 1
        # Keep the table current for neighbours, whose gains change with the move.
        links[u, source] -= w
        links[u, to] += w


@compiled
def _pass(rows, vertex_weights, parts, links, queue, patience, fixed, log):
    """Run one pass, in which the last `fixed` vertices stay; returns its gain. Gains count every cut edge once.

    The pass ends `patience` moves after the best moment. log int32[n, 2]: vertices moved and the parts they left.
    """
    n, part_count = links.shape
    queue.place[:] = _NOT_QUEUED
    queue.place[n - fixed :] = _LOCKED
    n -= fixed

    # Vertices at the boundary wait by the gain of their best move.
    count = 0
    for v in range(n):
        crosses = False
        for p in range(part_count):
            crosses |= p != parts.assignment[v] and links[v, p] > 0
        if crosses:
            count = _set_key(queue, count, v, _best_move(v, links, parts, vertex_weights)[1])

    moved, kept, total, best = 0, 0, 0, 0
    while count > 0 and moved - kept < patience:
        # Moves of others may have filled the part: then the vertex waits with its present gain.
        v = queue.heap[0]
        source = parts.assignment[v]
        to, gain = _best_move(v, links, parts, vertex_weights)
        if gain != queue.key[v]:
            count = _set_key(queue, count, v, gain)
            continue

        # Move it, lock it, and remember the best moment.
        count = _set_key(queue, count, v, _NEVER)
        queue.place[v] = _LOCKED
        _transfer(v, to, rows, parts, links, vertex_weights)
        log[moved, 0], log[moved, 1] = v, source
        moved += 1
        total += gain
        if total > best:
            best, kept = total, moved

        # Its neighbours gain more or less now.
        for e in range(rows.indptr[v], rows.indptr[v + 1]):
            u = np.int64(rows.neighbours[e])
            if queue.place[u] == _LOCKED:
                continue
            count = _set_key(queue, count, u, _best_move(u, links, parts, vertex_weights)[1])

    # Roll back to the best moment.
    while moved > kept:
        moved -= 1
        v = log[moved, 0]
        _transfer(v, log[moved, 1], rows, parts, links, vertex_weights)
    return best


@compiled
def _empty_full_parts(rows, vertex_weights, parts, links, queue, fixed):
    """Move vertices out of parts that are too full, those that lose least for their size first."""
    assignment, sizes, trainings, caps = parts
    queue.place[:] = _NOT_QUEUED

    # Vertices whose going helps wait by gain; a loss counts per vertex that they stand for (scaled: keys are whole).
    count = 0
    for v in range(len(assignment) - fixed):
        source = assignment[v]
        v_size, v_training = _weights(v, vertex_weights)
        if sizes[source] > caps[0] or (trainings[source] > caps[1] and v_training > 0):
            gain = _best_move(v, links, parts, vertex_weights)[1]
            if gain != _NEVER:
                count = _set_key(queue, count, v, 256 * gain // (v_size if gain < 0 else 1))

    # A vertex moves if its part is still too full; one whose loss has grown waits again.
    while count > 0:
        v = queue.heap[0]
        source = assignment[v]
        v_size, v_training = _weights(v, vertex_weights)
        to, gain = _best_move(v, links, parts, vertex_weights)
        too_full = sizes[source] > caps[0] or (trainings[source] > caps[1] and v_training > 0)
        new = 256 * gain // (v_size if gain < 0 else 1) if gain != _NEVER and too_full else _NEVER
        if new < queue.key[v]:
            count = _set_key(queue, count, v, new)
            continue
        count = _set_key(queue, count, v, _NEVER)
        _transfer(v, to, rows, parts, links, vertex_weights)


def improve(graph: WeightedGraph, assignment: np.ndarray, caps: Caps, fixed: int = 0) -> None:
    """Make the parts int32[n] of a graph keep the caps, as far as single moves do, and cut fewer edges, in place.

    The last `fixed` vertices, whose rows may be empty, stay in their parts.
    """
    n = graph.vertices
    if n * caps.parts > _MOST_LINKS or caps.parts == 1:
        return

    # The state that moves change.
    rows = Chunk(0, graph.indptr, graph.neighbours, graph.weights)
    parts: PartLoads = part_loads(assignment, graph.vertex_weights, caps)
    links = np.zeros((n, caps.parts), np.int32)
    _add_links(rows, assignment, links)
    queue = MoveQueue(np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64))
    log = np.empty((n, 2), np.int32)

    # First the caps, then passes as long as they gain.
    if excess(parts.sizes, parts.trainings, caps):
        _empty_full_parts(rows, graph.vertex_weights, parts, links, queue, fixed)
    patience = min(2000, max(100, n // 50))
    for _ in range(_PASSES):
        if not _pass(rows, graph.vertex_weights, parts, links, queue, patience, fixed, log):
            break
