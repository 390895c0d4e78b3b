"""Blocks: connected pieces of a graph of bounded size, grown by breadth-first search from many vertices at once.

Growing reads rows in the order of the search: a mapped graph larger than memory makes it slow.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.jit import compiled


@compiled
def grow_blocks(indptr, indices, starts, together, largest):
    """The block of each vertex, int32[n]: a search from the first `together` of `starts` (a permutation) at once, then
    from each of the others that is not reached. No block outgrows `largest` vertices."""
    n = len(indptr) - 1
    block_of = np.full(n, -1, np.int32)
    size = np.zeros(n, np.int32)
    queue = np.empty(n, np.int64)
    blocks, head, tail = 0, 0, 0
    for s in range(n):
        if block_of[starts[s]] < 0:
            block_of[starts[s]] = blocks
            size[blocks] = 1
            queue[tail] = starts[s]
            blocks += 1
            tail += 1
        if s + 1 < together:
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
    """The block into which each block goes, int32[B]: those below `small` vertices join, smallest first (`order`), the
    neighbouring block with most edges to them, up to `largest` vertices; the rest of them are packed together.

    members: the vertices by block, those of block b at bounds[b]:bounds[b + 1].
    """
    blocks = len(bounds) - 1
    into = np.arange(blocks).astype(np.int32)
    size = np.diff(bounds)
    links = np.zeros(blocks, np.int64)
    pack = -1
    for b in order:
        if size[b] >= small or into[b] != b:
            continue
        best = -1
        for again in range(2):
            for i in range(bounds[b], bounds[b + 1]):
                v = members[i]
                for e in range(indptr[v], indptr[v + 1]):
                    other = _found(into, block_of[indices[e]])
                    if again:
                        links[other] = 0
                    elif other != b and size[b] + size[other] <= largest:
                        links[other] += 1
                        if best < 0 or links[other] > links[best]:
                            best = other
        if best < 0:
            pack = pack if pack < 0 or _found(into, pack) == pack else -1
            if pack >= 0 and size[pack] + size[b] <= small:
                best = pack
            else:
                pack = b
        if best >= 0:
            into[b] = best
            size[best] += size[b]
            size[b] = 0
    for b in range(blocks):
        into[b] = _found(into, b)
    return into


@compiled
def _found(into, block):
    while into[block] != block:
        into[block] = into[into[block]]
        block = into[block]
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
