"""OwnLists: the lists of a rank's vertices, out of a whole topology or of the rank's shard of it.

Vertices go by *numbers* there, those in `topology.indices`: ids of the dataset in a whole topology, own vertices from 0
and sources of other ranks after them in a shard.
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
"""All in-neighbours are taken, whatever the key."""

_KIND = "topology"
"""The kind under which what others say of their vertices is counted."""


@dataclass(frozen=True, eq=False)
class OwnLists:
    """The lists of the vertices whose numbers are `first` to `end` (exclusive), those of this rank."""

    topology: Topology
    first: int
    end: int
    bounds: np.ndarray
    """int64[ranks + 1]: of the numbers that are not own, bounds[r] to bounds[r + 1] (exclusive) are rank r's."""
    shard: TopologyShard | None = None
    """Whose numbers these are, where they are not ids of the dataset."""

    def numbers(self, ids: np.ndarray) -> np.ndarray:
        """int64[k]: the numbers of `ids` (int64[k]), which are vertices of this rank."""
        return ids if self.shard is None else self.shard.own_numbers(ids)

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """int64[k]: the ids in the dataset of vertices with these numbers (int64[k])."""
        return numbers if self.shard is None else self.shard.ids_of(numbers)

    def in_degrees(self, first: int, end: int) -> np.ndarray:
        """int64[k]: in-degrees in the graph of the vertices with the numbers `first` to `end` (exclusive)."""
        return np.diff(self.topology.indptr[first : end + 1])

    def sampler(self, ctx: RankContext) -> Sampler:
        """What takes all in-neighbours, for `block`."""
        takes_all = NodeWiseSampler(self.topology, (ALL,), ctx.sampler.threads)
        return with_edge_data(takes_all, ctx.edge_features is not None)

    def completed(self, block: Block) -> Block:
        """`block`, whose sources go by numbers, with what its topology does not tell. Local."""
        return block

    def block(self, sampler: Sampler, destinations: np.ndarray) -> Block:
        """The block of `destinations` (int64[n], ids of this rank's vertices), with what edges carry. Local."""
        (block,) = sampler.sample(_KEY, self.numbers(destinations))
        block = self.completed(block)
        if self.shard is None:
            return block
        if block.edge_numbers is not None:
            block = replace(block, edge_numbers=block.edge_numbers + self.shard.first_edge)
        block = replace(block, src=self.ids(block.src))
        if not self.topology.unnamed:
            return block
        # Of sources elsewhere nothing is known, and no layer reads it.
        n_dst = block.n_dst
        return replace(block, src_original=block.src_original[:n_dst], src_degree=block.src_degree[:n_dst])


def serves_all(shard: TopologyShard, layers: Iterable[Layer]) -> bool:
    """Whether `layers` can be computed from all in-neighbours, given this rank's `shard`."""
    return shard.outside is not None and not (shard.own.unnamed and any(each.traits.reads_names for each in layers))


def own_lists(ctx: RankContext, topology: Topology | TopologyShard) -> OwnLists:
    """This rank's lists. Collective where `topology` is a shard, whose sources are numbered."""
    if isinstance(topology, Topology):
        return OwnLists(topology, *ctx.local_range, ctx.rank_offsets)
    outside, own = topology.outside, topology.own
    assert outside is not None, "sources are numbered where all lists are gone through"
    count = topology.end - topology.first
    bounds = count + np.searchsorted(outside, ctx.rank_offsets)
    if own.weight_sum is not None:
        own = replace(own, weight_sum=np.concatenate((own.weight_sum, _weight_sums(ctx, topology, outside))))
    return OwnLists(own, 0, count, bounds, topology)


def _weight_sums(ctx: RankContext, shard: TopologyShard, ids: np.ndarray) -> np.ndarray:
    """float64[k]: the sums of the weights of in-edges of the vertices `ids` of other ranks. Collective."""
    sums = shard.own.weight_sum
    assert sums is not None, "the caller has seen that there are weights"
    rows = HostShard([sums], shard.first)
    device = torch.device("cpu")
    fetcher = FeatureFetcher(ctx.communicator, rows, ctx.rank_offsets, device, torch.float64, _KIND, ctx.phases)
    found = fetcher.fetch(ids.astype(np.int64))
    assert isinstance(found, torch.Tensor), "sums are stored dense"
    return found.numpy().reshape(-1)
