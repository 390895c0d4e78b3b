"""Negatives `uniform`: every vertex is equally likely."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.candidates import scaled
from leapmpi.sampling.negative_sampler import NegativeSampler, NegativesMember


class Uniform(NegativeSampler):
    """Draws among all vertices."""

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        return self.candidates.vertices_at(scaled(words, self.candidates.vertices))


MEMBER = NegativesMember(Uniform)
