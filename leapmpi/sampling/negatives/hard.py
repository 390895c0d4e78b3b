"""Negatives `hard:FILE`: vertices that a file names for the end of an edge that stays.

Where the file names none for an end, every vertex is equally likely. Lists that are shorter than the number of
negatives repeat. In GraphStorm (Zheng et al., KDD 2024) such lists are a feature of each edge; here they belong to the
end and its relation, so that one line is enough for all its edges.
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.candidates import Candidates, HardLists
from leapmpi.sampling.negative_sampler import NegativesMember
from leapmpi.sampling.negatives.uniform import Uniform
from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled


@compiled
def _picked(words, ends, known, indptr, found, out):
    """Write to `out` int64[k] one of the vertices in the list of each of `ends`, or -1 without a list."""
    for i in range(len(words)):
        place = np.searchsorted(known, ends[i])
        if place == len(known) or known[place] != ends[i]:
            out[i] = -1
        else:
            count = np.uint64(indptr[place + 1] - indptr[place])
            out[i] = found[indptr[place] + np.int64(bounded(words[i], count))]


class Hard(Uniform):
    """Draws from `lists`, those of the relation and the end that `candidates` stand for."""

    reads_lists = True

    def __init__(self, candidates: Candidates, lists: HardLists | None = None) -> None:
        super().__init__(candidates)
        self._lists = None if lists is None else lists.of(candidates.relation, candidates.replaced)

    def pick(self, words: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
        """Draw from the list of each edge's end that stays, and uniformly where there is none."""
        found = np.full(len(words), -1, np.int64)
        if self._lists is not None:
            _picked(words, edges[rows, 0], *self._lists, found)
        if len(open_ := np.flatnonzero(found < 0)):
            found[open_] = super().pick(words[open_], rows[open_], edges)
        return found


MEMBER = NegativesMember(Hard)
