"""Sampler `labor-i`: LABOR with rounds of importance, which favour sources shared by many destinations.

Balin and Catalyurek, "Layer-neighbor sampling - defusing neighborhood explosion in GNNs" (NeurIPS 2023), section 3.3.
Destination s keeps its in-neighbour t iff r_t < min(1, c_s pi_t), with r_t as in labor-0. c_s gives its mean the
variance of `fan-out` uniform draws: sum over t of 1 / min(1, c_s pi_t) = degree^2 / fan-out. All pi_t are 1 at first.
Each round multiplies pi_t by the largest c_s among the destinations of t in the whole batch's frontier. Weights are 1 /
chance: sums are unbiased. `row-normalise` divides by the sum of the weights, as the authors' code does: less variance,
but a bias of the order 1 / fan-out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.hop_sampler import ALL, normalise_rows
from leapmpi.sampling.layer_tables import FrontierSampler
from leapmpi.sampling.sampler import NAMED_LISTS, Drawn, Setup
from leapmpi.sampling.source_numbers import law_of, source_number
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled

_S11 = np.uint64(11)

MOST_ROUNDS, CLOSE = 100, 1 + 1e-6
"""Most iterations for a destination's c, and the largest accepted ratio of result to target."""


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for labor-i."""

    rounds: int = setting(1, "rounds of importance; 0 leaves all sources alike", least=0, below=101)
    row_normalise: bool = setting(True, "weights of a row add up to its degree")
    same_in_layers: bool = setting(False, "a source has one number for all hops of an iteration")
    kept_batches: int = setting(1, "consecutive batches for which a source keeps its number (kappa)", least=1)


@compiled
def _scale(neighbours, importance, target):
    """Return the c for which 1 / min(1, c x importance) adds up to `target` over `neighbours`, or slightly more."""
    total = 0.0
    for t in neighbours:
        total += 1.0 / importance[t]
    scale = total / target
    for _ in range(MOST_ROUNDS):
        total = 0.0
        for t in neighbours:
            total += 1.0 / min(1.0, scale * importance[t])
        if total <= target * CLOSE:
            break
        scale *= total / target
    return scale


@compiled
def _scales(first, end, vertices, fanout, topology_indptr, topology_indices, importance, scales):
    """Write the c of destinations first..end-1; 0 for those that take all in-neighbours."""
    for i in range(first, end):
        row = topology_indices[topology_indptr[vertices[i]] : topology_indptr[vertices[i] + 1]]
        if 0 <= fanout < len(row):
            scales[i] = _scale(row, importance, len(row) * (len(row) / fanout))


@compiled
def _find_largest(vertices, topology_indptr, topology_indices, scales, largest):
    """Raise `largest` float64[n] of each source to the largest scale among its destinations."""
    for i in range(len(vertices)):
        for e in range(topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]):
            t = topology_indices[e]
            largest[t] = max(largest[t], scales[i])


@compiled
def _multiply(vertices, topology_indptr, topology_indices, importance, largest):
    """Multiply the importance of each source by its entry in `largest`, and reset that to 0."""
    for i in range(len(vertices)):
        for e in range(topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]):
            t = topology_indices[e]
            if largest[t] > 0:
                importance[t] *= largest[t]
                largest[t] = 0


@compiled
def _keep(first, end, vertices, scales, law, importance, topology_indptr, topology_indices, names, indptr, out, weight):
    """Keep in-neighbours with a number below their chance, with weight 1 / chance; see HopSampler.count_and_write."""
    counting = len(out) == 0
    for i in range(first, end):
        taken = 0
        for e in range(topology_indptr[vertices[i]], topology_indptr[vertices[i] + 1]):
            t = topology_indices[e]
            chance = 1.0 if scales[i] == 0 else min(1.0, scales[i] * importance[t])
            if chance == 1 or np.float64(source_number(law, names[t]) >> _S11) * 2.0**-53 < chance:
                if not counting:
                    out[indptr[i] + taken], weight[indptr[i] + taken] = t, 1.0 / chance
                taken += 1
        if counting:
            indptr[i + 1] = taken


class LaborI(FrontierSampler):
    """Frontier-global sampler; a hop's table is the importance of all sources."""

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options.row_normalise)
        self.options = options
        self._largest = np.zeros(setup.topology.vertices)

    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        """Return the importance of each source at `hop`: float64[n]."""
        importance = np.ones(self.topology.vertices)
        for _ in range(self.options.rounds if self.fanouts[hop] != ALL else 0):
            scales, largest = self._scales(hop, vertices, importance), self._largest
            graph = self.topology.indptr, self.topology.indices
            _find_largest(vertices, *graph, scales, largest)
            if self.ranks is None:
                _multiply(vertices, *graph, importance, largest)
                continue

            # Destinations of the same sources may be on other ranks.
            choosing = vertices[self.topology.degree(vertices) > self.fanouts[hop]]
            sources = np.unique(self.topology.in_neighbours(choosing))
            found, theirs = self.ranks.gathered(sources, largest[sources])
            listed = found >= 0
            np.maximum.at(largest, found[listed], theirs[listed])
            touched = np.unique(found[listed])
            importance[touched] *= largest[touched]
            largest[touched] = 0
        return importance

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        """Draw each in-neighbour whose number is below its chance, weighted by one over that chance."""
        topology, importance = self.topology, self._tables[hop]
        scales = self._scales(hop, vertices, importance)
        law = law_of(key, hop, self.options.same_in_layers, self.options.kept_batches)
        graph = topology.indptr, topology.indices, topology.original_id
        drawn = self.count_and_write(_keep, degree, vertices, scales, law, importance, *graph)
        if self.row_normalise:
            normalise_rows(drawn.indptr, drawn.weight, degree)
        return drawn

    def _scales(self, hop: int, vertices: np.ndarray, importance: np.ndarray) -> np.ndarray:
        """Return the c of each of `vertices`: float64[k], 0 for those that take all in-neighbours."""
        scales, fanout = np.zeros(len(vertices)), self.fanouts[hop]
        graph = self.topology.indptr, self.topology.indices
        degree = self.topology.degree(vertices)
        self.share_work(degree, lambda first, end: _scales(first, end, vertices, fanout, *graph, importance, scales))
        return scales


MEMBER = SamplerMember(LaborI, Options, sharded=NAMED_LISTS)
