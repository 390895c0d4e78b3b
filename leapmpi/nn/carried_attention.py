"""Attention of edges that a layer mixes with that of the layer below, on its way from layer to layer.

Each block has a link to the block below. Destinations are some of those below, and both blocks hold all of their edges,
by the relations that they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from leapmpi.nn.layer import Layer
    from leapmpi.nn.tensors import BlockTensors


PLACE_BYTES = 4
"""Bytes of the number of an edge in the block below."""


class CarriedAttention:
    """The attention that the layer of one block leaves at its edges, until the layer above has read it.

    below: that of the layer below, None for the first layer. places: int32[edges], the number of each edge in the block
    below; None where they are the first ones there. is_read: whether a layer above reads what is left here.
    """

    def __init__(self, below: CarriedAttention | None, places: Tensor | None, is_read: bool) -> None:
        self.below, self.places, self.is_read = below, places, is_read
        self.values: Tensor | None = None
        """float[edges, heads], in the order of `edges_with_self` of the block."""

    def take(self, edges: int) -> Tensor | None:
        """Return what the layer below left at the `edges` of this block, float[edges, heads]; None for the first layer.

        It is there once.
        """
        if self.below is None:
            return None
        values, self.below.values = self.below.values, None
        assert values is not None, "the layer below is computed first"
        return values[:edges] if self.places is None else values.index_select(0, self.places)

    def leave(self, values: Tensor) -> None:
        """Keep `values`, float[edges, heads], for the layer above; no gradient passes through them."""
        if self.is_read:
            self.values = values.detach()


def with_links(layers: Sequence[Layer], blocks: Sequence[BlockTensors]) -> list[BlockTensors]:
    """Return `blocks`, from the last layer to the first, linked where `layers` carry attention; else as they are."""
    if not any(layer.carries for layer in layers):
        return list(blocks)
    first = CarriedAttention(None, None, len(blocks) > 1)
    found = [replace(blocks[-1], attention=first)]
    for below, block in pairwise(reversed(blocks)):
        link = CarriedAttention(found[0].attention, _places(block, below), block is not blocks[0])
        found.insert(0, replace(block, attention=link))
    return found


def carried_bytes(layers: Sequence[Layer], edges: Sequence[int], size: int) -> int:
    """Return the bytes of the attention that `layers` hand on in a step, in floats of `size` bytes.

    edges: those of the block of each layer, own ones too. Attention of all layers stays until the backward pass, and
    that of one is there twice.
    """
    kept = [layer.carries * layer.heads * count for layer, count in zip(layers, edges, strict=True)]
    places = sum(layer.carries * count for layer, count in zip(layers[1:], edges[1:], strict=True))
    return size * (sum(kept) + max(kept)) + PLACE_BYTES * places


def _places(block: BlockTensors, below: BlockTensors) -> Tensor | None:
    """Return `CarriedAttention.places` of `block` and the block `below`."""
    edges, others = block.edges_with_self, below.edges_with_self
    ids, order = below.dst_original.sort()
    number = order[torch.searchsorted(ids, block.dst_original).clamp(max=len(ids) - 1)]
    assert torch.equal(below.dst_original[number], block.dst_original), "destinations are some of those below"
    every, counts = torch.arange(len(others.indices), device=number.device), others.counts[number]
    begin = (others.indptr[number] - counts.cumsum(0) + counts).repeat_interleave(counts)
    found = begin + every[: len(begin)]
    if not torch.equal(counts, edges.counts) and block.relation is not None and below.relation is not None:
        # A relation has all its edges in this block, or none. Numbers of relations are one higher, 0 for own edges.
        relation = below.values_with_self(every.new_zeros(below.n_dst), below.relation.long() + 1)
        read = torch.cat((every.new_zeros(1), block.relation.long().unique() + 1))
        found = found[torch.isin(relation[found], read)]
    assert len(found) == len(edges.indices), "the block below holds all edges of a destination"
    return None if torch.equal(found, every[: len(found)]) else found.int()
