"""`uniform`: every vertex is equally likely."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.edges.candidates import scaled
from leapmpi.sampling.edges.negative_sampler import NegativeSampler


class Uniform(NegativeSampler):
    """Any vertex."""

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        return self.candidates.vertices_at(scaled(words, self.candidates.vertices))


NEGATIVES = Uniform
