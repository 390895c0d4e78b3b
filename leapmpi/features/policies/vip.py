"""`vip`: the vertices most likely to be read in an iteration, by analysis (vertex-inclusion probability).

Kaler et al., "Communication-efficient graph neural networks with probabilistic neighborhood expansion analysis and
caching" (SALIENT++, MLSys 2023), for the draws of this program: roots are a uniform share of the training vertices, and
each hop draws for all vertices found so far, not only for those that the last hop added. The hops of one destination
are exact; draws of different destinations are taken as independent.
"""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.jit import compiled


@compiled
def _spread(indptr, indices, included, fanout, drew, left_out):
    """One hop.

    included: float64[n], the chance of each vertex to be a destination of this hop. Updates drew (float64[n]), the
    chance of each vertex to have drawn a given neighbour up to this hop. Adds to left_out[v] (float64[n]) the logarithm
    of the chance that no vertex has drawn v. A negative fan-out draws every neighbour.
    """
    for u in range(len(included)):
        degree = indptr[u + 1] - indptr[u]
        if included[u] <= 0 or degree == 0:
            continue

        # A vertex that was no destination before draws a given neighbour with the chance fan-out / degree.
        share = 1.0 if fanout < 0 or fanout >= degree else fanout / degree
        drew[u] += (included[u] - drew[u]) * share
        missed = np.log1p(-drew[u]) if drew[u] < 1 else -np.inf
        for e in range(indptr[u], indptr[u + 1]):
            left_out[indices[e]] += missed


def applies_to(access: AccessPattern) -> bool:
    """Whether `inclusion` describes this rank's reads: node-wise sampling, and no root moves from its rank."""
    return type(access.sampler.drawing) is NodeWiseSampler and not access.balances


def inclusion(access: AccessPattern) -> np.ndarray:
    """The chance that this rank reads each vertex in an iteration: float64[n]."""
    topology = access.topology
    roots = np.zeros(topology.vertices)
    roots[access.train] = access.share * min(1.0, access.batch_size / max(1, len(access.train)))
    return included(topology.indptr, topology.indices, roots, access.sampler.fanouts)


def included(indptr: np.ndarray, indices: np.ndarray, roots: np.ndarray, fanouts: tuple[int, ...]) -> np.ndarray:
    """The chance of each vertex to be in a sampled subgraph: float64[n].

    indptr, indices: in-neighbours of all vertices; roots: float64[n], the chance of each vertex to be a root; fanouts:
    from the root outward, -1 for all.
    """
    chance = roots
    drew = np.zeros(len(roots))
    for fanout in fanouts:
        left_out = np.log1p(-roots, where=roots < 1, out=np.full(len(roots), -np.inf))
        _spread(indptr, indices, chance, fanout, drew, left_out)
        chance = -np.expm1(left_out)
    return chance


POLICY = inclusion
