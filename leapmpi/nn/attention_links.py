"""Links of blocks by which layers hand on the attention of edges (carried_attention.py).

Destinations of a block are some of those of the block below, and both hold all of their edges, by the relations that
they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from leapmpi.nn.carried_attention import CarriedAttention
from leapmpi.nn.layer import Layer
from leapmpi.nn.tensors import BlockTensors

PLACE_BYTES = 4
"""Bytes of the number of an edge in the block below."""


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
    that of one is held twice.
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
