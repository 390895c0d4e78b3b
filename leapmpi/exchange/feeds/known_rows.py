"""The partial block of a layer whose owners send sums: own destinations, then those of other ranks."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.layer_graphs import LayerPlan
from leapmpi.exchange.named_edges import KnownEdges
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import Edges, EdgeWeights, PartialBlock, as_tensor_dtype
from leapmpi.sampling.block import Block
from leapmpi.sampling.sharded.sharded_sampler import ShardedSampler
from leapmpi.system.jit import compiled


@compiled
def _keep(indptr, rows, kept_indptr, kept):
    """Write the numbers of the edges that have a row, and where those of each destination end; return their count.

    kept: room for all edges and one more.
    """
    count = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            # Written always, counted if there is a row: a branch would be mispredicted half of the time.
            kept[count] = e
            count += rows[e] >= 0
        kept_indptr[i + 1] = count
    return count


def partial_block(ctx: RankContext, plan: LayerPlan) -> PartialBlock:
    """Make the block of own and foreign destinations over the matrix rows of `plan`, whose kind is partial."""
    assert plan.by_kind is not None, "the kind is not raw"
    assert plan.by_kind.foreign is not None, "the kind is partial"
    block, routes, foreign = plan.block, plan.by_kind, plan.by_kind.foreign

    # Own destinations come first: their shares stay here, those of the others are sent.
    known = KnownEdges.of(block).and_then(foreign.known)
    rows = np.concatenate((routes.source_rows[block.indices], foreign.rows))
    self_rows = np.concatenate((routes.source_rows[: block.n_dst], foreign.self_rows))
    return _cut(ctx, known, rows, self_rows, names_of(ctx, block, routes.vertices))


def received_block(ctx: RankContext, block: Block, rows: np.ndarray, vertices: np.ndarray) -> PartialBlock:
    """Make the block of the edges of `block` that received rows of `vertices` (int64[k]) serve.

    rows: int64[edges], the number of the row that serves an edge, -1 for others.
    """
    nobody = np.full(block.n_dst, -1, np.int64)
    return _cut(ctx, KnownEdges.of(block), rows, nobody, names_of(ctx, block, vertices))


def _cut(
    ctx: RankContext,
    known: KnownEdges,
    rows: np.ndarray,
    self_rows: np.ndarray,
    names: tuple[np.ndarray, np.ndarray, np.ndarray | None],
) -> PartialBlock:
    """Make the block of the edges of `known` whose source is a row; `rows` int64[edges] are numbers, -1 for others.

    self_rows: int64[n_dst], the row of each destination itself, or -1. names: those of all rows, as of `names_of`.
    """
    # Edges elsewhere are dropped, but counts and weight sums stay those of all: each rank scales its share alike.
    original, degree, weight_sum = names
    kept_indptr, kept = np.zeros(len(known.indptr), np.int64), np.empty(len(rows) + 1, np.int64)
    kept = kept[: _keep(known.indptr, rows, kept_indptr, kept)]
    local = np.flatnonzero(self_rows >= 0)

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(ctx.device)

    weights = None
    if known.edge_weight is not None and known.drawn_weight is not None and known.weight_sum is not None:
        assert weight_sum is not None, "weights are held with their sums"
        sums = known.drawn_weight, known.weight_sum, weight_sum
        weights = EdgeWeights(tensor(known.edge_weight[kept]), *map(tensor, sums))
    # Kernels of the CPU read 4 bytes an edge; torch's operations on other devices index by int64 alone.
    numbers = rows[kept].astype(np.int32 if on_host(ctx.device) else np.int64)
    return PartialBlock(
        edges=Edges(tensor(kept_indptr), tensor(numbers), len(original)),
        sampled=tensor(known.sampled),
        dst_degree=tensor(known.degree),
        src_original=tensor(original),
        src_degree=tensor(degree),
        local=(tensor(local), tensor(self_rows[local])),
        weight=None if known.weight is None else tensor(known.weight[kept]),
        weights=weights,
        relation=None if known.relation is None else tensor(as_tensor_dtype(known.relation[kept])),
        relation_sum=None if known.relation_sum is None else tensor(known.relation_sum[kept]),
        relation_count=None if known.relation_count is None else tensor(known.relation_count[kept]),
    )


def names_of(ctx: RankContext, block: Block, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Look up original ids, in-degrees and, where edges have weights, their sums of `vertices`: int64[k] each. Local.

    Where the topology is sharded, vertices are own ones or sources of `block`; those that it does not describe get
    zeros.
    """
    sampler = ctx.sampler
    if not isinstance(sampler, ShardedSampler):
        topology = sampler.topology
        sums = None if topology.weight_sum is None else topology.weight_sum[vertices]
        return topology.original_id[vertices], topology.degree(vertices), sums

    # A shard describes own vertices; of others only the block does.
    own, shard = sampler.shard.own, sampler.shard
    mine = (vertices >= shard.first) & (vertices < shard.end)
    numbers = shard.own_numbers(vertices[mine])
    order = np.argsort(block.src)
    places = order[np.searchsorted(block.src, vertices[~mine], sorter=order)]

    # Blocks may describe fewer vertices than they have sources, since some layers read no names.
    def joined(here: np.ndarray, of_sources: np.ndarray) -> np.ndarray:
        found = np.zeros(len(vertices), here.dtype)
        described = places < len(of_sources)
        found[mine] = here
        found[np.flatnonzero(~mine)[described]] = of_sources[places[described]]
        return found

    sums = None
    if own.weight_sum is not None and block.src_weight_sum is not None:
        sums = joined(own.weight_sum[numbers], block.src_weight_sum)
    return joined(own.original_id[numbers], block.src_original), joined(own.degree(numbers), block.src_degree), sums
