"""PaGraph: training vertices whose neighbourhoods overlap share a part; then the others follow their neighbours.

Lin, Li, Miao, Liu, Xu, "PaGraph: scaling GNN training on large graphs via computation-aware caching" (SoCC 2020),
section 5. Each training vertex goes to the part with the largest score t x f / c. Here t counts the part's training
vertices among its in-neighbours within two hops, f the free places for training vertices, and c the part's vertices,
copies included. The paper copies the other vertices to every part that needs them. Here each vertex is in one part: LDG
places it by its placed neighbours, in waves outwards from the training vertices.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.postprocess import MethodResult
from data_prep.partitioning.request import PartitionRequest, part_capacity
from data_prep.partitioning.streaming import Stream
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix
from leapmpi.system.jit import compiled

_WAVES = 8


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex, by in-neighbours. Without training vertices all count as such.

    Reads rows out of their order, and keeps a bit per vertex and part.
    """
    # Training vertices first, in the order of a hash, by their two-hop neighbourhoods.
    stream = Stream(graph, request)
    training = stream.training
    roots = training if training.any() else ~training
    capacity = part_capacity(roots, request).training
    order = np.flatnonzero(roots)
    order = order[np.argsort(fold_all(np.uint64(mix(np.uint64(request.seed))), order), kind="stable")]
    _place_training(graph.indptr, graph.indices, roots, order, stream.part_of, stream.sizes, capacity)

    # Then the others, as LDG does, but only next to placed vertices until the last wave.
    stream.waiting[roots] = False
    stream.trained[:] = np.bincount(stream.part_of[training], minlength=request.parts)
    for wave in range(_WAVES):
        stream.sweep(isolated=wave == _WAVES - 1)
    return stream.result()


@compiled
def _place_training(indptr, indices, training, vertices, part_of, sizes, capacity):
    """Place the training `vertices` one after the other; sizes int64[P] counts them.

    A part needs each vertex within two hops of its training vertices: a bit in needed uint64[n, ceil(P / 64)].
    """
    parts = len(sizes)
    needed = np.zeros((len(training), (parts + 63) // 64), np.uint64)
    copies = np.zeros(parts, np.int64)  # vertices that a part needs
    common = np.zeros(parts, np.int64)  # training vertices of a part within two hops of v
    seen = np.full(len(training), -1, np.int64)
    reached = np.empty(len(training), np.int64)
    for v in vertices:
        count = _within_two_hops(indptr, indices, v, seen, reached)
        for i in range(count):
            if training[reached[i]] and part_of[reached[i]] >= 0:
                common[part_of[reached[i]]] += 1

        # The paper's score; equal scores: the part with fewer training vertices.
        best, highest = -1, -1.0
        for part in range(parts):
            score = common[part] * (capacity - sizes[part]) / (copies[part] + 1.0)
            if sizes[part] < capacity and (score > highest or (score == highest and sizes[part] < sizes[best])):
                best, highest = part, score
        part_of[v] = best
        sizes[best] += 1

        # The part now needs the whole neighbourhood of v.
        word = best >> 6
        bit = np.uint64(1) << np.uint64(best & 63)
        for i in range(count):
            if not needed[reached[i], word] & bit:
                needed[reached[i], word] |= bit
                copies[best] += 1
        common[:] = 0


@compiled
def _within_two_hops(indptr, indices, v, seen, reached):
    """Write v and its in-neighbours within two hops to `reached`, each once; returns their number.

    seen[u] == v marks what is written already, so that no array must be cleared between two vertices.
    """
    seen[v] = v
    reached[0] = v
    count, near = 1, 1
    # `reached` is its own queue: the second hop starts behind v, where the first one has written.
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


MEMBER = PartitionMethod(partition)
