"""Negatives `in-batch`: destinations of other edges of the batch, whose embeddings are computed anyway."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.negative_sampler import NegativeSampler
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled


@compiled
def _pick(words, low, high, destinations):
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        # Fall back to all destinations if the owner has none in the batch.
        first, end = (low[i], high[i]) if high[i] > low[i] else (0, len(destinations))
        out[i] = destinations[first + np.int64(bounded(words[i], np.uint64(end - first)))]
    return out


class InBatch(NegativeSampler):
    """Draws among the destinations of the batch by frequency, or only those with the source's owner."""

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        destinations = np.ascontiguousarray(edges[:, 1])
        if self.candidates.rank_offsets is not None:
            destinations = np.sort(destinations)
        first, end = self.candidates.homes(edges[rows, 0])
        if self.candidates.rank_offsets is None:
            low, high = np.zeros_like(rows), np.full_like(rows, len(edges))
        else:
            low, high = np.searchsorted(destinations, first), np.searchsorted(destinations, end)
        return _pick(words, low, high, destinations)


NEGATIVES = InBatch
