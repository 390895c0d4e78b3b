"""Negatives `all`: every vertex, in a typed graph every vertex of the end's type.

With `--loss cross-entropy` this is 1vsAll training of knowledge graphs (Ruffinelli et al., "You CAN Teach an Old Dog
New Tricks!", ICLR 2020, section 2).
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.negative_sampler import NegativeSampler, NegativesMember
from leapmpi.system.counter_rng import DrawKey


class Every(NegativeSampler):
    """Draws nothing."""

    shared = takes_all = True

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        raise AssertionError("no vertex is drawn")

    def draw_shared(self, key: DrawKey, count: int) -> np.ndarray:
        return self.candidates.vertices_at(np.arange(self.candidates.vertices))


MEMBER = NegativesMember(Every)
