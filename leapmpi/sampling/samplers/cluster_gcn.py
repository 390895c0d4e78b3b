"""Sampler `cluster-gcn`: an iteration trains on the subgraph of a few clusters, with all edges between them.

Chiang et al., "Cluster-GCN: an efficient algorithm for training deep and large graph convolutional networks" (KDD
2019), with stochastic multiple partitions (section 3.2): each epoch distributes all clusters over its iterations at
random. Means are over the in-neighbours inside the subgraph, as in the paper. They are biased, since neighbours outside
are ignored. Every training vertex is visited once per epoch and has the same weight in all batches. Clusters are
computed while loading, from the whole graph; they are not the parts of the dataset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.config.options import SamplerMember
from leapmpi.config.setting import setting
from leapmpi.errors import ConfigError
from leapmpi.sampling.clusters import clusters_of
from leapmpi.sampling.sampler import Setup
from leapmpi.sampling.subgraph_sampler import SubgraphSampler
from leapmpi.system.counter_rng import DrawKey, fold_all, key_hash


@dataclass(frozen=True)
class Options:
    """Settings of `--sampler-option` for cluster-gcn."""

    clusters: int = setting(100, "clusters of the graph", least=1)
    per_batch: int = setting(10, "clusters in an iteration", least=1)


class ClusterGCN(SubgraphSampler):
    """Iteration-global sampler that supplies the roots."""

    def __init__(self, setup: Setup, options: Options) -> None:
        super().__init__(setup)
        if not options.per_batch <= options.clusters <= setup.topology.vertices:
            raise ConfigError(
                f"sampling.options: clusters = {options.clusters} must be between per-batch ({options.per_batch}) and "
                f"the number of vertices ({setup.topology.vertices})"
            )
        self.options, self._train = options, setup.train
        self.per_epoch = -(-options.clusters // options.per_batch)  # iterations that use all clusters once
        self._cluster = clusters_of(setup.topology, options.clusters)

    def subgraph(self, key: DrawKey) -> np.ndarray:
        """Return the vertices of the iteration's clusters, int64, ascending."""
        # Shuffle the clusters once per epoch; each iteration takes a slice.
        numbers = np.arange(self.options.clusters)
        shuffled = np.argsort(fold_all(key_hash(key._replace(iteration=0)), numbers), kind="stable")
        first = key.iteration % self.per_epoch * self.options.per_batch
        chosen = np.zeros(self.options.clusters, bool)
        chosen[shuffled[first : first + self.options.per_batch]] = True
        return np.flatnonzero(chosen[self._cluster])

    def root_weights(self, key: DrawKey, roots: np.ndarray, batch_size: int) -> float:
        """Return one weight for all roots of an epoch: batch losses then average to the mean loss over all roots."""
        return self.per_epoch / max(1, len(self._train))


MEMBER = SamplerMember(ClusterGCN, Options)
