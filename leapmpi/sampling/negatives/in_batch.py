"""Negatives `in-batch`: destinations of other edges of the batch, whose embeddings are computed anyway."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.candidates import scaled
from leapmpi.sampling.negative_sampler import NegativeSampler, NegativesMember


class InBatch(NegativeSampler):
    """Draws among the destinations of the batch by frequency."""

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        return edges[scaled(words, len(edges)), 1]


MEMBER = NegativesMember(InBatch)
