"""Micrographs (sampled subgraphs of single roots): expected cost before sampling, and locality."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from leapmpi.system.jit import compiled, unsigned
from leapmpi.system.worker_threads import in_order

if TYPE_CHECKING:
    from leapmpi.sampling.sampler import Sampler
    from leapmpi.system.counter_rng import DrawKey

_AT_ONCE = 1 << 15
"""Vertices that a thread takes at a time."""


@compiled
def _grow(indptr, indices, fanout, vertices, inner):
    """Return the work of each of `vertices` with one more hop: float64[k].

    inner: float64[n], the work of all vertices without this hop; [0] where it is 1. A destination and its drawn
    neighbours are destinations of the next hop; k drawn neighbours are k edges.
    """
    work = np.empty(len(vertices))
    for i in range(len(vertices)):
        first, end = indptr[vertices[i]], indptr[vertices[i] + 1]
        drawn = end - first
        own, total = 1.0, float(drawn)
        if len(inner):
            own, total = inner[vertices[i]], 0.0
            for e in range(first, end):
                total += inner[indices[e]]
        # All neighbours have the same chance, so the mean scales.
        if fanout >= 0 and drawn > fanout:
            total *= fanout / drawn
            drawn = fanout
        work[i] = own + drawn + total
    return work


class ExpectedWork:
    """Expected rows + edges of micrographs; rows shared by roots count for each. Exact in the mean over draws.

    indptr, indices: in-neighbours of all vertices; fanouts: from the root outward, -1 for all. The constructor passes
    over the graph once per hop but the first and the last. threads: how many share the vertices.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, fanouts: tuple[int, ...], threads: int = 1) -> None:
        self._graph, self._fanout, self._threads = (indptr, unsigned(indices)), fanouts[0], threads
        self._inner = np.empty(0)
        everyone = np.arange(len(indptr) - 1)
        for fanout in reversed(fanouts[1:]):
            self._inner = self._grown(fanout, everyone)

    def of(self, roots: np.ndarray) -> np.ndarray:
        """Return the work of each of `roots` (int64[k]): float64[k]."""
        return self._grown(self._fanout, roots)

    def _grown(self, fanout: int, vertices: np.ndarray) -> np.ndarray:
        if self._threads == 1 or len(vertices) <= _AT_ONCE:
            return _grow(*self._graph, fanout, vertices, self._inner)
        some = (vertices[start : start + _AT_ONCE] for start in range(0, len(vertices), _AT_ONCE))
        grown = in_order(lambda each: _grow(*self._graph, fanout, each, self._inner), some, self._threads)
        return np.concatenate(list(grown))


def locality(sampler: Sampler, key: DrawKey, roots: np.ndarray, homes_of: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return R_micro: the mean share of a micrograph's vertices with the home of its root (LeapGNN, section 3).

    roots: int64[k], each sampled alone; homes_of: from vertices int64[n] to their home ranks or parts, integers[n].
    """
    shares = []
    for root in roots:
        homes = homes_of(sampler.sample(key, np.array([root]))[-1].src)
        shares.append((homes == homes[0]).mean())
    return float(np.mean(shares))
