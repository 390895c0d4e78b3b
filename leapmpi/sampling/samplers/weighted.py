"""Sampler `weighted`: fan-out distinct in-neighbours, drawn with chances proportional to weights of the sources.

Systematic sampling with unequal chances (Madow, "On the theory of systematic sampling, II", Annals of Mathematical
Statistics 20, 1949). In-neighbours are intervals on a line, each as long as its weight. Equally spaced points with a
random start pick the intervals that they hit. Each is picked at most once, with a chance of exactly min(1, fan-out x
weight / sum); successive draws without replacement do not have these chances. Edge weights are 1 / chance: sums are
unbiased. `row-normalise` divides by the sum of the weights instead.

Weights are whole numbers, computed from in-degrees or, with `weights=edge`, from the edge weights of the dataset. Those
of a row are relative to its largest, in steps of 2**-24. Edges of weight 0 are then never drawn. Drawn weights times 1
/ chance add up to those of the row, so that rows are not normalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.dataset.topology import Topology
from leapmpi.errors import ConfigError
from leapmpi.sampling.hop_sampler import HopSampler, capped_indptr, normalise_rows
from leapmpi.sampling.sampler import NAMED_LISTS, Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled

_UNIT = 1 << 20
_NO_WEIGHT, _NEVER = 0, -1
"""Marks of in-neighbours that are certain to be taken, and of those never drawn."""

STEPS, LEAST = 1 << 24, 1e-300
"""Resolution of edge weights relative to the largest of their row, and the least such maximum."""


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for weighted."""

    weights: str = setting(
        "inverse-degree",
        "weight of a source, or of the edge",
        choices=("inverse-degree", "degree", "uniform", "edge"),
    )
    row_normalise: bool = setting(True, "weights of a row add up to its degree")


@compiled
def _take_certain(row, fanout, left):
    """Zero the entries of `left` (int64, the row's weights) whose chance would exceed 1.

    Returns the number of remaining picks, and the sum of the remaining weights.
    """
    total = 0
    for j in range(len(row)):
        total += max(left[j], 0)

    # Each removal raises the chances of the others: repeat until no chance exceeds 1.
    while True:
        taken, lost = 0, 0
        for j in range(len(row)):
            if left[j] > 0 and fanout * left[j] >= total:
                taken += 1
                lost += left[j]
                left[j] = _NO_WEIGHT
        fanout -= taken
        total -= lost
        if taken == 0 or fanout == 0 or total == 0:
            return fanout, total


@compiled
def _pick(row, left, fanout, hashed, place, out, weight):
    """Write the picks from `row` by the weights `left`, which are changed, and 1 / chance of each, from `place` on."""
    # Systematic sampling in integers: points are `total` apart on a line of length picks x total.
    picks, total = _take_certain(row, fanout, left)
    point = np.int64(bounded(hashed, max(1, total)))
    for j in range(len(row)):
        if left[j] == _NO_WEIGHT:
            out[place], weight[place] = row[j], 1
            place += 1
        elif picks > 0 and left[j] > 0:
            point += picks * left[j]
            if point >= total:
                point -= total
                out[place], weight[place] = row[j], total / (picks * left[j])
                place += 1


@compiled
def _draw(
    first,
    end,
    hashed,
    vertices,
    original,
    degree,
    topology_indptr,
    topology_indices,
    source_weight,
    indptr,
    out,
    weight,
):
    """Write the picks of destinations first..end-1, and 1 / chance of each."""
    # One buffer for all destinations, doubled on demand: picks without replacement consume the weights in it.
    left = np.empty(0, np.int64)
    for i in range(first, end):
        start = topology_indptr[vertices[i]]
        row = topology_indices[start : start + degree[i]]
        place, fanout = indptr[i], indptr[i + 1] - indptr[i]
        if len(left) < len(row):
            left = np.empty(2 * len(row), np.int64)
        for j in range(len(row)):
            left[j] = source_weight[row[j]]

        _pick(row, left, fanout, fold(hashed, original[i]), place, out, weight)


