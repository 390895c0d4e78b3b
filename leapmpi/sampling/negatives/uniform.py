"""`uniform`: every vertex is equally likely."""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.edges.negative_sampler import Candidates, NegativeSampler
from leapmpi.system.counter_rng import bounded_wide
from leapmpi.system.jit import compiled


@compiled
def _pick(words, first, end):
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        out[i] = first[i] + np.int64(bounded_wide(words[i], np.uint64(end[i] - first[i])))
    return out


class Uniform(NegativeSampler):
    """Any vertex, or any at home with the edge's source."""

    def __init__(self, candidates: Candidates) -> None:
        super().__init__(candidates)
        self._order = candidates.order()

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        found = _pick(words, *self.candidates.homes(edges[rows, 0]))
        return found if self._order is None else self._order[found]


NEGATIVES = Uniform
