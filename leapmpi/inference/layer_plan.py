"""How one layer is computed over the graph: in which form its input rows cross ranks, and what a chunk takes.

raw         rows as they are stored, or as the layer before left them; linear layers sum them up, then multiply sums
projected   rows that their owner has multiplied by the layer's weights, once
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.inference.chunks import ChunkBytes
from leapmpi.nn.head import Head
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Layer, source_rows
from leapmpi.nn.rows import LEAST_WIDTH

RAW, PROJECTED = "raw", "projected"

SOURCE = 112
"""Bytes of numbers, ids, degrees and addresses of a source: in the sampler, the block and the request for its row."""

EDGE = 44
"""Bytes of the numbers and the weight of an edge: in the sampler, the block and the sums."""

NUMBERED_EDGE = 28
"""The same where rows are found by number: in the block and the sums alone."""

REQUESTED, ANSWERED = 24, 16
"""Bytes of the ids of a row that this rank requests, and of one that others request of it."""


@dataclass(frozen=True)
class LayerPlan:
    """What is decided of a layer, the same on all ranks."""

    layer: Layer
    form: str
    """RAW or PROJECTED."""
    width: int
    """Columns of what a row gives to its neighbours."""
    projects_first: bool
    """Whether rows are multiplied before they are combined."""
    in_place: bool
    """Whether rows are read where they lie, and none is copied for a chunk."""
    by_number: bool = False
    """Whether they are found there by the numbers of a rank's lists (addressed_rows.py). May differ by rank."""

    @property
    def multiplies_sources(self) -> bool:
        """Whether each chunk multiplies the rows of all of its sources."""
        return self.form == RAW and self.projects_first

    @property
    def travels(self) -> int:
        """Columns of a row as it crosses ranks."""
        return self.width if self.form == PROJECTED else self.layer.in_dim

    def chunk_bytes(self, ctx: RankContext, number: int, sent_row: int, head: Head | None) -> ChunkBytes:
        """What a chunk takes: `number` bytes are those of a float, `sent_row` those of a row as it travels.

        A `head` follows the last layer.
        """
        layer, heads = self.layer, self.layer.heads
        wide = max(self.width, layer.out_dim)
        # A copy of each row, and where layers are not linear their messages.
        copies = 0 if self.in_place else 3 if layer.linear else 6
        own = 0 if self.in_place and self.form == PROJECTED else 2
        numbers = (NUMBERED_EDGE, 0) if self.by_number else (EDGE, SOURCE)
        of_source = 0 if self.by_number else copies * max(self.width, self.travels) + 2 * heads
        of_head = 0 if head is None else 2 * head.width + 2 * len(head.bias)
        carried = 0
        if "edge_features" in layer.edge_data and ctx.edge_features is not None:
            carried = 2 * ctx.edge_features.shard.width + 4 * max(self.width, layer.in_dim)
        return ChunkBytes(
            destination=number * (own * layer.in_dim + 6 * wide + 3 * layer.rows.own_width + of_head),
            edge=numbers[0] + number * (6 * heads + carried),
            source=numbers[1] + number * of_source,
            remote=REQUESTED + sent_row,
            sent=ANSWERED + sent_row,
        )


def plan_of(ctx: RankContext, number: int, inputs: FeatureFetcher) -> LayerPlan:
    """The plan of layer `number` (0 is the first), whose input rows `inputs` holds: the form of fewest bytes a row.

    Of forms with as many, and in one process, that in which fewer rows are multiplied, or narrower ones combined.
    Collective: the mean length of sparse rows differs by rank.
    """
    layer = ctx.model.layers[number]
    stored = ctx.communicator.all_gather_rows(np.array([inputs.shard.row_bytes])).mean()
    if runs_whole(layer) or not layer.splits or not layer.projects:
        return LayerPlan(layer, RAW, layer.rows.source_width, True, False)

    # Where raw rows are combined first, sums are multiplied: one for each destination.
    width = _source_width(ctx, layer, inputs)
    narrows = not layer.linear or inputs.sparse or width < layer.in_dim
    sent = width * inputs.dtype.itemsize
    if narrows if ctx.ranks == 1 or stored == sent else sent < stored:
        single = on_host(inputs.device) and inputs.dtype == torch.float32 and width >= LEAST_WIDTH
        return LayerPlan(layer, PROJECTED, width, True, ctx.in_place and single and layer.linear)
    in_place = ctx.in_place and inputs.scatters and layer.norm is None and layer.linear
    return LayerPlan(layer, RAW, width, narrows, in_place)


def runs_whole(layer: Layer) -> bool:
    """Whether `layer` has a `forward` of its own, which is called as it is."""
    return type(layer).forward is not Layer.forward


def _source_width(ctx: RankContext, layer: Layer, inputs: FeatureFetcher) -> int:
    """The columns of what a row of `inputs` gives to its neighbours in `layer`. Local."""
    row = inputs.stand_in(1, inputs.shard.width)
    name = torch.zeros(1, dtype=torch.int64, device=ctx.device)
    with torch.no_grad():
        return source_rows(layer, layer.prefix(row.to(layer.bias.dtype), name, None)).shape[1]
