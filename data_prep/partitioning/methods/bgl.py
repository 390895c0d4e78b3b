"""BGL: blocks of vertices, grown by breadth-first search and merged, are placed in parts as wholes.

Liu et al., "BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing" (NSDI 2023), section 3.3:
multi-source search, small blocks merged into neighbours, blocks in decreasing size to the part with the largest number
of neighbours x free share x free share of training vertices. Here neighbours are counted by edges between blocks, one
hop away: with the second hop that the paper adds, more edges were cut on most graphs tried. A block that does not fit
a part goes on in the next best one.
"""

from __future__ import annotations

import numpy as np

from data_prep.partitioning.method_registry import PartitionMethod
from data_prep.partitioning.multilevel.adjacency_stream import edge_chunks
from data_prep.partitioning.multilevel.balance import Caps
from data_prep.partitioning.part_ordering import add_cut_weights
from data_prep.partitioning.postprocess import MethodResult, rows_of_graph
from data_prep.partitioning.request import PartitionRequest, part_capacity, training_vertices
from leapmpi.dataset.graph import Graph
from leapmpi.system.counter_rng import fold_all, mix
from leapmpi.system.jit import compiled

_BLOCKS_PER_PART = 32
_MOST_BLOCKS = 2048
"""Links between all pairs of blocks are held: 32 MiB for as many."""


def partition(graph: Graph, request: PartitionRequest) -> MethodResult:
    """Return the part of each vertex; blocks are connected along in-neighbours."""
    training = training_vertices(graph)
    block_of = _blocks(graph, request)
    links = np.zeros((block_of.max() + 1,) * 2)
    for chunk in edge_chunks(graph, request.chunk, request.progress):
        add_cut_weights(chunk, block_of, links)
    # Lists hold in-neighbours alone; a link counts the edges of both directions.
    links += links.T
    assignment = _place(block_of, links, training, part_capacity(training, request))
    return MethodResult(assignment, rows_of_graph(graph, request))


def _blocks(graph: Graph, request: PartitionRequest) -> np.ndarray:
    """Return the block of each vertex, int64[n], numbered without gaps."""
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


def _place(block_of: np.ndarray, links: np.ndarray, training: np.ndarray, caps: Caps) -> np.ndarray:
    """Place the blocks, in decreasing size, in the best part: int32[n].

    The rest of one that does not fit goes to the next best.

    A training vertex for which no part has capacity of both kinds goes where training vertices have capacity;
    post-processing repairs that.
    """
    members, bounds = members_by_block(block_of, len(links))
    assignment = np.full(len(block_of), -1, np.int32)
    sizes, trained = np.zeros((2, caps.parts), np.int64)
    unlimited = Caps(caps.parts, len(block_of), len(block_of))
    attraction = np.zeros((len(links), caps.parts))  # edges between each block and each part
    for block in np.argsort(-np.diff(bounds), kind="stable"):
        rest = members[bounds[block] : bounds[block + 1]]
        block_size = len(rest)
        sizes_before = sizes.copy()

        # The paper's score; equal scores: the smaller part.
        free = 1 - sizes / caps.size
        free_training = 1 - trained / max(1, caps.training)
        score = attraction[block] * free * free_training
        for part in np.lexsort((sizes, -score)):
            rest = _fill(rest, part, assignment, training, sizes, trained, caps)
            if not len(rest):
                break

        # No part has capacity of both kinds: the smallest part with capacity of the vertex's kind.
        for v in rest:
            full = trained >= caps.training if training[v] else sizes >= caps.size
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
    caps: Caps,
) -> np.ndarray:
    """Put into `part` those of `vertices` for which it has capacity; returns the others."""
    trains = training[vertices]
    # The first training vertices fit, then the first vertices of those: both caps hold.
    fits = np.where(trains, np.cumsum(trains) <= caps.training - trained[part], True)
    fits &= np.cumsum(fits) <= caps.size - sizes[part]
    assignment[vertices[fits]] = part
    sizes[part] += np.count_nonzero(fits)
    trained[part] += np.count_nonzero(trains & fits)
    return vertices[~fits]


@compiled
def grow_blocks(indptr, indices, starts, first_starts, largest):
    """Grow blocks of at most `largest` vertices; returns the block of each vertex, int32[n].

    Searches from the first `first_starts` of `starts` (a permutation) run in turn; then one search starts at each
    vertex that is not reached.
    """
    n = len(indptr) - 1
    block_of = np.full(n, -1, np.int32)
    size = np.zeros(n, np.int32)
    queue = np.empty(n, np.int64)
    blocks = 0
    head, tail = 0, 0  # of the queue
    # One queue for all searches: they advance in turn, so blocks grow alike.
    for s in range(n):
        if block_of[starts[s]] < 0:
            block_of[starts[s]] = blocks
            size[blocks] = 1
            queue[tail] = starts[s]
            blocks += 1
            tail += 1

        # No search begins before all of the first starts are in the queue.
        if s + 1 < first_starts:
            continue
        while head < tail:
            v = queue[head]
            head += 1
            block = block_of[v]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if block_of[u] < 0 and size[block] < largest:
                    block_of[u] = block
                    size[block] += 1
                    queue[tail] = u
                    tail += 1
    return block_of


@compiled
def merge_small(indptr, indices, block_of, members, bounds, order, small, largest):
    """Return the block into which each block is merged, int32[B].

    Blocks below `small` vertices join, smallest first (`order`), the neighbouring block with most edges to them, up to
    `largest` vertices. Those that find none are packed into common blocks. members: the vertices by block, those of
    block b at bounds[b]:bounds[b + 1].
    """
    blocks = len(bounds) - 1
    target = np.arange(blocks).astype(np.int32)
    size = np.diff(bounds)
    links = np.zeros(blocks, np.int64)
    pack = -1
    for b in order:
        if size[b] >= small or target[b] != b:
            continue

        # Count the edges to each neighbouring block; the second round sets the counts back to 0.
        best = -1
        for again in range(2):
            for i in range(bounds[b], bounds[b + 1]):
                v = members[i]
                for e in range(indptr[v], indptr[v + 1]):
                    other = _representative(target, block_of[indices[e]])
                    if again:
                        links[other] = 0
                    elif other != b and size[b] + size[other] <= largest:
                        links[other] += 1
                        if best < 0 or links[other] > links[best]:
                            best = other

        # No neighbour has capacity: pack it with others like it.
        if best < 0:
            pack = pack if pack < 0 or _representative(target, pack) == pack else -1
            if pack >= 0 and size[pack] + size[b] <= small:
                best = pack
            else:
                pack = b
        if best >= 0:
            target[b] = best
            size[best] += size[b]
            size[b] = 0

    # Blocks may have been merged into blocks that were merged later.
    for b in range(blocks):
        target[b] = _representative(target, b)
    return target


@compiled
def _representative(target, block):
    """Find the block at the end of the chain of merges (union-find with path halving)."""
    while target[block] != block:
        target[block] = target[target[block]]
        block = target[block]
    return block


def members_by_block(block_of: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort the vertices by block, int64[n]; also return the first place of each block, int64[blocks + 1]."""
    bounds = np.concatenate([[0], np.cumsum(np.bincount(block_of, minlength=blocks))])
    return np.argsort(block_of, kind="stable"), bounds


MEMBER = PartitionMethod(partition)
