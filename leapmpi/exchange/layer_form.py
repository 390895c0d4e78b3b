"""The form in which a layer's values cross ranks, where its routes are fixed and all in-neighbours are read.

raw         rows as stored, or as the layer below left them; linear layers sum them, then multiply the sums
projected   rows that their owner has multiplied by the layer's weights, once

Owners may also send shares of either: sums of values for a destination.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Layer, source_rows
from leapmpi.nn.rows import LEAST_WIDTH, Rows, dense
from leapmpi.nn.share_forms import SUM
from leapmpi.nn.tensors import BlockTensors

RAW, PROJECTED = "raw", "projected"

AT_ONCE_BYTES = 4 << 20
"""Bytes of rows that are multiplied at a time."""

_MOST_NUMBERS = 2**31 - 1
"""The most numbers that a block can hold."""


@dataclass(frozen=True)
class LayerForm:
    """Decisions about one layer, the same on all ranks but for `by_number`."""

    layer: Layer
    form: str
    """RAW or PROJECTED."""
    width: int
    """Columns of a row's contribution to its neighbours."""
    projects_first: bool
    """Whether rows are multiplied before they are combined."""
    in_place: bool
    """Whether rows are read in place, so that a chunk copies none."""
    by_number: bool = False
    """Whether rows are found by the numbers of a rank's lists (feeds/addressed_rows.py). Ranks may differ in it."""
    shares: bool = False
    """Whether owners send shares too, where fewer shares than rows are needed."""

    @property
    def multiplies_sources(self) -> bool:
        """Whether each chunk multiplies the rows of all of its sources."""
        return self.form == RAW and self.projects_first

    @property
    def travels(self) -> int:
        """Columns of a row or share as it crosses ranks."""
        return self.width if self.form == PROJECTED else self.layer.in_dim


def form_of(ctx: RankContext, number: int, inputs: FeatureFetcher) -> LayerForm:
    """Choose the form with the fewest bytes a row for layer `number` (from 0), whose input rows `inputs` holds.

    Among forms with equal bytes, and in one process, the one that multiplies fewer rows or combines narrower ones wins.
    Collective: the mean length of sparse rows differs by rank.
    """
    layer = ctx.model.layers[number]
    stored = ctx.communicator.all_gather_rows(np.array([inputs.shard.row_bytes])).mean()
    if runs_whole(layer) or not layer.splits or not layer.projects:
        return LayerForm(layer, RAW, layer.rows.source_width, True, False)

    # Summing first multiplies one row per destination; multiplying first narrows the rows that are summed.
    width = _source_width(ctx, layer, inputs)
    narrows = not layer.linear or inputs.sparse or width < layer.in_dim
    sent = width * inputs.dtype.itemsize
    if narrows if ctx.ranks == 1 or stored == sent else sent < stored:
        single = on_host(inputs.device) and inputs.dtype == torch.float32 and width >= LEAST_WIDTH
        return LayerForm(layer, PROJECTED, width, True, ctx.in_place and single and layer.linear)
    in_place = ctx.in_place and inputs.scatters and layer.norm is None and layer.linear
    return LayerForm(layer, RAW, width, narrows, in_place)


def reads_by_number(form: LayerForm, lists: OwnLists, destinations: np.ndarray) -> bool:
    """Return whether a layer finds its rows by number, for `destinations` (int64 ascending, of this rank). Local.

    The rows are in memory in single precision, destinations have consecutive ids, and sources give nothing but rows.
    """
    consecutive = len(destinations) > 0 and destinations[-1] - destinations[0] == len(destinations) - 1
    plain = form.in_place and not form.multiplies_sources and not form.layer.traits.reads_names
    return bool(consecutive and plain and not _carries(form.layer, lists) and lists.topology.numbered < _MOST_NUMBERS)


