"""WrappingSampler: base of samplers that make the draws of another one elsewhere, or add to its blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.sampling.sampler import Drawn, Sampler
from leapmpi.system.counter_rng import ORDER, DrawKey


class WrappingSampler(Sampler):
    """Whatever a sub-class leaves as it is, is that of `inner`."""

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner
        self.topology, self.fanouts, self.threads = inner.topology, inner.fanouts, inner.threads
        self.family, self.weighted, self.supplies_roots = inner.family, inner.weighted, inner.supplies_roots
        self.leaves_edges_out = inner.leaves_edges_out

    @property
    def drawing(self) -> Sampler:
        return self.inner.drawing

    def forget(self) -> None:
        self.inner.forget()

    def neighbours(self, key: DrawKey, hop: int, vertices: np.ndarray, batch: np.ndarray | None = None) -> Drawn:
        return self.inner.neighbours(key, hop, vertices, batch)

    def leave_out(self, key: DrawKey, edges: np.ndarray) -> None:
        self.inner.leave_out(key, edges)

    def iterations(self, train: np.ndarray, batch_size: int) -> int:
        return self.inner.iterations(train, batch_size)

    def batches(
        self, train: np.ndarray, seed: int, epoch: int, batch_size: int, stream: int = ORDER
    ) -> Sequence[np.ndarray]:
        return self.inner.batches(train, seed, epoch, batch_size, stream)

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> float | np.ndarray:
        return self.inner.root_weights(key, roots, batch_size)
