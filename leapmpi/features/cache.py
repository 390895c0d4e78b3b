"""Copies of remote rows, chosen once and kept: rows in the cache are not requested from other ranks again."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.dataset.sparse_features import SparseFeatures
from leapmpi.features.access import AccessPattern
from leapmpi.features.expected_reads import expected_reads


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
