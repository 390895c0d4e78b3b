"""A sampler of one hop that takes all in-neighbours, whichever rank holds their lists."""

from __future__ import annotations

import numpy as np

from leapmpi.config.setting import ALL_NEIGHBOURS
from leapmpi.exchange.context import RankContext
from leapmpi.sampling.edge_lookup import with_edge_data
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.sampling.sampler import Sampler
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler


def one_hop(ctx: RankContext) -> Sampler:
    """Return a sampler of all in-neighbours, with the data of edges. Local; its draws are collective if sharded.

    In a typed graph it takes those of relations that any hop draws in training.
    """
    if isinstance(ctx.sampler, ShardedSampler):
        of_relations = _of_relations(ctx.sampler.inner)
        return ctx.sampler.for_scoring((ALL_NEIGHBOURS,), {}, 0, of_relations).describing_all()
    of_relations = _of_relations(ctx.sampler.drawing)
    sampler = NodeWiseSampler(ctx.sampler.topology, (ALL_NEIGHBOURS,), ctx.sampler.threads, of_relations)
    return with_edge_data(sampler, ctx.edge_features is not None)


def _of_relations(sampler: Sampler) -> np.ndarray | None:
    """Return the fan-outs of the relations of the training `sampler`, int64[1, R]; None for a plain graph."""
    if not isinstance(sampler, HopSampler) or sampler.relations is None:
        return None
    drawn = np.any([plan.fanout != 0 for plan in sampler.relations.hops], axis=0)
    return np.where(drawn, ALL_NEIGHBOURS, 0)[None]
