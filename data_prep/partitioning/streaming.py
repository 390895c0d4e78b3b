"""Streaming placement of vertices: one pass over the rows of the graph in their order, memory for the vertices alone.

The objectives of LDG and Fennel differ in one line; their modules in methods/ name the papers. Only in-neighbours
count, because sampling reads these. A graph with every edge in both directions loses nothing by that.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.multilevel.adjacency_stream import edge_chunks
from data_prep.partitioning.postprocess import MethodResult, rows_of_graph
from data_prep.partitioning.request import PartitionRequest, balanced_vertices, part_capacity
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold, mix
from leapmpi.system.jit import compiled


@compiled
def _place(chunk, training, waiting, part_of, sizes, trained, capacity, alpha, salt, isolated):
    """Place the waiting vertices of a chunk in the parts that score highest, and count how many changed part.

    alpha < 0: LDG's score, neighbours in the part x its free share, for training vertices also x its free share of
    these; else Fennel's, neighbours - alpha x 3/2 x sqrt(size). Equal scores: the smaller part, then one by a hash.
    Without `isolated`, vertices that have no placed neighbour go on waiting.
    """
    first, indptr, indices, _ = chunk
    parts = len(sizes)
    links = np.zeros(parts, np.int64)
    changed = 0
    for row in range(len(indptr) - 1):
        v = first + row
        if not waiting[v]:
            continue

        # Count the placed neighbours by part.
        placed = 0
        for e in range(indptr[row], indptr[row + 1]):
            part = part_of[indices[e]]
            if part >= 0:
                links[part] += 1
                placed += 1

        if placed or isolated:
            start = np.int64(fold(salt, v) % np.uint64(parts))
            best = _best(links, training[v], sizes, trained, capacity, alpha, start)
            changed += part_of[v] != best
            part_of[v] = best
            waiting[v] = False
            sizes[best] += 1
            trained[best] += training[v]

        # Only the touched entries are reset: P may be far larger than the degree.
        for e in range(indptr[row], indptr[row + 1]):
            part = part_of[indices[e]]
            if part >= 0:
                links[part] = 0
    return changed


@compiled
def _best(links, trains, sizes, trained, capacity, alpha, start):
    """Find the part with free capacity that scores highest, searched from part `start` on.

    Where no part has any, the smallest of those with capacity for a training vertex.
    """
    parts = len(sizes)
    best, highest = -1, -np.inf
    for i in range(parts):
        part = start + i if start + i < parts else start + i - parts
        if sizes[part] >= capacity[0] or (trains and trained[part] + trains > capacity[1]):
            continue

        # LDG's score, or Fennel's.
        if alpha < 0:
            score = links[part] * (1.0 - sizes[part] / capacity[0])
            if trains:
                score *= 1.0 - trained[part] / capacity[1]
        else:
            score = links[part] - alpha * 1.5 * np.sqrt(sizes[part])
        if score > highest or (score == highest and sizes[part] < sizes[best]):
            best, highest = part, score

    # All are full for this vertex: post-processing repairs the size.
    if best < 0:
        for part in range(parts):
            if trained[part] < capacity[1] and (best < 0 or sizes[part] < sizes[best]):
                best = part
    return best


class Stream:
    """A graph whose vertices are placed one after the other.

    part_of int32[n] is the part of each vertex (-1: not placed), waiting bool[n] says which are to be placed; sizes and
    trained, int64[P], count the vertices and the training vertices of each part.
    """

    def __init__(self, graph: Graph, request: PartitionRequest) -> None:
        self.graph = graph
        self.request = request
        self.training = balanced_vertices(graph, request)
        self.part_of = np.full(graph.vertices, -1, np.int32)
        self.waiting = np.ones(graph.vertices, bool)
        self.sizes = np.zeros(request.parts, np.int64)
        self.trained = np.zeros(request.parts, np.int64)

    def sweep(self, alpha: float = -1.0, isolated: bool = True) -> int:
        """Place the waiting vertices, by Fennel's score with `alpha` or by LDG's (alpha < 0), in one pass.

        Without `isolated`, vertices that have no placed neighbour go on waiting. Returns how many changed their part.
        """
        caps, salt = part_capacity(self.training, self.request), np.uint64(mix(np.uint64(self.request.seed)))
        law = (np.array([caps.size, caps.training]), alpha, salt, isolated)
        state = (self.training, self.waiting, self.part_of, self.sizes, self.trained)
        chunks = edge_chunks(self.graph, self.request.chunk, self.request.progress)
        return sum(_place(chunk, *state, *law) for chunk in chunks)

    def restart(self) -> None:
        """Let every vertex be placed again; until then its neighbours count it in its present part."""
        self.waiting[:] = True
        self.sizes[:] = 0
        self.trained[:] = 0

    def result(self) -> MethodResult:
        """Return the parts, to be repaired by the edges of the graph."""
        return MethodResult(self.part_of, rows_of_graph(self.graph, self.request))
