"""One budget of memory for lists and feature rows: the split by which an iteration reads fewest bytes from files.

`--topology-memory` and `--feature-memory` hold what is read most, and the rest is read page by page. A byte of memory
spares more where pages are read more often. A page is taken to stay in the system's cache for an iteration, and no
longer. Sun et al., "Legion: automatically pushing the envelope of multi-GPU system for billion-scale GNN training"
(USENIX ATC 2023, section 4), split the memory of a GPU in this way, by counts of a dry run.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.features.expected_reads import Reads, included
from leapmpi.features.list_memory import blocks_of, reads_by_block
from leapmpi.features.shards.mapped_shard import capacity, table_bytes
from leapmpi.system.jit import compiled

Range = tuple[int, int]
"""First vertex of a rank, and the one after its last."""

_SURE = 1 - 1e-12
"""The largest chance, so that logarithms are finite."""

_SPLITS = 64
"""Equal steps between no memory for lists and no memory for rows."""


@dataclass(frozen=True)
class Split:
    """Bytes of memory for `lists` on a node and for `rows` on each rank; bytes that an iteration reads from files."""

    lists: int
    rows: int
    file_bytes: float


class ListFile(NamedTuple):
    """Lists in a file: bytes of a block, and of all; spared: float64[blocks + 1], those that so many blocks spare."""

    block_bytes: int
    list_bytes: int
    spared: np.ndarray

    def left(self, memory: int) -> float:
        """Return the bytes that an iteration reads with so many bytes of memory for blocks."""
        blocks = len(self.spared) - 1 if memory >= self.list_bytes else memory // self.block_bytes
        return float(self.spared[-1] - self.spared[min(blocks, len(self.spared) - 1)])


class Needs(NamedTuple):
    """Bytes that lists take on a node at most, and that rows take on a rank at least and at most."""

    lists: int
    least_rows: int
    rows: int


class FileReads:
    """Bytes that ranks of one node read from files in an iteration, by the memory for lists and for rows.

    files: one with the lists of the node, or one of each rank, which share the memory alike. row_bytes: bytes of a row.
    rows: for each rank float64[rows + 1], the bytes that so many rows in memory spare.
    """

    def __init__(self, files: Sequence[ListFile], row_bytes: int, rows: Sequence[np.ndarray]) -> None:
        self.ranks, self._files, self._row_bytes, self._rows = len(rows), files, row_bytes, rows

    @property
    def needs(self) -> Needs:
        """Needs of lists and rows."""
        most = max(len(each) - 1 for each in self._rows)
        lists = len(self._files) * max(each.list_bytes for each in self._files)
        return Needs(lists, table_bytes(most), table_bytes(most) + most * self._row_bytes)

    def read(self, lists: int, rows: int) -> float:
        """Return the bytes that an iteration reads from files, with so many bytes for lists and for rows of a rank."""
        left = sum(each.left(lists // len(self._files)) for each in self._files)
        for each in self._rows:
            left += each[-1] - each[capacity(len(each) - 1, self._row_bytes, rows)]
        # Sums of the same reads in two orders differ by rounding.
        return float(np.round(left))

    def best(self, room: int) -> Split:
        """Return the split of `room` bytes of the node that reads least; of equal ones that with less for lists."""
        sizes = split_sizes(room, self.ranks, self.needs)
        return least([Split(lists, rows, self.read(lists, rows)) for lists, rows in sizes])


def split_sizes(room: int, ranks: int, needs: Needs) -> list[tuple[int, int]]:
    """Return ways to split `room` bytes of a node of `ranks` ranks: bytes for lists, and for rows on each rank."""
    most = min(needs.lists, max(0, room - ranks * needs.least_rows))
    return [(lists, (room - lists) // ranks) for lists in np.linspace(0, most, _SPLITS + 1).astype(np.int64).tolist()]


def least(found: Sequence[Split]) -> Split:
    """Return the split that reads least from files; of equal ones the first."""
    return min(found, key=lambda each: each.file_bytes)


def with_rest_for_lists(split: Split, room: int, ranks: int, needs: Needs) -> Split:
    """Return `split` of `room` bytes of a node, where what rows leave is for lists: copies of those of other ranks."""
    rows = min(split.rows, needs.rows)
    return replace(split, lists=room - ranks * rows, rows=rows)


def file_reads(
    topology: Topology,
    roots: np.ndarray,
    fanouts: tuple[int, ...],
    row_bytes: int,
    nodes: Sequence[Sequence[Range]],
    share: float = 1.0,
) -> list[FileReads]:
    """Predict what an iteration reads on each of `nodes`, by expected reads of lists and of rows. Local.

    topology: whole. roots: float64[n], the chance of each vertex to be a root. fanouts: from the root outward, -1 for
    all. nodes: the vertices of their ranks. share: of the roots, those that a node draws for.
    """
    chances = included(topology.indptr, topology.indices, roots, fanouts)
    reads = included(topology.indptr, topology.indices, roots * share, fanouts[:-1])
    file = _list_file(topology, reads, fanouts[-1])
    # A rank reads a page once in an iteration, whoever needs its rows.
    rows = ([_spared_by_rows(chances[first:end], row_bytes) for first, end in ranks] for ranks in nodes)
    return [FileReads([file], row_bytes, each) for each in rows]


def reads_of_shard(own: Topology, reads: Reads, last_fanout: int, row_bytes: int) -> FileReads:
    """Predict what an iteration reads from the files of a rank with the lists `own` and rows of `row_bytes`. Local."""
    rows = _spared_by_rows(reads.rows, row_bytes)
    return FileReads([_list_file(own, reads.lists, last_fanout)], row_bytes, [rows])


def joined(ranks: Sequence[FileReads]) -> FileReads:
    """Return the reads of a node whose `ranks` have files of their own."""
    files, rows = [each._files[0] for each in ranks], [each._rows[0] for each in ranks]
    return FileReads(files, ranks[0]._row_bytes, rows)


@compiled
def _note_lists(indptr, reads, fanout, edges, missed):
    """Add to `missed` (float64[pages]) the logarithm of the chance that no list is read on a page of so many `edges`.

    reads: float64[n], the chance of each list to be read, which reads up to `fanout` of its pages.
    """
    for v in range(len(reads)):
        if indptr[v + 1] == indptr[v]:
            continue
        begin, end, chance = blocks_of(indptr, v, reads[v], fanout, edges)
        for page in range(begin, end + 1):
            missed[page] += np.log1p(-min(chance, _SURE))


@compiled
def _note_rows(order, chances, row_bytes, page_bytes, missed, spared):
    """Write for each row the pages (float64[n]) that it alone reads once all rows before it in `order` are in memory.

    chances: float64[n], of each row to be read. missed: float64[pages], of zeros.
    """
    for i in order[::-1]:
        factor = np.log1p(-min(chances[i], _SURE))
        for page in range(i * row_bytes // page_bytes, ((i + 1) * row_bytes - 1) // page_bytes + 1):
            before = np.exp(missed[page])
            missed[page] += factor
            spared[i] += before - np.exp(missed[page])


def _list_file(topology: Topology, reads: np.ndarray, fanout: int) -> ListFile:
    """Return the bytes that the k most read blocks of the lists of `topology` spare; reads as in `reads_by_block`."""
    blocks = reads_by_block(topology, reads, fanout)
    pages = np.zeros(len(blocks.reads))
    for array in topology.list_arrays.values():
        edges = mmap.PAGESIZE // array.itemsize
        missed = np.zeros(-(-topology.edges // edges))
        _note_lists(topology.indptr, reads, fanout, edges, missed)
        if len(missed):
            pages += np.add.reduceat(-np.expm1(missed), np.arange(0, len(missed), blocks.edges // edges))
    order = np.argsort(-blocks.reads, kind="stable")
    spared = _running(pages[order]) * mmap.PAGESIZE
    return ListFile(blocks.edges * blocks.edge_bytes, topology.list_bytes, spared)


def _spared_by_rows(chances: np.ndarray, row_bytes: int) -> np.ndarray:
    """Return the bytes that the k rows with the largest `chances` (float64[n]) spare in memory: float64[n + 1]."""
    order, spared = np.argsort(-chances, kind="stable"), np.zeros(len(chances))
    missed = np.zeros(-(-len(chances) * row_bytes // mmap.PAGESIZE))
    _note_rows(order, chances, row_bytes, mmap.PAGESIZE, missed, spared)
    return _running(spared[order]) * mmap.PAGESIZE


def _running(spared: np.ndarray) -> np.ndarray:
    """Return the sums of the first k of `spared`, for each k: float64[n + 1]."""
    return np.concatenate(([0.0], np.cumsum(spared)))
