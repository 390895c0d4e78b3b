"""`degree`: vertices by in-degree to the power of 3/4, as words are drawn in word2vec (Mikolov et al., NeurIPS 2013).

Weights are whole numbers made by square roots, which every processor rounds alike, so that all draw the same.
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.edges.negative_sampler import Candidates, NegativeSampler
from leapmpi.system.counter_rng import bounded_wide
from leapmpi.system.jit import compiled

_UNIT = 1 << 10


@compiled
def _pick(words, low, high, total):
    """The position of the weight that each word hits, in [low, high); `total` int64[n + 1] are running sums."""
    out = np.empty(len(words), np.int64)
    for i in range(len(words)):
        first, last = total[low[i]], total[high[i]]
        span = last - first
        if span == 0:  # nobody there has an in-neighbour
            out[i] = low[i] + np.int64(bounded_wide(words[i], np.uint64(high[i] - low[i])))
            continue
        hit = first + np.int64(bounded_wide(words[i], np.uint64(span)))
        out[i] = np.searchsorted(total, hit, side="right") - 1
    return out


class ByDegree(NegativeSampler):
    """In-degrees are those of the training graph; a vertex without in-neighbours is never drawn."""

    def __init__(self, candidates: Candidates) -> None:
        super().__init__(candidates)
        self._order = candidates.order()
        degree = np.diff(candidates.topology.indptr).astype(np.float64)
        weights = (_UNIT * np.sqrt(degree * np.sqrt(degree))).astype(np.int64)
        ordered = weights if self._order is None else weights[self._order]
        self._total = np.concatenate([[0], np.cumsum(ordered)])

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        found = _pick(words, *self.candidates.homes(edges[rows, 0]), self._total)
        return found if self._order is None else self._order[found]


NEGATIVES = ByDegree
