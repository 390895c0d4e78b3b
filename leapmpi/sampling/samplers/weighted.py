"""`weighted`: fan-out distinct in-neighbours, drawn with chances proportional to weights of the sources.

Systematic sampling with unequal chances (Madow, "On the theory of systematic sampling, II", Annals of Mathematical
Statistics 20, 1949): in-neighbours lie side by side on a line, each as long as its weight, and equally spaced points
with a random start pick those that they hit. Each is picked at most once, with a chance of exactly
min(1, fan-out x weight / sum); successive draws without replacement do not have these chances. Edge weights are
1 / chance: sums are unbiased.
`row-normalise` divides by the sum of the weights instead.

Datasets hold no weights of edges. They are computed from in-degrees, as whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.setting import setting
from leapmpi.sampling.hop_sampler import HopSampler, capped_indptr, normalise_rows
from leapmpi.sampling.sampler import Drawn, Setup
from leapmpi.system.counter_rng import DrawKey, bounded_wide, fold, key_hash
from leapmpi.system.jit import compiled

_UNIT = 1 << 20
_NO_WEIGHT = 0
"""Marks in-neighbours that are taken for certain."""


@dataclass(frozen=True)
class Options:
    weights: str = setting("inverse-degree", "weight of a source", choices=("inverse-degree", "degree", "uniform"))
    row_normalise: bool = setting(True, "weights of a row add up to its degree")


@compiled
def _take_certain(row, fanout, left):
    """Zero the entries of `left` (int64, the row's weights) whose chance would exceed 1.

    Returns how many picks remain, and the sum of the weights that remain.
    """
    total = 0
    for j in range(len(row)):
        total += left[j]

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
def _draw(
    first, end, hashed, vertices, original, topology_indptr, topology_indices, source_weight, indptr, out, weight
):
    """Write the picks of destinations first..end-1, and 1 / chance of each."""
    left = np.empty(0, np.int64)
    for i in range(first, end):
        row = topology_indices[topology_indptr[vertices[i]] : topology_indptr[vertices[i] + 1]]
        place, fanout = indptr[i], indptr[i + 1] - indptr[i]
        if len(left) < len(row):
            left = np.empty(2 * len(row), np.int64)
        for j in range(len(row)):
            left[j] = source_weight[row[j]]

        # Systematic sampling in whole numbers: points lie `total` apart on a line of length picks x total.
        picks, total = _take_certain(row, fanout, left)
        point = np.int64(bounded_wide(fold(hashed, original[i]), max(1, total)))
        for j in range(len(row)):
            if left[j] == _NO_WEIGHT:
                out[place], weight[place] = row[j], 1
                place += 1
            elif picks > 0:
                point += picks * left[j]
                if point >= total:
                    point -= total
                    out[place], weight[place] = row[j], total / (picks * left[j])
                    place += 1


class Weighted(HopSampler):
    """Local."""

    weighted = True
    leaves_edges_out = True

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        self.row_normalise = options.row_normalise
        degree = np.diff(setup.topology.indptr)
        rules = {
            "inverse-degree": lambda: np.maximum(1, _UNIT // np.maximum(1, degree)),
            "degree": lambda: np.maximum(1, degree),
            "uniform": lambda: np.ones_like(degree),
        }
        self._source_weight = rules[options.weights]()

    def draw(self, key: DrawKey, hop: int, vertices: np.ndarray, original: np.ndarray, degree: np.ndarray) -> Drawn:
        fanout, topology = self.fanouts[hop], self.topology
        indptr = capped_indptr(degree, fanout)
        out, weight = np.empty(indptr[-1], np.int64), np.empty(indptr[-1], np.float32)
        arrays = vertices, original, topology.indptr, topology.indices, self._source_weight, indptr, out, weight
        hashed = np.uint64(fold(key_hash(key), hop))
        self.share_work(degree, lambda first, end: _draw(first, end, hashed, *arrays))
        if self.row_normalise:
            normalise_rows(indptr, weight, degree)
        return Drawn(indptr, out, weight)


build = Weighted
