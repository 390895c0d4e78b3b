"""PaGraph: training vertices whose neighbourhoods overlap share a part; then the others follow their neighbours.

Lin, Li, Miao, Liu, Xu, "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020),
section 5: each training vertex goes to the part with the largest |training vertices of the part among its in-neighbours
within two hops| x |free places for training vertices| / |vertices of the part, copies included|. The paper copies the
other vertices to every part that needs them. Here each has one home: with its placed neighbours, as LDG has it, waves
of them outwards from the training vertices.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import room_of_a_part, training_vertices
from data_prep.partitioning.finishing import finished
from data_prep.partitioning.request import PartitionRequest
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix
from leapmpi.system.jit import compiled

_WAVES = 8


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex, by in-neighbours. Without training vertices all count as such.

    Reads rows out of their order, and keeps a bit per vertex and part.
    """
    training = training_vertices(graph)
    roots = training if training.any() else ~training
    stream = Stream(graph, training, room_of_a_part(training, request), request)
    room = room_of_a_part(roots, request).training
    order = np.flatnonzero(roots)
    order = order[np.argsort(fold_all(np.uint64(mix(np.uint64(request.seed))), order), kind="stable")]
    _place_training(graph.indptr, graph.indices, roots, order, stream.part_of, stream.sizes, room)
    stream.waiting[roots] = False
    stream.trained[:] = np.bincount(stream.part_of[training], minlength=request.parts)
    for wave in range(_WAVES):
        stream.sweep(lonely=wave == _WAVES - 1)
    return finished(graph, stream.part_of, training, request)


@compiled
def _place_training(indptr, indices, training, vertices, part_of, sizes, room):
    """Place the training `vertices` one after the other; sizes int64[P] counts them."""
    parts = len(sizes)
    needed = np.zeros((len(training), (parts + 63) // 64), np.uint64)
    copies, common = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    seen = np.full(len(training), -1, np.int64)
    reached = np.empty(len(training), np.int64)
    for v in vertices:
        count = _within_two_hops(indptr, indices, v, seen, reached)
        for i in range(count):
            if training[reached[i]] and part_of[reached[i]] >= 0:
                common[part_of[reached[i]]] += 1
        best, highest = -1, -1.0
        for part in range(parts):
            score = common[part] * (room - sizes[part]) / (copies[part] + 1.0)
            if sizes[part] < room and (score > highest or (score == highest and sizes[part] < sizes[best])):
                best, highest = part, score
        part_of[v] = best
        sizes[best] += 1
        word, bit = best >> 6, np.uint64(1) << np.uint64(best & 63)
        for i in range(count):
            if not needed[reached[i], word] & bit:
                needed[reached[i], word] |= bit
                copies[best] += 1
        common[:] = 0


@compiled
def _within_two_hops(indptr, indices, v, seen, reached):
    """Write v and its in-neighbours of one and two hops to `reached`, each once; their number. Marks them in `seen`."""
    seen[v] = v
    reached[0] = v
    count, near = 1, 1
    for hop in range(2):
        first, near = (0 if hop == 0 else 1), count
        for i in range(first, near):
            for e in range(indptr[reached[i]], indptr[reached[i] + 1]):
                u = indices[e]
                if seen[u] != v:
                    seen[u] = v
                    reached[count] = u
                    count += 1
    return count
