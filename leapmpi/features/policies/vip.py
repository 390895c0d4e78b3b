"""`vip`: the vertices most likely to be read in an iteration, by analysis (vertex-inclusion probability).

Kaler et al., "Communication-efficient graph neural networks with probabilistic neighborhood expansion analysis and
caching" (SALIENT++, MLSys 2023), with the law of this program: roots are a uniform share of the training
vertices, and each hop draws for everything found so far, not for what the last hop added alone. Of one destination the
hops are followed exactly; what different destinations draw is taken as independent.
"""

from __future__ import annotations

import numpy as np

from leapmpi.features.access import AccessPattern
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.jit import compiled


@compiled
def _spread(indptr, indices, included, fanout, drew, left_out):
    """One hop. Updates drew (float64[n]), each vertex's chance to have drawn a given neighbour by now, from that to be
    `included` (float64[n]); adds to left_out[v] the logarithm of the chance that no vertex has drawn v.

    A negative fan-out draws every neighbour.
    """
    for u in range(len(included)):
        degree = indptr[u + 1] - indptr[u]
        if included[u] <= 0 or degree == 0:
            continue
        share = 1.0 if fanout < 0 or fanout >= degree else fanout / degree
        drew[u] += (included[u] - drew[u]) * share
        missed = np.log1p(-drew[u]) if drew[u] < 1 else -np.inf
        for e in range(indptr[u], indptr[u + 1]):
            left_out[indices[e]] += missed


def holds(access: AccessPattern) -> bool:
    """Whether this rank reads rows by the law of `inclusion`: node-wise draws, and no root that moves."""
    return type(access.sampler) is NodeWiseSampler and not access.balances


def inclusion(access: AccessPattern) -> np.ndarray:
    """The chance that this rank reads each vertex in an iteration: float64[n]."""
    topology = access.topology
    roots = np.zeros(topology.vertices)
    chance = min(1.0, access.batch_size / max(1, len(access.train)))
    if access.roots_at_home:
        train = access.train
        roots[train[(train >= access.home.start) & (train < access.home.stop)]] = chance
    else:
        roots[access.train] = chance / (len(access.rank_offsets) - 1)
    return included(topology.indptr, topology.indices, roots, access.sampler.fanouts)


def included(indptr: np.ndarray, indices: np.ndarray, roots: np.ndarray, fanouts: tuple[int, ...]) -> np.ndarray:
    """The chance of each vertex to be in a sampled subgraph, float64[n], from that of each to be a root, float64[n].

    indptr, indices: in-neighbours of all vertices; fanouts: from the root outward, -1 for all.
    """
    chance, drew = roots, np.zeros(len(roots))
    for fanout in fanouts:
        left_out = np.log1p(-roots, where=roots < 1, out=np.full(len(roots), -np.inf))
        _spread(indptr, indices, chance, fanout, drew, left_out)
        chance = -np.expm1(left_out)
    return chance


POLICY = inclusion
