"""`with-replacement`: fan-out independent, equally likely draws from the in-neighbours of each destination.

As in the reference code of GraphSAGE and in NextDoor's k-hop sampling. A neighbour drawn twice is two edges, so the
mean over edges estimates the mean over in-neighbours without bias. Fan-out `all` takes every in-neighbour once.
"""

from __future__ import annotations

import numpy as np

from leapmpi.sampling.hop_sampler import HopSampler, indptr_of
from leapmpi.sampling.node_wise import ALL
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled


@compiled
def _draw(first, end, hashed, vertices, original, degree, indptr, takes_all, topology_indptr, topology_indices, out):
    """Write the draws of destinations first..end-1, as global ids, to their places in `out`."""
    for i in range(first, end):
        own = out[indptr[i] : indptr[i + 1]]
        base = fold(hashed, original[i])
        for j in range(len(own)):
            own[j] = j if takes_all else np.int64(bounded(fold(base, j), degree[i]))
        own.sort()
        start = topology_indptr[vertices[i]]
        for j in range(len(own)):
            own[j] = topology_indices[start + own[j]]


class WithReplacement(HopSampler):
    """Local. Destinations without in-neighbours draw none."""

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """As of every HopSampler."""
        fanout, topology = self.fanouts[hop], self.topology
        counts = degree if fanout == ALL else np.where(degree > 0, fanout, 0)
        indptr, hashed = indptr_of(counts), np.uint64(fold(key_hash(key), hop))
        out = np.empty(indptr[-1], np.int64)

        def work(first: int, end: int) -> None:
            arrays = vertices, original, degree, indptr, fanout == ALL, topology.indptr, topology.indices
            _draw(first, end, hashed, *arrays, out)

        self.shared_out(counts, work)
        return Drawn(indptr, out)


def build(setup: Setup, options: None) -> WithReplacement:
    """The sampler. Raises ConfigError for a fan-out that is none."""
    del options
    return WithReplacement(setup)
