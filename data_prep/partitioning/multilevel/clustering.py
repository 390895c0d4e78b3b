"""Clusters of vertices with many edges inside, none too large: label propagation over a stream of chunks.

Size-constrained label propagation (Meyerhenke, Sanders, Schulz, SEA 2014): each vertex in turn joins the cluster that
holds most of the weight of its edges and has room. Ties are broken by a hash. Where vertices find the cluster they
prefer full, as the leaves of a hub do, they join each other ("two-hop" clusters: LaSalle, Patwary, Satish, Sundaram,
Dubey, Karypis: "Improving graph partitioning for modern graphs and architectures", IA3 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_prep.partitioning.multilevel.blocks import Workers, block_ranges
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_MOST_NEIGHBOURS = 4096
"""Longer rows are sampled evenly: a hub's cluster matters little to it."""

_SLOTS = 2 * _MOST_NEIGHBOURS


@dataclass(frozen=True)
class ClusterRule:
    """The most vertices, and training vertices, of a cluster; how often to pass over the graph; the seed.

    Passing ends before `most_passes` when clusters are an eighth of the vertices, or a pass leaves more than `enough`
    of those there were."""

    size_limit: int
    training_limit: int
    seed: int
    least_passes: int = 2
    most_passes: int = 5
    enough: float = 0.9


@compiled
def _sum_by_cluster(v, start, stop, neighbours, weights, label, within, keys, sums, used, gathered):
    """Add up the weights of v's edges by cluster; returns the number of clusters and the largest sum.

    keys (-1: free) and sums are a hash table, whose slots in use are then listed in `used`.
    """
    step = 1 + (stop - start - 1) // _MOST_NEIGHBOURS
    length = 1 + (stop - start - 1) // step
    # Gathered first: the processor then waits for many labels at once.
    if step == 1:
        for i in range(length):
            gathered[i] = label[neighbours[start + i]]
    else:
        for i in range(length):
            gathered[i] = label[neighbours[start + i * step]]
    if len(within):
        for i in range(length):
            if within[neighbours[start + i * step]] != within[v]:
                gathered[i] = -1
    shift = 31
    while (1 << (32 - shift)) < 2 * length:
        shift -= 1
    mask = (1 << (32 - shift)) - 1
    count, most = 0, 0
    for i in range(length):
        c = gathered[i]
        if c < 0:
            continue
        slot = np.int64(np.uint32(np.uint32(c) * np.uint32(0x9E3779B1)) >> np.uint32(shift))
        key = keys[slot]
        while key != c and key != -1:
            slot = (slot + 1) & mask
            key = keys[slot]
        w = np.int64(weights[start + i * step]) if len(weights) else 1
        if key == c:
            w += sums[slot]
        else:
            keys[slot] = c
            used[count] = slot
            count += 1
        sums[slot] = w
        most = max(most, w)
    return count, most


@compiled
def _draw(base, c):
    return (np.uint64(base) ^ np.uint64(c)) * np.uint64(0x9E3779B97F4A7C15)


@compiled
def _propose(first, begin, end, indptr, neighbours, weights, label, size, training, own_size, own_training,
             limits, within, seed, scratch, out):  # fmt: skip
    """out[row]: the cluster that each vertex would join, its own, or -2 - c where it would like the full cluster c."""
    keys, sums, used, gathered = scratch[0], scratch[1], scratch[2], scratch[3]
    for row in range(begin, end):
        v = first + row
        home = label[v]
        out[row] = home
        start, stop = indptr[row], indptr[row + 1]
        if start == stop:
            continue
        count, most = _sum_by_cluster(v, start, stop, neighbours, weights, label, within, keys, sums, used, gathered)
        base = fold(seed, v)
        liked, draw = home, np.uint64(0)
        for i in range(count):
            slot = used[i]
            if sums[slot] == most and (liked == home or _draw(base, keys[slot]) > draw):
                liked, draw = keys[slot], _draw(base, keys[slot])
        v_size = own_size[v] if len(own_size) else 1
        v_training = own_training[v] if len(own_training) else 0
        best = liked
        if liked != home and (size[liked] + v_size > limits[0] or training[liked] + v_training > limits[1]):
            best, most, draw = home, 0, np.uint64(0)
            for i in range(count):
                c, w = keys[used[i]], sums[used[i]]
                if w < most or (w == most and _draw(base, c) < draw):
                    continue
                if c == home or (size[c] + v_size <= limits[0] and training[c] + v_training <= limits[1]):
                    best, most, draw = c, w, _draw(base, c)
        out[row] = best if best != home or liked == home else -2 - liked
        for i in range(count):
            keys[used[i]] = -1


