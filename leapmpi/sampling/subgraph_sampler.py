"""Subgraph samplers: the training vertices of the iteration's subgraph are the batch.

A micrograph is the part of the subgraph reached by a root: each hop takes every in-neighbour in the subgraph. Of the
fan-outs only their number matters: the number of layers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from leapmpi.sampling.epoch_order import epoch_order
from leapmpi.sampling.layer_tables import TableSampler
from leapmpi.sampling.sampler import ITERATION_GLOBAL
from leapmpi.system.counter_rng import ORDER, TRAIN, DrawKey


class SubgraphBatches(Sequence):
    """Batches of an epoch, made on access: the training vertices of each subgraph, in shuffled order."""

    def __init__(self, sampler: SubgraphSampler, train: np.ndarray, key: DrawKey, count: int) -> None:
        self._sampler = sampler
        self._train = train
        self._key = key
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        key = self._key._replace(iteration=index % self._count)
        roots = self._train[self._sampler.members(key)[self._train] > 0]
        original = self._sampler.topology.original_id[roots]
        return epoch_order(roots, original, key.seed, key.epoch, key.stream)


class SubgraphSampler(TableSampler):
    """Base of samplers of subgraphs. A subgraph without training vertices is an empty batch."""

    family = ITERATION_GLOBAL
    weighted = False
    supplies_roots = True
    per_epoch: int
    """Number of subgraphs in an epoch."""

    @abstractmethod
    def subgraph(self, key: DrawKey) -> np.ndarray:
        """Return the vertices (int64, repeats allowed) of the subgraph of the iteration of `key`. Pure."""

    def members(self, key: DrawKey) -> np.ndarray:
        """Return float64[n]: 1 for the vertices of the subgraph of `key`, else 0; read only."""
        self.begin(key, np.empty(0, np.int64))
        return self._tables[0]

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        table = np.zeros(self.topology.vertices)
        table[self.subgraph(key)] = 1
        self._tables = [table] * len(self.fanouts)

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        return self.per_epoch

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> SubgraphBatches:
        key = DrawKey(TRAIN if stream == ORDER else stream, seed, epoch, 0)
        return SubgraphBatches(self, train, key, self.per_epoch)
