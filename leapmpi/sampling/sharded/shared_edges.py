"""Edges as roots where the topology is sharded: each rank orders the edges to its own vertices, and names its share of
a batch to all others.

The order of an epoch is that of ../edges/training_edges.py: by a hash of the original ids of the ends. Which of a
rank's edges a batch holds follows from where the batch ends among the hashes of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.sampling.edges.training_edges import BatchEdges, TrainingEdges
from leapmpi.sampling.sharded.shared_order import own_counts
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import ORDER

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

_PLAIN = 5
"""Numbers (int64) of an edge as it is named: its hash, source, destination, and the original ids of both; then its
label, where labels are read."""


def edge_bytes(labels: bool) -> int:
    """Bytes of an edge as it is named to other ranks, with its label if `labels` are read."""
    return 8 * (_PLAIN + labels)


class SharedBatches(Sequence):
    """This rank's shares of the batches of an epoch, made when they are asked for: int64[k, columns], by hash."""

    def __init__(self, shard: TopologyShard, order: np.ndarray, keys: np.ndarray, bounds: np.ndarray) -> None:
        """order: int64[n], positions of edges; keys: uint64[n], ascending; bounds: int64[batches + 1] in them."""
        self._shard, self._order, self._keys, self._bounds = shard, order, keys, bounds

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, number):
        if not 0 <= number < len(self):
            raise IndexError(number)
        chosen = slice(*self._bounds[number : number + 2].tolist())
        own, edges = self._shard.own, self._order[chosen]
        sources = own.indices[edges].astype(np.int64)
        destinations = np.searchsorted(own.indptr, edges, side="right") - 1
        ids = self._shard.ids_of(sources), destinations + self._shard.first
        columns = [self._keys[chosen].view(np.int64), *ids, own.original_id[sources], own.original_id[destinations]]
        if own.edge_label is not None:
            columns.append(own.edge_label[edges].astype(np.int64))
        return np.stack(columns, axis=1)


class SharedEdges(TrainingEdges):
    """All edges of a graph as roots, where this rank holds those of `shard`, whose sources are named.

    An epoch's order takes 16 bytes for each root to a vertex of this rank.
    """

    def __init__(self, shard: TopologyShard, both_ways: bool, communicator: Communicator) -> None:
        """See TrainingEdges. Local."""
        super().__init__(shard.own, both_ways)
        self._shard, self._communicator = shard, communicator
        self._everywhere = 0

    def count(self) -> int:
        """Count the roots of all ranks, for `len`. Collective."""
        self._everywhere = int(self._communicator.all_gather_rows(np.array([self._count])).sum())
        return self._everywhere

    def __len__(self) -> int:
        return self._everywhere

    def batches(
        self, seed: int, epoch: int, batch_size: int, stream: int = ORDER, time: np.ndarray | None = None
    ) -> SharedBatches:
        """This rank's share of what TrainingEdges.batches gives. Collective."""
        assert time is None, "samplers that read times are refused"
        order, keys = self._ordered(seed, epoch, stream)
        ends = np.minimum(np.arange(1, 1 - (-len(self) // batch_size)) * batch_size, len(self))
        bounds = np.concatenate([[0], own_counts(keys, ends, self._communicator)])
        return SharedBatches(self._shard, order, keys, bounds)


def gathered(share: np.ndarray, counts: np.ndarray, communicator: Communicator) -> BatchEdges:
    """The whole batch in its order, from the `share` (int64[k, columns]) of each rank. Collective.

    counts: int64[ranks], the edges of each.
    """
    rows = communicator.all_gather_pieces(share, counts, "schedule")
    rows = rows[np.argsort(rows[:, 0].view(np.uint64), kind="stable")]
    labels = rows[:, _PLAIN].copy() if rows.shape[1] > _PLAIN else None
    return BatchEdges(rows[:, 1:3].copy(), rows[:, 3:5].copy(), labels)
