"""BGL: blocks of vertices, grown by breadth-first search and merged, are placed in parts as wholes.

Liu et al., "BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing" (NSDI 2023), section 3.3:
multi-source search, small blocks merged into neighbours, blocks in decreasing size to the part with the largest number
of neighbours x free share x free share of training vertices. Here neighbours are counted by edges between blocks, one
hop away: with the second hop that the paper adds, more edges were cut on most graphs tried. A block that does not fit
a part goes on in the next best one.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.bfs_blocks import add_links, grow_blocks, members_by_block, merge_small
from data_prep.partitioning.edge_chunks import edge_chunks
from data_prep.partitioning.postprocess import MethodResult, rows_of_graph
from data_prep.partitioning.request import Capacity, PartitionRequest, part_capacity, training_vertices
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix

_BLOCKS_PER_PART = 32
_MOST_BLOCKS = 2048
"""Links between all pairs of blocks are held: 32 MiB for as many."""


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """The part of each vertex; blocks are connected along in-neighbours."""
    training = training_vertices(graph)
    block_of = _blocks(graph, request)
    links = np.zeros((block_of.max() + 1,) * 2)
    for chunk in edge_chunks(graph, request.chunk, request.progress):
        add_links(chunk.first, chunk.indptr, chunk.indices, block_of, links)
    assignment = _place(block_of, links, training, part_capacity(training, request), request.parts)
    return MethodResult(assignment, rows_of_graph(graph, request))


def _blocks(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """The block of each vertex, int64[n], numbered without gaps."""
    # Grow blocks of about equal size from vertices in the order of a hash.
    n = graph.vertices
    largest = max(1, -(-n // min(_BLOCKS_PER_PART * request.parts, _MOST_BLOCKS)))
    starts = np.argsort(fold_all(np.uint64(mix(np.uint64(request.seed))), np.arange(n)), kind="stable")
    block_of = grow_blocks(graph.indptr, graph.indices, starts, -(-n // largest), largest)

    # Merge those of less than half that size into neighbours, smallest first.
    members, bounds = members_by_block(block_of, int(block_of.max()) + 1)
    order = np.argsort(np.diff(bounds), kind="stable")
    small = max(1, largest // 2)
    target = merge_small(graph.indptr, graph.indices, block_of, members, bounds, order, small, 2 * largest)
    return np.unique(target[block_of], return_inverse=True)[1]


def _place(block_of: np.ndarray, links: np.ndarray, training: np.ndarray, capacity: Capacity, parts: int) -> np.ndarray:
    """The part int32[n] of each vertex. Blocks in decreasing size go to the best part, and where one does not fit, the
    rest of it to the next best.

    A training vertex for which no part has capacity of both kinds goes where training vertices have capacity;
    post-processing repairs that.
    """
    members, bounds = members_by_block(block_of, len(links))
    assignment = np.full(len(block_of), -1, np.int32)
    sizes = np.zeros(parts, np.int64)
    trained = np.zeros(parts, np.int64)
    unlimited = Capacity(len(block_of), len(block_of))
    attraction = np.zeros((len(links), parts))  # edges between each block and each part
    for block in np.argsort(-np.diff(bounds), kind="stable"):
        rest = members[bounds[block] : bounds[block + 1]]
        block_size = len(rest)
        sizes_before = sizes.copy()

        # The paper's score; equal scores: the smaller part.
        free = 1 - sizes / capacity.vertices
        free_training = 1 - trained / max(1, capacity.training)
        score = attraction[block] * free * free_training
        for part in np.lexsort((sizes, -score)):
            rest = _fill(rest, part, assignment, training, sizes, trained, capacity)
            if not len(rest):
                break

        # No part has capacity of both kinds: the smallest part with capacity of the vertex's kind.
        for v in rest:
            full = trained >= capacity.training if training[v] else sizes >= capacity.vertices
            part = np.lexsort((sizes, full))[0]
            _fill(np.array([v]), part, assignment, training, sizes, trained, unlimited)

        # A block that was divided attracts its neighbours to each part by the share of it there.
        attraction += np.outer(links[:, block], (sizes - sizes_before) / block_size)
    return assignment


def _fill(
    vertices: np.ndarray,
    part: int,
    assignment: np.ndarray,
    training: np.ndarray,
    sizes: np.ndarray,
    trained: np.ndarray,
    capacity: Capacity,
) -> np.ndarray:
    """Put into `part` those of `vertices` for which it has capacity; returns the others."""
    trains = training[vertices]
    fits = np.where(trains, np.cumsum(trains) <= capacity.training - trained[part], True)
    fits &= np.cumsum(fits) <= capacity.vertices - sizes[part]
    assignment[vertices[fits]] = part
    sizes[part] += np.count_nonzero(fits)
    trained[part] += np.count_nonzero(trains & fits)
    return vertices[~fits]
