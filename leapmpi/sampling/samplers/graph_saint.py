"""`graph-saint`: an iteration trains on the subgraph that some drawn vertices, edges or walks span.

Zeng et al., "GraphSAINT: graph sampling based inductive learning method" (ICLR 2020), with both normalisations of
section 3.2, estimated before training from subgraphs drawn in advance: with C_v and C_uv the numbers of those that held
vertex v and edge u -> v, an edge weighs C_v / C_uv, so that sums over in-neighbours are unbiased given v, and the loss
of a root weighs N / C_v, N subgraphs in all, over the number of training vertices, so that a batch's loss estimates the
mean loss. A count of 0 is taken as 1.

draws: `node` takes vertices with chances proportional to squared column norms (algorithm 2); `edge` takes edges with
chances proportional to 1 / degree(u) + 1 / degree(v) in graphs whose edges go both ways, and to 1 / in-degree(v) in
others; `walk` takes walks along in-neighbours from uniform vertices. All with replacement. `size` counts vertices
drawn: an edge has two, a walk its length and one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.compiled import compiled
from leapmpi.sampling.column_norms import ByNorm
from leapmpi.sampling.keys import PRESAMPLE, DrawKey, bounded, fold, key_hash
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.sampling.subgraph_sampler import SubgraphSampler
from leapmpi.setting import setting

_APART = 1 << 40
"""Epoch of the subgraphs drawn in advance; no training has it."""


@dataclass(frozen=True)
class Options:
    """What `--sampler-option` sets."""

    draws: str = setting("walk", "what a subgraph is drawn by", choices=("node", "edge", "walk"))
    size: int = setting(6000, "vertices drawn for a subgraph, repeats included", least=1)
    walk_length: int = setting(2, "steps of a walk", least=1, below=10_001)
    subgraphs: int = setting(0, "iterations of an epoch; 0: as many as it takes to draw every vertex once", least=0)
    coverage: int = setting(50, "how often a vertex is drawn in advance, on average", least=1, below=1_000_001)


@compiled
def _walks(hashed, count, length, starts, topology_indptr, topology_indices):
    """The vertices of `count` walks of `length` steps from draws among `starts`: int64[count, length + 1].

    A walk that cannot go on stays where it is.
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


@compiled
def _add_counts(members, table, topology_indptr, topology_indices, vertex_count, edge_count):
    """Count the subgraph of `members` (int64, distinct), which `table` marks."""
    for v in members:
        vertex_count[v] += 1
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            edge_count[e] += table[topology_indices[e]] > 0


@compiled
def _weigh(vertices, table, topology_indptr, topology_indices, vertex_count, edge_count, indptr, weight):
    """Write C_v / C_uv of the edges from the subgraph to `vertices`."""
    for i in range(len(vertices)):
        v, place = vertices[i], indptr[i]
        for e in range(topology_indptr[v], topology_indptr[v + 1]):
            if table[topology_indices[e]] > 0:
                weight[place] = max(1, vertex_count[v]) / max(1, edge_count[e])
                place += 1


class GraphSaint(SubgraphSampler):
    """Iteration-global; supplies roots and weights. Holds 4 bytes per edge of the graph."""

    weighted = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        topology, self.options, self._train = setup.topology, options, setup.train
        order = np.argsort(topology.original_id, kind="stable")
        self._starts = order[topology.degree(order) > 0] if options.draws == "edge" else order
        self._importance = ByNorm(topology) if options.draws == "node" else None
        self.subgraphs = 0
        self.vertex_count = np.zeros(topology.vertices, np.int32)
        self.edge_count = np.zeros(topology.edges, np.int32)
        wanted = -(-options.coverage * topology.vertices // options.size)
        self.count(self.subgraph(DrawKey(PRESAMPLE, setup.seed, _APART, i)) for i in range(wanted))

    def count(self, subgraphs) -> None:
        """Add `subgraphs`, vertices int64 each, to the counts from which the normalisations follow."""
        for vertices in subgraphs:
            table, members = np.zeros(self.topology.vertices, np.int8), np.unique(vertices)
            table[members] = 1
            graph = self.topology.indptr, self.topology.indices
            _add_counts(members, table, *graph, self.vertex_count, self.edge_count)
            self.subgraphs += 1

    @property
    def per_epoch(self) -> int:
        """As asked for, or as many as draw the number of vertices."""
        return self.options.subgraphs or -(-self.topology.vertices // self.options.size)

    def subgraph(self, key: DrawKey) -> np.ndarray:
        """The vertices drawn for the iteration of `key`."""
        options, hashed = self.options, np.uint64(key_hash(key))
        if self._importance:
            return self._importance.draw(hashed, options.size)
        length = 1 if options.draws == "edge" else options.walk_length
        count = -(-options.size // (length + 1)) if len(self._starts) else 0
        graph = self.topology.indptr, self.topology.indices
        return _walks(hashed, count, length, self._starts, *graph).reshape(-1)

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """In-neighbours in the subgraph, and their weights."""
        drawn = super().draw(key, hop, vertices, original, degree)
        graph = self.topology.indptr, self.topology.indices
        counts = self.vertex_count, self.edge_count
        _weigh(vertices, self._tables[hop], *graph, *counts, drawn.indptr, drawn.weight)
        return drawn

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> np.ndarray:
        """One over the chance that a subgraph holds the root, over the number of training vertices: float64[roots]."""
        del key, batch_size
        return self.subgraphs / np.maximum(1, self.vertex_count[roots]) / max(1, len(self._train))


def build(setup: Setup, options: Options) -> GraphSaint:
    """The sampler, with subgraphs drawn in advance. Raises ConfigError for a fan-out that is none."""
    return GraphSaint(setup, options)
