"""One layer over all of its destinations, chunk by chunk: rows of sources are fetched, combined and finished."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.features.row_exchange import RowExchange
from leapmpi.inference.addressed_rows import AddressedRows
from leapmpi.inference.chunks import Chunks
from leapmpi.inference.layer_plan import PROJECTED, LayerPlan, runs_whole
from leapmpi.inference.own_lists import OwnLists
from leapmpi.nn.layer import Layer, source_rows
from leapmpi.nn.rows import Rows, dense
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.runs.progress_line import step
from leapmpi.sampling.block import Block
from leapmpi.sampling.sampler import Sampler

SLICE_BYTES = 4 << 20
"""Bytes of rows that are multiplied at a time."""

Round = Callable[[], AbstractContextManager]
"""Makes the context of each round, which all ranks enter together."""


class BlockSource:
    """Blocks of chunks, with all in-neighbours and what edges carry. The block of a single chunk is kept."""

    def __init__(self, ctx: RankContext, lists: OwnLists) -> None:
        self.ctx, self.lists = ctx, lists
        self._kept: tuple[np.ndarray, Block, BlockTensors] | None = None

    @cached_property
    def sampler(self) -> Sampler:
        """What takes all in-neighbours."""
        return self.lists.sampler(self.ctx)

    def of(self, destinations: np.ndarray, alone: bool) -> tuple[Block, BlockTensors]:
        """The block of `destinations` (int64), which are all of the layer if `alone`. Local."""
        if self._kept is not None and np.array_equal(self._kept[0], destinations):
            return self._kept[1:]
        self._kept = None
        with self.ctx.phases("sample"):
            block = self.lists.block(self.sampler, destinations)
        tensors = to_tensors(block, self.ctx.device)
        if alone:
            self._kept = destinations, block, tensors
        return block, tensors

    def with_edge_features(self, block: Block, tensors: BlockTensors) -> BlockTensors:
        """`tensors` with the features of its edges, all of which lie with their destinations. Local."""
        fetcher = self.ctx.edge_features
        assert fetcher is not None, "a layer that reads features of edges is given some"
        assert block.edge_numbers is not None, "the sampler numbers edges where a layer reads their features"
        rows = fetcher.local(block.edge_numbers)
        assert isinstance(rows, Tensor), "features of edges are stored dense"
        return replace(tensors, edge_features=rows)


def project_own_rows(
    ctx: RankContext, plan: LayerPlan, inputs: FeatureFetcher, ids: np.ndarray, out: np.ndarray
) -> None:
    """Write what the vertices `ids` (int64, of this rank) give to their neighbours to their rows of `out`. Local.

    out: float[vertices of this rank, width].
    """
    layer, first = plan.layer, ctx.local_range[0]
    step = max(1, SLICE_BYTES // (inputs.dtype.itemsize * (layer.in_dim + plan.width)))
    plain = layer.norm is None
    for begin in range(0, len(ids), step):
        chosen = ids[begin : begin + step]
        rows = inputs.local(chosen, scattered=ctx.in_place and plain)
        with ctx.phases("compute"):
            names = torch.zeros(len(chosen), dtype=torch.int64, device=ctx.device)
            z = source_rows(layer, layer.prefix(rows.to(layer.bias.dtype), names, None))
            # Rows of consecutive vertices are copied as one.
            whole = chosen[-1] - chosen[0] == len(chosen) - 1
            out[slice(chosen[0] - first, chosen[-1] + 1 - first) if whole else chosen - first] = z.cpu().numpy()


def run_layer(
    ctx: RankContext,
    plan: LayerPlan,
    blocks: BlockSource,
    inputs: FeatureFetcher,
    sources: FeatureFetcher,
    destinations: np.ndarray,
    chunks: Chunks,
    round: Round,
    write: Callable[[slice, BlockTensors, Tensor], None],
) -> None:
    """Compute the output rows of `destinations` (int64, of this rank) and hand them to `write`, by chunks. Collective.

    `inputs` holds the layer's input rows, `sources` what travels of them: the same, or projected rows. `write` gets
    where the chunk stands in `destinations`, its block, and float[n, out].
    """
    number = [*ctx.model.layers].index(plan.layer) + 1
    addressed = AddressedRows(ctx, blocks.lists, sources) if plan.by_number else None
    with step(f"layer {number} of {len(ctx.model.layers)}", chunks.rounds, "chunks") as shown:
        for place, chunk in enumerate(chunks):
            with round():
                chosen = destinations[chunk]
                if addressed:
                    remote = int(chunks.counts[place, 3]) if place < len(chunks.counts) else 0
                    found = _found_by_number(ctx, plan, addressed, inputs, chosen, remote)
                else:
                    found = _numbered_anew(ctx, plan, blocks, inputs, sources, chosen, chunks.rounds == 1)
                if found:
                    write(chunk, *found)
                # Buffers are lent to the next chunk only when nothing is left of this one.
                del found
            shown.advance(1)


def _numbered_anew(
    ctx: RankContext,
    plan: LayerPlan,
    blocks: BlockSource,
    inputs: FeatureFetcher,
    sources: FeatureFetcher,
    chosen: np.ndarray,
    alone: bool,
) -> tuple[BlockTensors, Tensor] | None:
    """The block of a chunk, the vertices `chosen`, and its output rows; None where there are none. Collective.

    alone: whether there is no other chunk.
    """
    block, tensors = blocks.of(chosen, alone)
    exchange = sources.prepare(block.src, scattered=plan.in_place)
    with ctx.phases("exchange"):
        exchange.begin()
        exchange.wait()
    return (tensors, _outputs(ctx, plan, blocks, inputs, (block, tensors), exchange)) if len(chosen) else None


def _found_by_number(
    ctx: RankContext,
    plan: LayerPlan,
    addressed: AddressedRows,
    inputs: FeatureFetcher,
    chosen: np.ndarray,
    count: int,
) -> tuple[BlockTensors, Tensor] | None:
    """As `_numbered_anew`, of rows that are found by number, `count` of them on other ranks. Collective."""
    with ctx.phases("sample"):
        remote = addressed.remote(chosen, count)
    exchange = addressed.fetcher.prepare(addressed.lists.ids(remote), scattered=True)
    with ctx.phases("exchange"):
        exchange.begin()
        exchange.wait()
    if not len(chosen):
        return None
    with ctx.phases("sample"):
        block = addressed.block(chosen)
    rows = addressed.rows(chosen, remote, exchange.unpack())
    with ctx.phases("compute"):
        if plan.form != PROJECTED:
            return block, from_rows(plan, block, rows)
        own = inputs.local(chosen, scattered=plan.layer.norm is None)
        return block, from_sources(plan.layer, block, own, rows)


def _outputs(
    ctx: RankContext,
    plan: LayerPlan,
    blocks: BlockSource,
    inputs: FeatureFetcher,
    block: tuple[Block, BlockTensors],
    exchange: RowExchange,
) -> Tensor:
    """The output rows of a chunk, float[n, out], the rows of whose sources have arrived. Local."""
    (of_sampler, tensors), layer = block, plan.layer
    rows = exchange.unpack().to(layer.bias.dtype)
    if "edge_features" in layer.edge_data and ctx.edge_features is not None:
        tensors = blocks.with_edge_features(of_sampler, tensors)
    with ctx.phases("compute"):
        if plan.form != PROJECTED:
            return from_rows(plan, tensors, rows)
        own = inputs.local(of_sampler.dst, scattered=ctx.in_place and layer.norm is None)
        return from_sources(layer, tensors, own.to(layer.bias.dtype), rows)


def from_sources(layer: Layer, block: BlockTensors, x_dst: Rows, z: Rows) -> Tensor:
    """The output float[n_dst, out] from the destinations' input rows and what all sources give to neighbours."""
    rows = layer.prefix(x_dst, block.dst_original, None)
    own, pair = layer.self_part(rows), layer.rows.pair
    if pair is not None:
        neighbours = pair.join(block, dense(z), pair.own(rows, None), None)
    else:
        neighbours = layer.aggregate(block, z, None)
    return layer.finish(own, neighbours, x_dst)


def from_rows(plan: LayerPlan, block: BlockTensors, x: Rows) -> Tensor:
    """The output float[n_dst, out] from the input rows of all sources; the order of sums and products is the plan's."""
    layer = plan.layer
    if runs_whole(layer):
        return layer(block, x)
    if plan.projects_first:
        z = source_rows(layer, layer.prefix(x, block.known_original, None))
        return from_sources(layer, block, x[: block.n_dst], z)
    rows = layer.prefix(x, block.known_original, None)
    neighbours = layer.project(layer.aggregate(block, rows, None))
    return layer.finish(layer.self_part(rows[: block.n_dst]), neighbours, x[: block.n_dst])
