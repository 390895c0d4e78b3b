"""Sampler `with-replacement`: fan-out independent, equally likely draws from the in-neighbours of each destination.

As in the reference code of GraphSAGE and in NextDoor's k-hop sampling. A neighbour drawn twice is two edges, so the
mean over edges estimates the mean over in-neighbours without bias. Fan-out `all` takes every in-neighbour once.
"""

from __future__ import annotations

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.hop_sampler import ALL, HopSampler
from leapmpi.sampling.relation_lists import ALL_OF_LIST
from leapmpi.sampling.sampler import LISTS, Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled


@compiled
def _draw(first, end, hashed, vertices, original, degree, indptr, takes_all, topology_indptr, topology_indices, out):
    """Write the draws of destinations first..end-1, as global ids, to `out`."""
    for i in range(first, end):
        drawn = out[indptr[i] : indptr[i + 1]]
        base, in_order = fold(hashed, original[i]), takes_all[i]

        # Draw positions first: sorted positions mean ascending original ids.
        for j in range(len(drawn)):
            drawn[j] = j if in_order else np.int64(bounded(fold(base, j), degree[i]))
        drawn.sort()
        start = topology_indptr[vertices[i]]
        for j in range(len(drawn)):
            drawn[j] = topology_indices[start + drawn[j]]


class WithReplacement(HopSampler):
    """Local sampler. Destinations without in-neighbours draw none."""

    leaves_edges_out = True
    draws_from_copies = True

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        fanout, topology = self.fanout(hop), self.topology
        takes_all = np.full(len(degree), (fanout == ALL) | (fanout == ALL_OF_LIST))
        counts = np.where(takes_all, degree, np.where(degree > 0, fanout, 0))
        indptr, hashed = indptr_of(counts), np.uint64(fold(key_hash(key), hop))
        out = np.empty(indptr[-1], np.int64)
        arrays = vertices, original, degree, indptr, takes_all, topology.indptr, topology.indices
        self.share_work(counts, lambda first, end: _draw(first, end, hashed, *arrays, out))
        return Drawn(indptr, out)


def build(setup: Setup, options: None) -> WithReplacement:
    """Build the sampler. Raises ConfigError for an invalid fan-out."""
    return WithReplacement(setup)


MEMBER = SamplerMember(build, sharded=LISTS, typed=True)