@compiled
def _draw_by_edge(
    first, end, hashed, vertices, original, degree, topology_indptr, topology_indices, edge_weight, indptr, out, weight
):
    """Write the picks as `_draw` does, by the weights of the edges."""
    left = np.empty(0, np.int64)
    for i in range(first, end):
        start = topology_indptr[vertices[i]]
        row = topology_indices[start : start + degree[i]]
        if len(left) < len(row):
            left = np.empty(2 * len(row), np.int64)
        # Weights become whole steps of the list's largest: integers add up alike in any order and on any machine.
        largest = 0.0
        for j in range(len(row)):
            largest = max(largest, edge_weight[start + j])
        for j in range(len(row)):
            steps = np.int64(edge_weight[start + j] / max(largest, LEAST) * STEPS)
            left[j] = (steps if steps > 1 else 1) if edge_weight[start + j] > 0 else _NEVER
        _pick(row, left, indptr[i + 1] - indptr[i], fold(hashed, original[i]), indptr[i], out, weight)


@compiled
def _count_positive(begin, degree, edge_weight, counts):
    for i in range(len(counts)):
        for e in range(begin[i], begin[i] + degree[i]):
            counts[i] += edge_weight[e] > 0


class Weighted(HopSampler):
    """Local sampler."""

    weighted = True
    leaves_edges_out = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        self.by_edge = options.weights == "edge"
        self.row_normalise = options.row_normalise and not self.by_edge
        self._positive: np.ndarray | None = None
        self.source_weight: np.ndarray | None = None
        """int64[vertices]: weight of each vertex as a source; None if edge weights are used."""
        if self.by_edge:
            whole = setup.topology
            self._whole, self._positive = whole, self._of_edges(whole, whole.indptr[:-1], np.diff(whole.indptr))
            return
        # Whole numbers, so that draws need no floating-point arithmetic and have the same bits everywhere.
        degree = setup.topology.degrees
        rules = {
            "inverse-degree": lambda: np.maximum(1, _UNIT // np.maximum(1, degree)),
            "degree": lambda: np.maximum(1, degree),
            "uniform": lambda: np.ones_like(degree),
        }
        self.source_weight = rules[options.weights]()

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        fanout, topology = self.fanout(hop), self.topology
        kernel, given, most = _draw, self.source_weight, degree
        if self._positive is not None:
            kernel, given = _draw_by_edge, topology.edge_weight
            # The lists may be others than those of vertices (drawing_from).
            whole = topology is self._whole
            most = self._positive[vertices] if whole else self._of_edges(topology, topology.indptr[vertices], degree)
        indptr = capped_indptr(most, fanout)
        out, weight = np.empty(indptr[-1], np.int64), np.empty(indptr[-1], np.float32)
        arrays = vertices, original, degree, topology.indptr, topology.indices, given, indptr, out, weight
        hashed = np.uint64(fold(key_hash(key), hop))
        self.share_work(degree, lambda first, end: kernel(first, end, hashed, *arrays))
        if self.row_normalise:
            normalise_rows(indptr, weight, degree)
        return Drawn(indptr, out, weight)

    def _of_edges(self, topology: Topology, begin: np.ndarray, degree: np.ndarray) -> np.ndarray:
        """Return the number of edges with a weight above 0 of lists from `begin` on: int64[n]."""
        weight = topology.edge_weight
        if weight is None:
            why = "weights of edges are not read in a typed graph; choose other weights"
            if topology.types is None:
                why = (
                    "the dataset has no edge weights in use; import the graph "
                    "with weights, omit --edge-weights ignore, or choose other weights"
                )
            raise ConfigError(f"--sampler-option weights=edge: {why}")
        counts = np.zeros(len(degree), np.int64)
        _count_positive(begin, degree, weight, counts)
        return counts


MEMBER = SamplerMember(Weighted, Options, sharded=NAMED_LISTS, typed=True)
