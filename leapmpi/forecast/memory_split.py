"""One budget of memory for lists and feature rows: the split by which an iteration reads fewest bytes from files.

`--topology-memory` and `--feature-memory` hold what is read most, and the rest is read page by page. A byte of memory
spares more where pages are read more often. Sun et al., "Legion: automatically pushing the envelope of multi-GPU system
for billion-scale GNN training" (USENIX ATC 2023, section 4), split the memory of a GPU so, by counts of a dry run.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from leapmpi.config.schema import Config
from leapmpi.dataset.partitioned import Dataset
from leapmpi.dataset.topology import Topology
from leapmpi.features.expected_reads import included
from leapmpi.features.list_memory import list_reads, reads_by_block
from leapmpi.features.row_memory import room_of
from leapmpi.features.shards.mapped_shard import capacity, table_bytes
from leapmpi.plan.homes import rank_offsets
from leapmpi.session.topology_kind import SHARDED, list_room, root_chances

_SPLITS = 64
"""Equal steps between no memory for lists and no memory for rows."""


@dataclass(frozen=True)
class Split:
    """Bytes of memory for `lists` on a node and for `rows` on each rank; bytes that an iteration reads from files."""

    lists: int
    rows: int
    file_bytes: float


class FileReads:
    """Bytes that ranks of one node read from files in an iteration, by the memory for lists and for rows.

    block_bytes: those of a block of lists, list_bytes of all, row_bytes of a row. lists: float64[blocks + 1], bytes
    that so many blocks in memory spare; rows: the same for the rows of each rank.
    """

    def __init__(
        self, block_bytes: int, list_bytes: int, row_bytes: int, lists: np.ndarray, rows: Sequence[np.ndarray]
    ) -> None:
        self.ranks, self._block_bytes, self._list_bytes, self._row_bytes = len(rows), block_bytes, list_bytes, row_bytes
        self._lists, self._rows = lists, rows

    @classmethod
    def by_ranks(
        cls, config: Config, dataset: Dataset, topology: Topology, sizes: Sequence[int]
    ) -> dict[int, FileReads]:
        """Predict for each number of ranks in `sizes`, by the expected reads of the fan-outs of `config`.

        topology: whole; features of the dataset are dense.
        """
        fanouts, roots = config.sampling.fanout, root_chances(config, dataset, 0, dataset.vertices)
        of_lists = reads_by_block(topology, list_reads(topology, 0, roots, fanouts), fanouts[-1])
        lists = _running(of_lists.reads) * mmap.PAGESIZE * len(topology.list_arrays)

        # A rank reads a row once in an iteration, whoever needs it.
        row = dataset.part(0).dense_features
        row_bytes = row.shape[1] * row.itemsize
        chances = included(topology.indptr, topology.indices, roots.astype(np.float64), fanouts)
        of_row = mmap.PAGESIZE * (1 + (row_bytes - 1) / mmap.PAGESIZE)
        sides = of_lists.edges * of_lists.edge_bytes, topology.edges * of_lists.edge_bytes, row_bytes, lists
        found = {}
        for ranks in sizes:
            bounds = pairwise(rank_offsets(dataset.offsets, ranks).tolist())
            found[ranks] = cls(*sides, [_running(chances[first:end]) * of_row for first, end in bounds])
        return found

    @property
    def least_rows(self) -> int:
        """Bytes that rows need on a rank at least: the table of those in memory."""
        return table_bytes(max(len(each) - 1 for each in self._rows))

    def read(self, lists: int, rows: int) -> float:
        """Return the bytes that an iteration reads from files, with so many bytes for lists and for rows of a rank."""
        blocks = len(self._lists) - 1 if lists >= self._list_bytes else lists // self._block_bytes
        left = self._lists[-1] - self._lists[min(blocks, len(self._lists) - 1)]
        for each in self._rows:
            left += each[-1] - each[capacity(len(each) - 1, self._row_bytes, rows)]
        # Sums of the same reads in two orders differ by rounding.
        return float(np.round(left))

    def best(self, room: int) -> Split:
        """Return the split of `room` bytes of the node that reads least; of equal ones that with less for lists."""
        most = max(0, room - self.ranks * self.least_rows)
        found = []
        for lists in np.linspace(0, most, _SPLITS + 1).astype(np.int64).tolist():
            rows = (room - lists) // self.ranks
            found.append(Split(lists, rows, self.read(lists, rows)))
        return min(found, key=lambda each: each.file_bytes)


def given_memory(config: Config) -> tuple[int, int] | None:
    """Return the bytes that `config` gives to lists on a node, and to rows on a rank; None without limits of both."""
    lists, rows = list_room(config), room_of(config)
    return None if lists is None or rows is None or config.run.topology == SHARDED else (lists, rows)


def _running(reads: np.ndarray) -> np.ndarray:
    """Return the sums of the largest k of `reads`, for each k: float64[n + 1]."""
    return np.concatenate(([0.0], np.cumsum(-np.sort(-reads, kind="stable"))))