@compiled
def _apply(first, begin, end, proposed, label, size, training, own_size, own_training, limits, waiting):
    """Let vertices join the proposed clusters that exist and have room; returns how many clusters have gone."""
    gone = 0
    for row in range(begin, end):
        v = first + row
        home, to = label[v], proposed[row]
        if to == home:
            continue
        v_size = own_size[v] if len(own_size) else 1
        v_training = own_training[v] if len(own_training) else 0
        if to < 0:
            # Only a vertex on its own looks for another that likes the same cluster.
            if len(waiting) == 0 or size[home] != v_size:
                continue
            liked = -2 - to
            to = waiting[liked]
            if to == home:
                continue
            if to < 0 or size[to] == 0 or size[to] + v_size > limits[0] or training[to] + v_training > limits[1]:
                waiting[liked] = home
                continue
        if size[to] == 0 or size[to] + v_size > limits[0] or training[to] + v_training > limits[1]:
            continue
        label[v] = to
        size[home] -= v_size
        training[home] -= v_training
        size[to] += v_size
        training[to] += v_training
        if size[home] == 0:
            gone += 1
    return gone


@compiled
def _number(label, size, number):
    """Number the clusters that have vertices by their first one, in place; -1 stays. Returns how many there are."""
    number[:] = -1
    count = 0
    for v in range(len(label)):
        c = label[v]
        if c >= 0:
            if number[c] < 0:
                number[c] = count
                count += 1
            label[v] = number[c]
    return count


def cluster(graph, rule: ClusterRule, workers: Workers, within: np.ndarray) -> tuple[np.ndarray, int]:
    """The cluster int32[n] of each vertex of an AdjacencyStream or WeightedGraph (-1 without neighbours); their count.

    Vertices join only inside a part of `within` (int32[n], or int32[0]: anywhere).
    """
    n = graph.vertices
    weights = graph.vertex_weights
    label = np.arange(n, dtype=np.int32)
    size = weights.size.copy() if len(weights.size) else np.ones(n, np.int32)
    training = weights.training.copy() if len(weights.training) else np.zeros(n, np.int32)
    proposed = np.empty(0, np.int32)
    scratch = np.full((workers.count, 4, _SLOTS), -1, np.int32)
    limits = np.array([rule.size_limit, rule.training_limit])
    waiting = np.empty(0, np.int32)
    left = n
    for number in range(rule.most_passes):
        before = left
        seed = np.uint64(fold(np.uint64(rule.seed), number))
        for chunk in graph.chunks():
            if chunk.vertices > len(proposed):
                proposed = np.empty(chunk.vertices, np.int32)

            def propose(begin: int, end: int, thread: int, chunk=chunk, seed=seed, proposed=proposed) -> None:
                _propose(chunk.first, begin, end, chunk.indptr, chunk.neighbours, chunk.weights, label, size, training,
                         weights.size, weights.training, limits, within, seed, scratch[thread], proposed)  # fmt: skip

            for begin, end in block_ranges(chunk, n):
                workers.over_rows(chunk.indptr, begin, end, propose)
                left -= _apply(chunk.first, begin, end, proposed, label, size, training, weights.size,
                               weights.training, limits, waiting)  # fmt: skip
            if number == 0:
                alone = np.flatnonzero(np.diff(chunk.indptr) == 0)
                label[chunk.first + alone] = -1
                left -= len(alone)
        if number + 1 >= rule.least_passes and (left < n // 8 or left > rule.enough * before):
            break
        if number == 0:
            waiting = np.full(n, -1, np.int32)
    return label, _number(label, size, training)
