"""Attention of edges that a layer mixes with that of the layer below, on its way from layer to layer.

Each block has a link to the block below. Both must hold all in-neighbours of the same destinations, so that an edge has
one place in both.
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


class CarriedAttention:
    """The attention that the layer of one block leaves at its edges, until the layer above has read it.

    below: that of the layer below, None for the first layer. is_read: whether a layer above reads what is left here.
    """

    def __init__(self, below: CarriedAttention | None, is_read: bool, values: Tensor | None = None) -> None:
        self.below, self.is_read = below, is_read
        self.values = values
        """float[edges, heads], in the order of `edges_with_self` of the block."""

    def take(self, edges: int) -> Tensor | None:
        """Return what the layer below left at the `edges` of this block, float[edges, heads]; None for the first layer.

        It is there once.
        """
        if self.below is None:
            return None
        values, self.below.values = self.below.values, None
        assert values is not None, "the layer below is computed first"
        assert len(values) >= edges, "an edge is in the block below too"
        # Destinations are the first ones of the block below.
        return values[:edges]

    def leave(self, values: Tensor) -> None:
        """Keep `values`, float[edges, heads], for the layer above; no gradient passes through them."""
        if self.is_read:
            self.values = values.detach()


def with_links(layers: Sequence[Layer], blocks: Sequence[BlockTensors]) -> list[BlockTensors]:
    """Return `blocks`, from the last layer to the first, linked where `layers` carry attention; else as they are."""
    if not any(layer.carries for layer in layers):
        return list(blocks)
    for block, below in pairwise(blocks):
        count, edges = block.n_dst, block.edges.indptr
        same = torch.equal(block.dst_original, below.dst_original[:count])
        assert same, "destinations are the first ones of the block below"
        assert torch.equal(edges, below.edges.indptr[: count + 1]), "both blocks hold all edges of a destination"
    found: list[BlockTensors] = []
    link = None
    for block in reversed(blocks):
        link = CarriedAttention(link, block is not blocks[0])
        found.insert(0, replace(block, attention=link))
    return found


def carried_numbers(layers: Sequence[Layer], edges: Sequence[int]) -> int:
    """Return how many numbers `layers` keep of attention in a step, with `edges` in the block of each, own ones too.

    Those of all layers stay until the backward pass, and those of one layer are there twice.
    """
    each = [layer.carries * layer.heads * count for layer, count in zip(layers, edges, strict=True)]
    return sum(each) + max(each)
