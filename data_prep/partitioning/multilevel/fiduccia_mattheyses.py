"""Fiduccia-Mattheyses refinement of a cut into many parts, on a graph in memory.

Fiduccia, Mattheyses: "A linear-time heuristic for improving network partitions", DAC 1982: the best move is made even
if it loses, no vertex moves twice in a pass, and the pass is rolled back to its best moment. Vertices wait in a heap by
the gain of their best move that keeps the caps; `links` holds the weight between each vertex and each part.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.balance import Caps, excess, loads
from data_prep.partitioning.multilevel.weighted_graph import WeightedGraph
from leapmpi.system.jit import compiled

_MOST_LINKS = 1 << 24
"""Vertices times parts, beyond which nothing is done."""

_NEVER = -(1 << 62)


@compiled
def _sift_up(heap, place, key, i):
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
def _sift_down(heap, place, key, i, count):
    v = heap[i]
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
def _set_key(heap, place, key, count, v, new):
    """Give vertex v the key `new`, adding it or, with _NEVER, leaving it out; returns the new number in the heap."""
    i = place[v]
    if i < 0:
        if new == _NEVER:
            return count
        heap[count] = v
        key[v] = new
        _sift_up(heap, place, key, count)
        return count + 1
    if new == _NEVER:
        count -= 1
        place[v] = -1
        if i < count:
            heap[i] = heap[count]
            place[heap[i]] = i
            _sift_up(heap, place, key, i)
            _sift_down(heap, place, key, place[heap[i]], count)
        return count
    old = key[v]
    key[v] = new
    if new > old:
        _sift_up(heap, place, key, i)
    elif new < old:
        _sift_down(heap, place, key, i, count)
    return count


@compiled
def _best_move(v, links, home, v_size, v_training, sizes, trainings, caps):
    """The part with room that a vertex has most weight to, and what moving there gains; (-1, _NEVER): none."""
    to, most = -1, -1
    for p in range(len(sizes)):
        if p == home or links[v, p] < most:
            continue
        if sizes[p] + v_size > caps[0] or trainings[p] + v_training > caps[1]:
            continue
        if links[v, p] > most or sizes[p] < sizes[to]:
            to, most = p, links[v, p]
    return to, (np.int64(most) - links[v, home] if to >= 0 else _NEVER)


@compiled
def _links(indptr, neighbours, weights, assignment, links):
    for v in range(len(assignment)):
        for e in range(indptr[v], indptr[v + 1]):
            links[v, assignment[neighbours[e]]] += weights[e] if len(weights) else 1


@compiled
def _transfer(v, to, indptr, neighbours, weights, assignment, links, sizes, trainings, v_size, v_training):
    home = assignment[v]
    assignment[v] = to
    sizes[home] -= v_size
    sizes[to] += v_size
    trainings[home] -= v_training
    trainings[to] += v_training
    for e in range(indptr[v], indptr[v + 1]):
        u = np.int64(neighbours[e])
        w = weights[e] if len(weights) else 1
        links[u, home] -= w
        links[u, to] += w


@compiled
def _pass(indptr, neighbours, weights, size, training, assignment, links, sizes, trainings, caps, patience,
          fixed, heap, place, key, log):  # fmt: skip
    """One pass, in which the last `fixed` vertices stay; returns what it gained. Gains count every cut edge once."""
    n, parts = links.shape
    place[:] = -1
    place[n - fixed :] = -2
    n -= fixed
    count = 0
    for v in range(n):
        home = assignment[v]
        crosses = False
        for p in range(parts):
            crosses |= p != home and links[v, p] > 0
        if crosses:
            v_training = training[v] if len(training) else 0
            gain = _best_move(v, links, home, size[v] if len(size) else 1, v_training, sizes, trainings, caps)[1]
            count = _set_key(heap, place, key, count, v, gain)
    moved, kept, total, best = 0, 0, 0, 0
    while count > 0 and moved - kept < patience:
        v = heap[0]
        home = assignment[v]
        v_size = size[v] if len(size) else 1
        v_training = training[v] if len(training) else 0
        to, gain = _best_move(v, links, home, v_size, v_training, sizes, trainings, caps)
        if gain != key[v]:
            count = _set_key(heap, place, key, count, v, gain)
            continue
        count = _set_key(heap, place, key, count, v, _NEVER)
        place[v] = -2  # moved: not again in this pass
        _transfer(v, to, indptr, neighbours, weights, assignment, links, sizes, trainings, v_size, v_training)
        log[moved, 0], log[moved, 1] = v, home
        moved += 1
        total += gain
        if total > best:
            best, kept = total, moved
        for e in range(indptr[v], indptr[v + 1]):
            u = np.int64(neighbours[e])
            if place[u] == -2:
                continue
            u_training = training[u] if len(training) else 0
            gain = _best_move(u, links, assignment[u], size[u] if len(size) else 1, u_training, sizes, trainings,
                              caps)[1]  # fmt: skip
            count = _set_key(heap, place, key, count, u, gain)
    while moved > kept:
        moved -= 1
        v = log[moved, 0]
        _transfer(v, log[moved, 1], indptr, neighbours, weights, assignment, links, sizes, trainings,
                  size[v] if len(size) else 1, training[v] if len(training) else 0)  # fmt: skip
    return best


@compiled
def _drain(indptr, neighbours, weights, size, training, assignment, links, sizes, trainings, caps, fixed,
           heap, place, key):  # fmt: skip
    """Move vertices out of parts that are too full, those that lose least for what they weigh first."""
    place[:] = -1
    count = 0
    for v in range(len(assignment) - fixed):
        home = assignment[v]
        v_training = training[v] if len(training) else 0
        if sizes[home] > caps[0] or (trainings[home] > caps[1] and v_training > 0):
            v_size = size[v] if len(size) else 1
            gain = _best_move(v, links, home, v_size, v_training, sizes, trainings, caps)[1]
            if gain != _NEVER:
                count = _set_key(heap, place, key, count, v, 256 * gain // (v_size if gain < 0 else 1))
    while count > 0:
        v = heap[0]
        home = assignment[v]
        v_size = size[v] if len(size) else 1
        v_training = training[v] if len(training) else 0
        to, gain = _best_move(v, links, home, v_size, v_training, sizes, trainings, caps)
        still = sizes[home] > caps[0] or (trainings[home] > caps[1] and v_training > 0)
        new = 256 * gain // (v_size if gain < 0 else 1) if gain != _NEVER and still else _NEVER
        if new < key[v]:
            count = _set_key(heap, place, key, count, v, new)
            continue
        count = _set_key(heap, place, key, count, v, _NEVER)
        _transfer(v, to, indptr, neighbours, weights, assignment, links, sizes, trainings, v_size, v_training)


def improve(graph: WeightedGraph, assignment: np.ndarray, caps: Caps, passes: int = 8, fixed: int = 0) -> None:
    """Make a cut int32[n] of a graph keep the caps, as far as single moves do, and cut fewer edges, in place.

    The last `fixed` vertices, whose rows may be empty, stay where they are.
    """
    n = graph.vertices
    if n * caps.parts > _MOST_LINKS or caps.parts == 1:
        return
    weights = graph.vertex_weights
    sizes, trainings = loads(assignment, weights, caps.parts)
    links = np.zeros((n, caps.parts), np.int32)
    arrays = (graph.indptr, graph.neighbours, graph.weights, weights.size, weights.training, assignment)
    _links(*arrays[:3], assignment, links)
    limits = np.array([caps.size, caps.training])
    queue = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    log = np.empty((n, 2), np.int32)
    if excess(sizes, trainings, caps):
        _drain(*arrays, links, sizes, trainings, limits, fixed, *queue)
    patience = min(2000, max(100, n // 50))
    for _ in range(passes):
        if not _pass(*arrays, links, sizes, trainings, limits, patience, fixed, *queue, log):
            break
