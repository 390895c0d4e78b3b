"""The in-neighbour lists of one rank's vertices, from a whole topology or from the rank's shard of it.

Lists name vertices by *numbers*. In a whole topology these are ids of the dataset. In a shard, own vertices count from
0, and sources of other ranks follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.shards.host_shard import HostShard
from leapmpi.nn.layer import Layer
from leapmpi.sampling.block import Block
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import TEST, DrawKey

_KEY = DrawKey(TEST, 0, 0, 0)
"""A key for draws that take all in-neighbours, whatever it is."""

_KIND = "topology"
"""The kind under which facts about vertices of other ranks are counted."""


@dataclass(frozen=True, eq=False)
class OwnLists:
    """The lists of the vertices with numbers `first` to `end` (exclusive), those of this rank."""

    topology: Topology
    first: int
    end: int
    bounds: np.ndarray
    """int64[ranks + 1]: of the numbers that are not own, bounds[r] to bounds[r + 1] (exclusive) belong to rank r."""
    shard: TopologyShard | None = None
    """The shard that numbers these vertices, where numbers are not ids of the dataset."""

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers of `ids` (int64[k]), vertices of this rank: int64[k]."""
        return ids if self.shard is None else self.shard.own_numbers(ids)

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Return the ids in the dataset of vertices with these numbers (int64[k]): int64[k]."""
        return numbers if self.shard is None else self.shard.ids_of(numbers)

    def in_degrees(self, first: int, end: int) -> np.ndarray:
        """Return the in-degrees in the graph of the own vertices numbered `first` to `end` (exclusive): int64[k]."""
        return np.diff(self.topology.indptr[first : end + 1])

    def degrees_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the in-degrees in the graph of `numbers` (int64[k]): int64[k], zeros for unnamed vertices."""
        topology, found = self.topology, np.zeros(len(numbers), np.int64)
        listed = numbers < len(topology.indptr) - 1
        found[listed] = topology.degree(numbers[listed])
        if topology.outside_degree is not None:
            found[~listed] = topology.outside_degree[numbers[~listed] - (len(topology.indptr) - 1)]
        return found

    def owner_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the owners of remote vertices with these numbers (int64[k]): int64[k]."""
        return np.searchsorted(self.bounds, numbers, side="right") - 1

    def sampler(self, ctx: RankContext) -> Sampler:
        """Make the sampler for `block`, which takes all in-neighbours."""
        types = self.topology.types
        of_relations = None if types is None else np.full((1, len(types.relations)), ALL)
        takes_all = NodeWiseSampler(self.topology, (ALL,), ctx.sampler.threads, of_relations)
        return with_edge_data(takes_all, ctx.edge_features is not None)

    def completed(self, block: Block) -> Block:
        """Add to `block`, whose sources are numbers, facts that its topology lacks. Local."""
        return block

    def block(self, sampler: Sampler, destinations: np.ndarray) -> Block:
        """Sample the block of `destinations` (int64[n], ids of own vertices), with the data of its edges. Local."""
        (block,) = sampler.sample(_KEY, self.numbers(destinations))
        block = self.completed(block)
        if self.shard is None:
            return block
        if block.edge_numbers is not None:
            block = replace(block, edge_numbers=block.edge_numbers + self.shard.first_edge)
        block = replace(block, src=self.ids(block.src))
        if not self.topology.unnamed:
            return block
        # Sources of other ranks are not described, and no layer reads their names.
        n_dst = block.n_dst
        return replace(block, src_original=block.src_original[:n_dst], src_degree=block.src_degree[:n_dst])


def serves_all(shard: TopologyShard, layers: Iterable[Layer]) -> bool:
    """Return whether `layers` can be computed from all in-neighbours, given this rank's `shard`."""
    return shard.outside is not None and not (shard.own.unnamed and any(each.traits.reads_names for each in layers))


def own_lists(ctx: RankContext, topology: Topology | TopologyShard) -> OwnLists:
    """Make this rank's lists. Collective where `topology` is a shard; its sources must be numbered."""
    if isinstance(topology, Topology):
        return OwnLists(topology, *ctx.local_range, ctx.rank_offsets)
    outside, own = topology.outside, topology.own
    assert outside is not None, "sources are numbered where all lists are read"
    count = topology.end - topology.first
    # Numbers of other ranks' vertices ascend by id, so that each rank has a range of them.
    bounds = count + np.searchsorted(outside, ctx.rank_offsets)
    if own.weight_sum is not None:
        own = replace(own, weight_sum=np.concatenate((own.weight_sum, _weight_sums(ctx, topology, outside))))
    return OwnLists(own, 0, count, bounds, topology)


def _weight_sums(ctx: RankContext, shard: TopologyShard, ids: np.ndarray) -> np.ndarray:
    """Fetch the sums of weights of in-edges of the vertices `ids` of other ranks: float64[k]. Collective."""
    sums = shard.own.weight_sum
    assert sums is not None, "the caller has seen that there are weights"
    rows = HostShard([sums], shard.first)
    device = torch.device("cpu")
    fetcher = FeatureFetcher(ctx.communicator, rows, ctx.rank_offsets, device, torch.float64, _KIND, ctx.phases)
    found = fetcher.fetch(ids.astype(np.int64))
    assert isinstance(found, torch.Tensor), "sums are stored dense"
    return found.numpy().reshape(-1)
