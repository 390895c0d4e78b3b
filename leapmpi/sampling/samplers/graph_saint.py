"""Sampler `graph-saint`: an iteration trains on the subgraph of some drawn vertices, edges or walks.

Zeng et al., "GraphSAINT: graph sampling based inductive learning method" (ICLR 2020), with both normalisations of
section 3.2. Edge weights make sums over in-neighbours unbiased, given that their destination is in the subgraph. Root
weights make a batch's loss an estimate of the mean loss. The weights follow from inclusion probabilities
(leapmpi/sampling/inclusion.py). These are computed for draws of vertices and edges, and estimated for walks from
subgraphs drawn in advance.

draws: `node` takes vertices with chances proportional to squared column norms (algorithm 2). `edge` takes edges with
chances proportional to 1 / degree(u) + 1 / degree(v) in undirected graphs, and to 1 / in-degree(v) in others. `walk`
takes walks along in-neighbours from uniform vertices. All draw with replacement. A vertex without in-neighbours counts
as its own in-neighbour in all three; otherwise no edge would hold it, and it would never be trained. `size` counts
drawn vertices: two for an edge, the number of steps plus one for a walk.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.column_norms import ByNorm
from leapmpi.sampling.inclusion import CountedInclusion, DrawInclusion, edge_chances
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.sampling.subgraph_sampler import SubgraphSampler
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled

_ADVANCE_EPOCH = 1 << 40
"""Epoch number of the subgraphs drawn in advance; no training has it."""


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for graph-saint."""

    draws: str = setting("walk", "unit of the draws of a subgraph", choices=("node", "edge", "walk"))
    size: int = setting(6000, "vertices drawn for a subgraph, repeats included", least=1)
    walk_length: int = setting(2, "steps of a walk", least=1, below=10_001)
    subgraphs: int = setting(0, "iterations of an epoch; 0: enough to draw each vertex once on average", least=0)
    coverage: int = setting(50, "mean number of draws of a vertex by walks in advance", least=1, below=1_000_001)


@compiled
def _drawn_walks(hashed, count, length, starts, topology_indptr, topology_indices):
    """Draw `count` walks of `length` steps that begin among `starts`: int64[count, length + 1].

    A walk without a next vertex stays.
    """
    out = np.empty((count, length + 1), np.int64)
    for i in range(count):
        word = fold(hashed, i)
        here = starts[np.int64(bounded(fold(word, 0), len(starts)))]
        out[i, 0] = here
        for step in range(length):
            degree = topology_indptr[here + 1] - topology_indptr[here]
            if degree > 0:
                here = topology_indices[topology_indptr[here] + np.int64(bounded(fold(word, step + 1), degree))]
            out[i, step + 1] = here
    return out


class GraphSaint(SubgraphSampler):
    """Iteration-global sampler that supplies roots and weights. With walks it holds 4 bytes per edge of the graph."""

    weighted = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        topology = setup.topology
        self.options = options
        self.per_epoch = options.subgraphs or -(-topology.vertices // options.size)
        # An edge is a walk of one step.
        self._length = 1 if options.draws == "edge" else options.walk_length
        self._walks = -(-options.size // (self._length + 1))
        self._train = setup.train
        self._starts = np.argsort(topology.original_id, kind="stable")
        self._importance = ByNorm(topology) if options.draws == "node" else None
        self.inclusion = self._inclusion(setup.seed)

    def _inclusion(self, seed: int) -> CountedInclusion | DrawInclusion:
        """Return the inclusion probabilities: computed for draws of vertices or edges, counted for walks."""
        topology, options = self.topology, self.options
        if self._importance:
            each = self._importance.norms / max(1, self._importance.total)
            return DrawInclusion(topology, each, options.size)
        if options.draws == "edge":
            return DrawInclusion(topology, edge_chances(topology), self._walks, 1 / max(1, topology.vertices))
        counted = CountedInclusion(topology)
        for i in range(-(-options.coverage * topology.vertices // options.size)):
            counted.count(self.subgraph(DrawKey(PRESAMPLE, seed, _ADVANCE_EPOCH, i)))
        return counted

    def subgraph(self, key: DrawKey) -> np.ndarray:
        """Return the vertices drawn for the iteration of `key`: int64, with repetitions."""
        options, hashed = self.options, np.uint64(key_hash(key))
        if self._importance:
            return self._importance.draw(hashed, options.size)
        graph = self.topology.indptr, self.topology.indices
        count = self._walks if len(self._starts) else 0
        return _drawn_walks(hashed, count, self._length, self._starts, *graph).reshape(-1)

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Return the in-neighbours in the subgraph, and their weights."""
        drawn = super().draw(key, hop, vertices, original, degree)
        assert drawn.weight is not None, "the sampler is weighted"
        self.inclusion.weigh(vertices, self._tables[hop], drawn.indptr, drawn.weight)
        return drawn

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> np.ndarray:
        """Return 1 / (chance that a subgraph holds the root) / (number of training vertices): float64[roots]."""
        return 1 / self.inclusion.chances(roots) / max(1, len(self._train))


MEMBER = SamplerMember(GraphSaint, Options)
