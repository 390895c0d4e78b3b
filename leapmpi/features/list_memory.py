"""In-neighbour lists that stay in a file, the most read ones in memory (`--topology-memory`).

Draws read lists where the file is mapped, so they give the same bits. The file is cut into blocks of edges. Those with
the most expected reads are kept in memory, as many as have room; the system reads pages of the others, and may evict
them. How often a list is read is its vertex's chance to be a destination (expected_reads.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.system.jit import compiled
from leapmpi.system.page_advice import EVICTED, ONE_BY_ONE, advise, keep_in_memory

_MOST_BLOCKS = 16384
"""Blocks of a topology, at most: each may become a mapping of its own, and a process can have 65,530 of them."""

_LEAST_EDGES = 4096
"""Edges of a block, at least: whole pages of each array."""


@dataclass(frozen=True)
class HeldLists:
    """The outcome of `hold_most_read`: bytes in memory, and the share of expected reads that find their block there.

    refused: whether the system lets this process keep less than was chosen.
    """

    nbytes: int
    share: float
    refused: bool


def read_singly(topology: Topology) -> None:
    """Announce that lists of `topology` are read in no order, so that the system reads no pages around them."""
    for array in topology.list_arrays.values():
        advise(array, ONE_BY_ONE)


@compiled
def blocks_of(indptr, v, chance, fanout, edges):
    """Return the first and last block of so many `edges` with the list of `v`, not empty, and the reads of each.

    chance: that the list is read, by a draw that reads up to `fanout` of its blocks, all if negative.
    """
    begin, end = indptr[v] // edges, (indptr[v + 1] - 1) // edges
    count = end - begin + 1
    return begin, end, chance * (1.0 if fanout < 0 or fanout >= count else fanout / count)


@compiled
def _by_block(indptr, reads, fanout, edges, blocks):
    """Add the reads of each list to `blocks` (float64[k]) of so many `edges`; a draw reads up to `fanout` of them."""
    for v in range(len(reads)):
        if indptr[v + 1] == indptr[v]:
            continue
        begin, end, share = blocks_of(indptr, v, reads[v], fanout, edges)
        for block in range(begin, end + 1):
            blocks[block] += share


class BlockReads(NamedTuple):
    """Expected reads of blocks of `edges` edges, of `edge_bytes` bytes each: `reads` float64[blocks]."""

    edges: int
    edge_bytes: int
    reads: np.ndarray


def reads_by_block(topology: Topology, reads: np.ndarray, fanout: int) -> BlockReads:
    """Return how often an iteration reads each block of `topology`.

    reads: float64[n], the chance that each list is read (expected_reads.py); fanout: edges that a read draws, -1 for
    all.
    """
    edges = _LEAST_EDGES
    while edges * _MOST_BLOCKS < topology.edges:
        edges *= 2
    found = np.zeros(-(-topology.edges // edges))
    _by_block(topology.indptr, reads, fanout, edges, found)
    return BlockReads(edges, sum(array.itemsize for array in topology.list_arrays.values()), found)


def hold_most_read(topology: Topology, reads: np.ndarray, fanout: int, room: int) -> HeldLists:
    """Keep the blocks of `topology` with most expected reads in memory, in at most `room` bytes.

    reads and fanout are those of `reads_by_block`.
    """
    edges, edge_bytes, scores = reads_by_block(topology, reads, fanout)
    most = len(scores) if topology.list_bytes <= room else room // (edges * edge_bytes)
    best = np.argsort(-scores, kind="stable")[:most]
    chosen = np.sort(best[scores[best] > 0])
    begins, ends = _runs(chosen)
    wanted = kept = 0
    for array in topology.list_arrays.values():
        # The estimate has read all lists; a control group must have room for those that stay.
        advise(array, EVICTED)
        first = array.ctypes.data + begins * edges * array.itemsize
        sizes = np.minimum(ends * edges, topology.edges) * array.itemsize + array.ctypes.data - first
        wanted += int(sizes.sum())
        kept += keep_in_memory(first, sizes)
    total = float(scores.sum())
    held = float(scores[chosen].sum()) / total if total else 1.0
    return HeldLists(kept, held * kept / wanted if wanted else 0.0, kept < wanted)


def _runs(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of adjacent numbers in `blocks` (int64[k], ascending) begin, and where they end, exclusive."""
    breaks = np.flatnonzero(np.diff(blocks) > 1)
    begins = blocks[np.concatenate((np.zeros(min(1, len(blocks)), np.int64), breaks + 1))]
    ends = blocks[np.concatenate((breaks, np.full(min(1, len(blocks)), len(blocks) - 1)))] + 1
    return begins, ends