def offers_shares(form: LayerForm, lists: OwnLists, values: FeatureFetcher) -> bool:
    """Return whether owners may send shares of a layer's `values`, which each holds of its vertices. Local.

    The layer sums values by weights that lists alone decide, and own values are read in place.
    """
    layer = form.layer
    shares = layer.shares
    if runs_whole(layer) or shares is None or shares.layout is not SUM or shares.raw_share is None or not layer.linear:
        return False
    # A learned factor of the destination's own row belongs to neither the sum nor the self part.
    owns = layer.sums.holds_own or type(layer).self_part is not Layer.self_part
    summed = form.form == PROJECTED or (layer.norm is None and not form.multiplies_sources)
    named = not (lists.topology.unnamed and layer.traits.reads_names)
    whole = (
        on_host(values.device)
        and values.whole is not None
        and values.dtype == layer.dtype
        and lists.topology.numbered < _MOST_NUMBERS
    )
    return owns and summed and named and whole and layer.rows.pair is None and not _carries(layer, lists)


def runs_whole(layer: Layer) -> bool:
    """Return whether `layer` has a `forward` of its own, which is called as it is."""
    return type(layer).forward is not Layer.forward


def _carries(layer: Layer, lists: OwnLists) -> bool:
    """Return whether edges carry data that `layer` may read."""
    return lists.topology.edge_weight is not None or "edge_features" in layer.edge_data


def _source_width(ctx: RankContext, layer: Layer, inputs: FeatureFetcher) -> int:
    """Return the columns of a row's contribution to its neighbours in `layer`, for rows of `inputs`. Local."""
    row = inputs.dummy_rows(1, inputs.shard.width)
    name = torch.zeros(1, dtype=torch.int64, device=ctx.device)
    with torch.no_grad():
        return source_rows(layer, layer.prefix(row.to(layer.dtype), name, None)).shape[1]


def project_own_rows(
    ctx: RankContext, form: LayerForm, inputs: FeatureFetcher, ids: np.ndarray, out: np.ndarray
) -> None:
    """Write the values of the vertices `ids` (int64, of this rank) for their neighbours to their rows of `out`. Local.

    out: float[vertices of this rank, width].
    """
    layer, first = form.layer, ctx.local_range[0]
    step = max(1, AT_ONCE_BYTES // (inputs.dtype.itemsize * (layer.in_dim + form.width)))
    plain = layer.norm is None
    for begin in range(0, len(ids), step):
        chosen = ids[begin : begin + step]
        rows = inputs.local(chosen, scattered=ctx.in_place and plain)
        with ctx.phases("compute"):
            names = torch.from_numpy(ctx.sampler.original_ids(chosen)).to(ctx.device)
            z = source_rows(layer, layer.prefix(rows.to(layer.dtype), names, None))
            # A slice is copied at once, an index row by row.
            whole = chosen[-1] - chosen[0] == len(chosen) - 1
            out[slice(chosen[0] - first, chosen[-1] + 1 - first) if whole else chosen - first] = z.cpu().numpy()


def from_sources(layer: Layer, block: BlockTensors, x_dst: Rows, z: Rows) -> Tensor:
    """Compute the output float[n_dst, out] from the destinations' input rows and the values of all sources."""
    rows = layer.prefix(x_dst, block.dst_original, None)
    own, pair = layer.self_part(rows), layer.rows.pair
    if pair is not None:
        neighbours = pair.join(block, dense(z), pair.own(rows, None), None)
    else:
        neighbours = layer.aggregate(block, z, None)
    return layer.finish(own, neighbours, x_dst)


def from_rows(form: LayerForm, block: BlockTensors, x: Rows) -> Tensor:
    """Compute the output float[n_dst, out] from the input rows of all sources, in the order of sums of `form`."""
    layer = form.layer
    if runs_whole(layer):
        return layer(block, x)
    if form.projects_first:
        z = source_rows(layer, layer.prefix(x, block.known_original, None))
        return from_sources(layer, block, x[: block.n_dst], z)
    rows = layer.prefix(x, block.known_original, None)
    neighbours = layer.project(layer.aggregate(block, rows, None))
    return layer.finish(layer.self_part(rows[: block.n_dst]), neighbours, x[: block.n_dst])
