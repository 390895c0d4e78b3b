"""Clusters of vertices with many edges inside, none too large: label propagation over a stream of chunks.

Size-constrained label propagation (Meyerhenke, Sanders, Schulz, SEA 2014): each vertex in turn joins the cluster that
holds most of the weight of its edges and has capacity. Ties are broken by a hash. Where the cluster that vertices
prefer is full, as for the leaves of a hub, they join each other ("two-hop" clusters: LaSalle, Patwary, Satish,
Sundaram, Dubey, Karypis: "Improving graph partitioning for modern graphs and architectures", IA3 2015).
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import AnyGraph
from data_prep.partitioning.multilevel.balance import PartLoads
from data_prep.partitioning.multilevel.blocks import Workers, move_by_blocks
from data_prep.partitioning.multilevel.weighted_graph import Chunk
from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_MOST_NEIGHBOURS = 4096
"""Longer rows are sampled evenly: a hub's cluster matters little to it."""

_SLOTS = 4 * _MOST_NEIGHBOURS


_LEAST_PASSES, _MOST_PASSES = 2, 5
_ENOUGH = 0.9
"""No further pass after one that leaves more than this share of the clusters."""


@compiled
def _sum_by_cluster(start, stop, neighbours, weights, label, keys, sums, used, gathered):
    """Add up the weights of a vertex's edges by cluster; returns the number of clusters and the largest sum.

    keys (-1: free) and sums (0 there) are a hash table, whose slots in use are then listed in `used`.
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

    # The hash table takes as many slots as four times the length of the row: few steps of probing.
    shift = 31
    while (1 << (32 - shift)) < 4 * length:
        shift -= 1
    mask = (1 << (32 - shift)) - 1

    # Linear probing. A new cluster takes the same steps as one seen before: the processor could not predict which.
    count, most = 0, np.int32(0)
    for i in range(length):
        c = gathered[i]
        if c < 0:
            continue
        slot = np.int64(np.uint32(np.uint32(c) * np.uint32(0x9E3779B1)) >> np.uint32(shift))
        key = keys[slot]
        while key != c and key != -1:
            slot = (slot + 1) & mask
            key = keys[slot]
        w = sums[slot] + (weights[start + i * step] if len(weights) else np.int32(1))
        keys[slot] = c
        used[count] = slot
        count += key != c
        sums[slot] = w
        most = max(most, w)
    return count, most


@compiled
def _draw(base, c):
    """Hash a cluster to break ties."""
    return (np.uint64(base) ^ np.uint64(c)) * np.uint64(0x9E3779B97F4A7C15)


@compiled
def _propose(chunk, begin, end, clusters, vertex_weights, seed, scratch, target, blocked):
    """Find the cluster that the vertex of each row would join, or its present one: target[row].

    blocked[row]: that cluster is full, and no other one is better than the present one. scratch int32[4, _SLOTS] is
    the hash table of a thread, empty before and after.
    """
    label, size, training, limits = clusters
    keys, sums, used, gathered = scratch[0], scratch[1], scratch[2], scratch[3]
    for row in range(begin, end):
        v = chunk.first + row
        source = label[v]
        target[row] = source
        blocked[row] = False
        start, stop = chunk.indptr[row], chunk.indptr[row + 1]
        if start == stop:
            continue
        rows = (start, stop, chunk.neighbours, chunk.weights)
        count, most = _sum_by_cluster(*rows, label, keys, sums, used, gathered)

        # The cluster with the largest sum; ties are broken by a hash.
        base = fold(seed, v)
        preferred, draw = source, np.uint64(0)
        for i in range(count):
            slot = used[i]
            if sums[slot] == most and (preferred == source or _draw(base, keys[slot]) > draw):
                preferred, draw = keys[slot], _draw(base, keys[slot])

        # Where that is full, the best one with capacity.
        v_size = vertex_weights.size[v] if len(vertex_weights.size) else 1
        v_training = vertex_weights.training[v] if len(vertex_weights.training) else 0
        best = preferred
        if preferred != source and (
            size[preferred] + v_size > limits[0] or training[preferred] + v_training > limits[1]
        ):
            best, most, draw = source, 0, np.uint64(0)
            for i in range(count):
                c, w = keys[used[i]], sums[used[i]]
                if w < most or (w == most and _draw(base, c) < draw):
                    continue
                if c == source or (size[c] + v_size <= limits[0] and training[c] + v_training <= limits[1]):
                    best, most, draw = c, w, _draw(base, c)
        blocked[row] = best == source and preferred != source
        target[row] = preferred if blocked[row] else best

        # Empty the hash table for the next row.
        for i in range(count):
            keys[used[i]] = -1
            sums[used[i]] = 0


@compiled
def _apply(chunk, begin, end, target, blocked, clusters, vertex_weights, waiting):
    """Let vertices join the proposed clusters that exist and have capacity; returns how many clusters have gone.

    waiting int32[n] (int32[0] in the first pass) holds for each full cluster one of a single vertex that prefers it.
    """
    # Proposals were made in parallel on older sizes. This runs in one thread, and checks each against present ones.
    label, size, training, limits = clusters
    gone = 0
    for row in range(begin, end):
        v = chunk.first + row
        source, to = label[v], target[row]
        if to == source:
            continue
        v_size = vertex_weights.size[v] if len(vertex_weights.size) else 1
        v_training = vertex_weights.training[v] if len(vertex_weights.training) else 0
        if blocked[row]:
            # Only a cluster of one vertex looks for another that prefers the same full cluster.
            if len(waiting) == 0 or size[source] != v_size:
                continue
            preferred = to
            to = waiting[preferred]
            if to == source:
                continue
            if to < 0 or size[to] == 0 or size[to] + v_size > limits[0] or training[to] + v_training > limits[1]:
                waiting[preferred] = source
                continue
        if size[to] == 0 or size[to] + v_size > limits[0] or training[to] + v_training > limits[1]:
            continue
        label[v] = to
        size[source] -= v_size
        training[source] -= v_training
        size[to] += v_size
        training[to] += v_training
        if size[source] == 0:
            gone += 1
    return gone


@compiled
def _number(label, number):
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


def cluster(graph: AnyGraph, limits: tuple[int, int], seed: int, workers: Workers) -> tuple[np.ndarray, int]:
    """Cluster the vertices of `graph`: int32[n] (-1 without neighbours); also return the number of clusters.

    limits: the most vertices, and training vertices, of a cluster. Ends early where clusters are an eighth of the
    vertices.
    """
    # Each vertex with neighbours begins as a cluster of its own.
    n = graph.vertices
    weights = graph.vertex_weights
    label = np.arange(n, dtype=np.int32)
    label[graph.degrees() == 0] = -1
    size = weights.size.copy() if len(weights.size) else np.ones(n, np.int32)
    training = weights.training.copy() if len(weights.training) else np.zeros(n, np.int32)
    clusters = PartLoads(label, size, training, np.array(limits))
    scratch = np.zeros((workers.count, 4, _SLOTS), np.int32)
    scratch[:, 0] = -1
    waiting = np.empty(0, np.int32)

    def propose(chunk: Chunk, target: np.ndarray, blocked: np.ndarray, begin: int, end: int, thread: int) -> None:
        _propose(chunk, begin, end, clusters, weights, pass_seed, scratch[thread], target, blocked)

    def apply(chunk: Chunk, begin: int, end: int, target: np.ndarray, blocked: np.ndarray) -> int:
        return _apply(chunk, begin, end, target, blocked, clusters, weights, waiting)

    # The first pass joins vertices to clusters of neighbours. Later ones also pair single vertices that prefer the same
    # full cluster: around hubs, many would stay alone otherwise.
    left = int(np.count_nonzero(label >= 0))
    for number in range(_MOST_PASSES):
        before = left
        pass_seed = np.uint64(fold(np.uint64(seed), number))
        left -= move_by_blocks(graph, workers, propose, apply)
        if number + 1 >= _LEAST_PASSES and (left < n // 8 or left > _ENOUGH * before):
            break
        if number == 0:
            waiting = np.full(n, -1, np.int32)
    return label, _number(label, training)
