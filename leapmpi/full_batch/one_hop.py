"""A sampler of one hop that takes all in-neighbours, whichever rank holds their lists."""

from __future__ import annotations

from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.exchange.context import RankContext
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler


def one_hop(ctx: RankContext) -> Sampler:
    """Return a sampler of all in-neighbours, with the data of edges. Local; its draws are collective if sharded."""
    if isinstance(ctx.sampler, ShardedSampler):
        return ctx.sampler.for_scoring((ALL_NEIGHBOURS,), {}, 0).describing_all()
    sampler = NodeWiseSampler(ctx.sampler.topology, (ALL_NEIGHBOURS,), ctx.sampler.threads)
    return with_edge_data(sampler, ctx.edge_features is not None)
