"""`in-batch`: destinations of other edges of the batch, whose embeddings are computed anyway."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.negative_sampler import NegativeSampler
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled


@compiled
def _pick(words, low, high, destinations):
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        # Where the batch has no destination there, any of its destinations.
        first, end = (low[i], high[i]) if high[i] > low[i] else (0, len(destinations))
        out[i] = destinations[first + np.int64(bounded(words[i], np.uint64(end - first)))]
    return out


class InBatch(NegativeSampler):
    """Any destination of the batch, as often as it stands there; at home, those at home with the edge's source."""

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
