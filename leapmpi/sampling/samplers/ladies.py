"""Sampler `ladies`: each hop draws about `layer-size` in-neighbours of the batch's whole frontier, by importance.

Zou et al., "Layer-dependent importance sampling for training deep and large graph convolutional networks" (NeurIPS
2019), with Poisson draws. Each candidate u is kept independently with chance min(1, c p(u)). p(u) is proportional to
the squared norm of column u of P restricted to the frontier's rows, and c makes `layer-size` the expected number.
Weights are 1 / chance, so sums are unbiased (the paper's draws without replacement have no such weights).
`row-normalise`, as in the paper, divides by the sum of the weights. The variance is lower, but there is a bias of the
order 1 / (number of a destination's neighbours drawn).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.column_norms import column_norms
from leapmpi.sampling.layer_tables import FrontierSampler, layer_sizes
from leapmpi.sampling.sampler import NAMED_LISTS, Setup
from leapmpi.system.counter_rng import DrawKey, fold, key_hash
from leapmpi.system.jit import compiled

_ROUNDS, _CLOSE = 100, 1e-9
"""Most iterations, and largest relative error, of the expected number of vertices."""

_S11 = np.uint64(11)


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for ladies."""

    layer_size: tuple[int, ...] = setting((2048,), "expected vertices drawn per hop, one number or one per hop")
    row_normalise: bool = setting(True, "weights of a row add up to its degree")


@compiled
def chance_scale(importance, size):
    """Return the c for which min(1, c x importance) (float64[k], positive) adds up to `size` < k.

    Summed in the given order by one thread, so that all ranks get the same bits.
    """
    total = 0.0
    for value in importance:
        total += value
    scale = size / total
    # Chances above 1 are cut, and the others raised in proportion: the sum grows towards `size` from below.
    for _ in range(_ROUNDS):
        expected = 0.0
        for value in importance:
            expected += min(1.0, scale * value)
        if expected >= size * (1 - _CLOSE):
            break
        scale *= size / expected
    return scale


@compiled
def _keep(hashed, candidates, original, chance, table):
    """Write 1 / chance to the table for each candidate that is kept."""
    for k in range(len(candidates)):
        if candidates[k] < 0:  # on no list of this rank
            continue
        draw = np.float64(fold(hashed, original[k]) >> _S11) * 2.0**-53
        if draw < chance[k]:
            table[candidates[k]] = 1.0 / chance[k]


def _summed(candidates: np.ndarray, original: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return each candidate once, with its original id and the sum of its norms (int64[k] each)."""
    original, first, place = np.unique(original, return_index=True, return_inverse=True)
    sums = np.zeros(len(first), np.int64)
    np.add.at(sums, place, norms)
    return candidates[first], original, sums


class Ladies(FrontierSampler):
    """Frontier-global sampler."""

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options.row_normalise)
        self.options = options
        self.sizes = layer_sizes(options.layer_size, len(self.fanouts))

    def table(self, key: DrawKey, hop: int, vertices: np.ndarray) -> np.ndarray:
        topology, ranks = self.topology, self.ranks
        norms = column_norms(topology, vertices, rows=ranks.vertices if ranks else 0)
        table = np.zeros(topology.vertices)
        candidates = np.flatnonzero(norms)
        original, norms = topology.original_id[candidates], norms[candidates]
        if ranks:
            candidates, original, norms = _summed(*ranks.gathered(candidates, original, norms))

        # Sort by original id, so that sums do not depend on the partition.
        by_original = np.argsort(original)
        candidates, original, norms = candidates[by_original], original[by_original], norms[by_original]

        chance = np.ones(len(candidates))
        if self.sizes[hop] < len(candidates):
            importance = norms.astype(np.float64)
            chance = np.minimum(1.0, chance_scale(importance, self.sizes[hop]) * importance)
        _keep(np.uint64(fold(key_hash(key), hop)), candidates, original, chance, table)
        return table


MEMBER = SamplerMember(Ladies, Options, sharded=NAMED_LISTS)
