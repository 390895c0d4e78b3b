"""Edges as roots with a sharded topology: each rank sorts the edges to its own vertices.

A rank sends its share of a batch to all others. The order of an epoch is that of ../training_edges.py: by a hash of the
original ids of the ends. A rank's edges of a batch follow from the batch's end among the hashes of all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.dataset.topology import Topology
from leapmpi.sampling.sharded.shared_order import ascending, own_counts, values_of
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.sampling.training_edges import BatchEdges, TrainingEdges
from leapmpi.system.counter_rng import ORDER

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

_PLAIN = 5
"""Numbers (int64) sent per edge: hash, source, destination, and the original ids of both.

Label and time follow, if they are read.
"""


class SharedBatches(Sequence):
    """This rank's shares of the batches of an epoch, made on access: int64[k, columns], by hash."""

    def __init__(self, shard: TopologyShard, order: np.ndarray, keys: np.ndarray, bounds: np.ndarray) -> None:
        """Take `order`: int64[n], positions of edges; `keys`: uint64[n], hashes; `bounds`: int64[batches + 1]."""
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
        if own.edge_time is not None:
            columns.append(ascending(own.edge_time[edges]).view(np.int64))
        return np.stack(columns, axis=1)


class SharedEdges(TrainingEdges):
    """All edges of a graph as roots; this rank holds those of `shard`, whose sources are named.

    An epoch's order takes 16 bytes for each root to a vertex of this rank.
    """

    def __init__(self, shard: TopologyShard, both_ways: bool, communicator: Communicator) -> None:
        """Count the roots of this rank; see TrainingEdges. Local."""
        super().__init__(shard.own, both_ways)
        self._shard, self._communicator = shard, communicator
        self._total = 0

    def count(self) -> int:
        """Count the roots of all ranks, for `len`. Collective."""
        self._total = int(self._communicator.all_gather_rows(np.array([self._count])).sum())
        return self._total

    def __len__(self) -> int:
        return self._total

    def batches(
        self, seed: int, epoch: int, batch_size: int, stream: int = ORDER, time: np.ndarray | None = None
    ) -> SharedBatches:
        """Return this rank's share of TrainingEdges.batches. Collective."""
        edges, keys = self._hashed(seed, epoch, stream)
        columns = [keys] if time is None else [ascending(time[edges]), keys]

        # Sort by time if required; equal times are in the order of hashes.
        order = np.lexsort(columns[::-1])
        edges, columns = edges[order], [each[order] for each in columns]
        ends = np.minimum(np.arange(1, 1 - (-len(self) // batch_size)) * batch_size, len(self))
        bounds = np.concatenate([[0], own_counts(columns, ends, self._communicator)])
        return SharedBatches(self._shard, edges, columns[-1], bounds)


def gathered(share: np.ndarray, counts: np.ndarray, topology: Topology, communicator: Communicator) -> BatchEdges:
    """Return the whole batch in its order, from the `share` (int64[k, columns]) of each rank. Collective.

    counts: int64[ranks], edges of each rank; topology: that of this rank, which defines the columns.
    """
    rows = communicator.all_gather_pieces(share, counts, "schedule")
    words, labels, times = rows.view(np.uint64), None, None
    order = np.argsort(words[:, 0], kind="stable")
    if topology.edge_time is not None:
        order = order[np.argsort(words[order, -1], kind="stable")]
        times = values_of(words[order, -1], topology.edge_time.dtype)
    if topology.edge_label is not None:
        labels = rows[order, _PLAIN]
    return BatchEdges(rows[order, 1:3], rows[order, 3:5], labels, times)
