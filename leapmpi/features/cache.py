"""Copies of remote rows, chosen once and kept: rows in the cache are not requested from other ranks again.

How many remote reads it will save is found by analysis where that applies, else counted in a dry run.
"""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.features.access import AccessPattern
from leapmpi.features.policies import presample, vip

_EPOCH = 2
"""First epoch of the dry run, on the random streams of dry runs. Epoch 0 chose the rows of `presample`, which would
look better there than they are; epoch 1 is that of `leapmpi plan`."""

_ITERATIONS = 16
"""Iterations of the dry run at most: part of an epoch, or several short ones."""


class RowCache:
    """The rows of `ids` (int64[k], distinct, none of them local), of a graph of `vertices` vertices.

    `rows`, which FeatureFetcher.fill sets, are of the stored type and in the memory where the shard is.
    """

    rows: np.ndarray | torch.Tensor | SparseFeatures

    def __init__(self, ids: np.ndarray, vertices: int) -> None:
        self.ids = np.sort(ids)
        self._slot = np.full(vertices, -1, np.int32)
        self._slot[self.ids] = np.arange(len(self.ids), dtype=np.int32)

    def slots(self, ids: np.ndarray) -> np.ndarray:
        """The slot of each of `ids` (int64[k]) in `rows`: int32[k], -1 for one that is not cached."""
        return self._slot[ids]

    def held_bytes(self, row_bytes: int) -> int:
        """Bytes of rows of `row_bytes` each, and of the lookup table."""
        return self._slot.nbytes + len(self.ids) * row_bytes


def predicted_hits(access: AccessPattern, ids: np.ndarray) -> tuple[float, float]:
    """How often this rank will read a vertex of `ids` (int64[k], remote), and any remote vertex.

    Both over one iteration where they are computed, or over the whole dry run: the same on every rank.
    """
    reads = expected_reads(access)
    reads[access.local] = 0
    return float(reads[ids].sum()), float(reads.sum())


def expected_reads(access: AccessPattern) -> np.ndarray:
    """How often this rank will read each vertex: float64[n], in units that all ranks share."""
    return vip.inclusion(access) if vip.applies_to(access) else _counted_reads(access)


def _counted_reads(access: AccessPattern) -> np.ndarray:
    """In how many iterations of the dry run this rank read each vertex: float64[n]."""
    epochs = max(1, _ITERATIONS // max(1, access.sampler.iterations(access.train, access.batch_size)))
    reads = np.zeros(access.topology.vertices)
    for epoch in range(_EPOCH, _EPOCH + epochs):
        reads += presample.read_counts(access, epoch, _ITERATIONS)
    return reads
