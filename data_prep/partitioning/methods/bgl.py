"""BGL: blocks grown by breadth-first search are merged, placed in parts as wholes, and taken apart again.

Liu et al., "BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing" (NSDI 2023), section 3.3:
multi-source search, small blocks merged into neighbours, blocks in decreasing size to the part with the largest number
of neighbours x free share x free share of training vertices. Here neighbours are counted by edges between blocks, one
hop away: with the second hop that the paper adds, more edges were cut on most graphs tried. A block that does not fit
a part goes on in the next best one.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.balance import Room, room_of_a_part, training_vertices
from data_prep.partitioning.bfs_blocks import add_links, grow_blocks, members_by_block, merge_small
from data_prep.partitioning.edge_chunks import edge_chunks
from data_prep.partitioning.finishing import finished
from data_prep.partitioning.request import PartitionRequest
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix

_BLOCKS_A_PART = 32
_MOST_BLOCKS = 2048
"""Links between all pairs of blocks are held: 32 MiB for as many."""


def partition(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Part int32[n] of each vertex; connected are blocks along in-neighbours."""
    training = training_vertices(graph)
    block_of = _blocks(graph, request)
    links = np.zeros((block_of.max() + 1,) * 2)
    for chunk in edge_chunks(graph, request.chunk, request.progress):
        add_links(chunk.first, chunk.indptr, chunk.indices, block_of, links)
    assignment = _place(block_of, links, training, room_of_a_part(training, request), request.parts)
    return finished(graph, assignment, training, request)


def _blocks(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """The block of each vertex, int64[n], numbered without gaps."""
    n = graph.vertices
    largest = max(1, -(-n // min(_BLOCKS_A_PART * request.parts, _MOST_BLOCKS)))
    starts = np.argsort(fold_all(np.uint64(mix(np.uint64(request.seed))), np.arange(n)), kind="stable")
    block_of = grow_blocks(graph.indptr, graph.indices, starts, -(-n // largest), largest)
    members, bounds = members_by_block(block_of, int(block_of.max()) + 1)
    order = np.argsort(np.diff(bounds), kind="stable")
    small = max(1, largest // 2)
    into = merge_small(graph.indptr, graph.indices, block_of, members, bounds, order, small, 2 * largest)
    return np.unique(into[block_of], return_inverse=True)[1]


def _place(block_of: np.ndarray, links: np.ndarray, training: np.ndarray, room: Room, parts: int) -> np.ndarray:
    """The part int32[n] of each vertex. Blocks in decreasing size go to the best part, what does not fit to the next.

    A training vertex for which no part has room of both kinds goes where its kind has; `finished` mends that.
    """
    members, bounds = members_by_block(block_of, len(links))
    assignment = np.full(len(block_of), -1, np.int32)
    sizes, trained = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    attraction = np.zeros((len(links), parts))
    for block in np.argsort(-np.diff(bounds), kind="stable"):
        rest = members[bounds[block] : bounds[block + 1]]
        whole, before = len(rest), sizes.copy()
        free, free_training = 1 - sizes / room.vertices, 1 - trained / max(1, room.training)
        score = attraction[block] * free * free_training
        for part in np.lexsort((sizes, -score)):
            rest = _fill(rest, part, assignment, training, sizes, trained, room)
            if not len(rest):
                break
        for v in rest:
            part = np.lexsort((sizes, trained >= room.training if training[v] else sizes >= room.vertices))[0]
            _fill(np.array([v]), part, assignment, training, sizes, trained, Room(len(block_of), len(block_of)))
        attraction += np.outer(links[:, block], (sizes - before) / whole)
    return assignment


def _fill(rest, part, assignment, training, sizes, trained, room) -> np.ndarray:
    """Put those of the vertices `rest` into `part` that it has room for; those that it has not."""
    trains = training[rest]
    fits = np.where(trains, np.cumsum(trains) <= room.training - trained[part], True)
    fits &= np.cumsum(fits) <= room.vertices - sizes[part]
    assignment[rest[fits]] = part
    sizes[part] += np.count_nonzero(fits)
    trained[part] += np.count_nonzero(trains & fits)
    return rest[~fits]
