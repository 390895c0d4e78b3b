"""Streaming placement of vertices: one look at each row of the graph, in its order, memory for the vertices alone.

The objectives of LDG and Fennel differ in one line; their modules in partitioners/ say where they come from. A
vertex sees its in-neighbours, whatever other edges it has: those are what sampling reads. In a graph with every edge
in both directions that is all of them.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import Room
from data_prep.partitioning.edge_chunks import EdgeChunk, edge_chunks
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold, mix
from leapmpi.system.jit import compiled


@compiled
def _place(first, indptr, indices, training, waiting, part_of, sizes, trained, room, alpha, salt, lonely):
    """Place the waiting vertices of a chunk in the parts that score highest, and count how many changed part.

    alpha < 0: LDG's score, neighbours in the part x its free share, of which training vertices also need their own
    kind; else Fennel's, neighbours - alpha x 3/2 x sqrt(size). Equal scores: the smaller part, then one by a hash.
    """
    parts = len(sizes)
    links = np.zeros(parts, np.int64)
    changed = 0
    for row in range(len(indptr) - 1):
        v = first + row
        if not waiting[v]:
            continue
        placed = 0
        for e in range(indptr[row], indptr[row + 1]):
            part = part_of[indices[e]]
            if part >= 0:
                links[part] += 1
                placed += 1
        if placed or lonely:
            best = _best(links, training[v], sizes, trained, room, alpha, np.int64(fold(salt, v) % np.uint64(parts)))
            changed += part_of[v] != best
            part_of[v] = best
            waiting[v] = False
            sizes[best] += 1
            trained[best] += training[v]
        for e in range(indptr[row], indptr[row + 1]):
            part = part_of[indices[e]]
            if part >= 0:
                links[part] = 0
    return changed


@compiled
def _best(links, trains, sizes, trained, room, alpha, start):
    """The part with room that scores highest; without any, the smallest of those with room for the training vertex."""
    parts = len(sizes)
    best, highest = -1, -np.inf
    for i in range(parts):
        part = start + i if start + i < parts else start + i - parts
        if sizes[part] >= room[0] or (trains and trained[part] >= room[1]):
            continue
        if alpha < 0:
            score = links[part] * (1.0 - sizes[part] / room[0])
            if trains:
                score *= 1.0 - trained[part] / room[1]
        else:
            score = links[part] - alpha * 1.5 * np.sqrt(sizes[part])
        if score > highest or (score == highest and sizes[part] < sizes[best]):
            best, highest = part, score
    if best < 0:
        for part in range(parts):
            if trained[part] < room[1] and (best < 0 or sizes[part] < sizes[best]):
                best = part
    return best


class Stream:
    """A graph being placed part by part: `part_of` int32[n] (-1: not yet), sizes and training vertices of parts."""

    def __init__(self, graph: Graph, training: np.ndarray, room: Room, request: PartitionRequest) -> None:
        self.graph, self.training, self.room, self.request = graph, training, room, request
        self.part_of = np.full(graph.vertices, -1, np.int32)
        self.waiting = np.ones(graph.vertices, bool)
        self.sizes, self.trained = (np.zeros(request.parts, np.int64) for _ in range(2))
        self._salt = np.uint64(mix(np.uint64(request.seed)))

    def chunks(self):
        """The graph's rows in the chunks that the request asks for."""
        return edge_chunks(self.graph, self.request.chunk, self.request.progress)

    def sweep(self, alpha: float = -1.0, lonely: bool = True) -> int:
        """Place what is waiting, of Fennel's `alpha` or by LDG; how many vertices changed their part.

        Vertices without placed neighbours go on waiting unless `lonely`.
        """
        return sum(self._place(chunk, alpha, lonely) for chunk in self.chunks())

    def _place(self, chunk: EdgeChunk, alpha: float, lonely: bool) -> int:
        state = (self.training, self.waiting, self.part_of, self.sizes, self.trained)
        return _place(*chunk, *state, np.array(self.room), alpha, self._salt, lonely)

    def restart(self) -> None:
        """Let every vertex be placed again; until then it counts, for its neighbours, where it is."""
        self.waiting[:] = True
        self.sizes[:] = 0
        self.trained[:] = 0
