"""Negatives `degree`: vertices by in-degree to the power of 3/4, as in word2vec (Mikolov et al., NeurIPS 2013).

Weights are whole numbers from square roots, which all processors round alike, so that all ranks draw the same.
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.candidates import Candidates
from leapmpi.sampling.negative_sampler import NegativeSampler, NegativesMember

_UNIT = 1 << 10


def _weights(degrees: np.ndarray) -> np.ndarray:
    degree = degrees.astype(np.float64)
    return (_UNIT * np.sqrt(degree * np.sqrt(degree))).astype(np.int64)


class ByDegree(NegativeSampler):
    """Draws by in-degrees of the training graph; a vertex without in-neighbours is never drawn."""

    def __init__(self, candidates: Candidates) -> None:
        super().__init__(candidates)
        self._draw = candidates.by_degree(_weights)

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        return self._draw(words)


MEMBER = NegativesMember(ByDegree)
