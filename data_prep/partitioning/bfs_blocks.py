"""Blocks: connected sets of vertices of bounded size, grown by breadth-first search from many vertices at once.

Growing reads rows in the order of the search: a mapped graph larger than memory makes it slow.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def grow_blocks(indptr, indices, starts, first_starts, largest):
    """The block of each vertex, int32[n]; no block has more than `largest` vertices.

    Searches from the first `first_starts` of `starts` (a permutation) run in turn; then one search starts at each
    vertex that is not reached.
    """
    n = len(indptr) - 1
    block_of = np.full(n, -1, np.int32)
    size = np.zeros(n, np.int32)
    queue = np.empty(n, np.int64)
    blocks = 0
    head, tail = 0, 0  # of the queue
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
    """The block into which each block is merged, int32[B].

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
    """The block at the end of the chain of merges (union-find with path halving)."""
    while target[block] != block:
        target[block] = target[target[block]]
        block = target[block]
    return block


@compiled
def add_links(first, indptr, indices, block_of, links):
    """Add to links float64[B, B] the edges between blocks in the rows of vertices first, first + 1, ..."""
    for row in range(len(indptr) - 1):
        block = block_of[first + row]
        for e in range(indptr[row], indptr[row + 1]):
            other = block_of[indices[e]]
            if other != block:
                links[block, other] += 1
                links[other, block] += 1


def members_by_block(block_of: np.ndarray, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """The vertices sorted by block, int64[n], and where those of each block begin, int64[blocks + 1]."""
    bounds = np.concatenate([[0], np.cumsum(np.bincount(block_of, minlength=blocks))])
    return np.argsort(block_of, kind="stable"), bounds
