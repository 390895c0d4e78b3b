"""Sampler `fast-gcn`: each hop draws `layer-size` vertices of the whole graph by importance.

Chen, Ma and Xiao, "FastGCN: fast learning with graph convolutional networks via importance sampling" (ICLR 2018),
algorithm 1: independent draws with chance q(u), proportional to the squared column norm of P. Destinations keep their
drawn in-neighbours. A vertex drawn c times has the weight c / (layer-size q(u)), so weighted sums over in-neighbours
are unbiased. `row-normalise`, as in the reference code of LADIES, divides by the sum of the weights instead. The
variance is far lower, but there is a bias of the order 1 / (number of a destination's neighbours drawn).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.sampling.column_norms import ByNorm
from leapmpi.sampling.layer_tables import TableSampler, layer_sizes
from leapmpi.sampling.sampler import ITERATION_GLOBAL, Setup
from leapmpi.system.counter_rng import DrawKey, fold, key_hash


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for fast-gcn."""

    layer_size: tuple[int, ...] = setting((2048,), "vertices drawn per hop, one number or one per hop")
    row_normalise: bool = setting(True, "weights of a row add up to its degree")


class FastGCN(TableSampler):
    """Iteration-global sampler: the tables depend only on the key."""

    family = ITERATION_GLOBAL

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup, options.row_normalise)
        self.sizes = layer_sizes(options.layer_size, len(self.fanouts))
        self.importance = ByNorm(setup.topology)

    def make_tables(self, key: DrawKey, batch: np.ndarray) -> None:
        for hop, size in enumerate(self.sizes):
            self._tables[hop] = self._table(np.uint64(fold(key_hash(key), hop)), size)

    def _table(self, hashed: np.uint64, size: int) -> np.ndarray:
        drawn, importance = self.importance.draw(hashed, size), self.importance
        times = np.bincount(drawn, minlength=self.topology.vertices)
        return times * (importance.total / size) / np.maximum(1, importance.norms)


MEMBER = SamplerMember(FastGCN, Options)
