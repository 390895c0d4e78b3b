"""Links of blocks by which layers hand on the attention of edges (carried_attention.py).

Destinations of a block are some of those of the block below, and both hold all of their edges, by the relations that
they have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from leapmpi.nn.carried_attention import CarriedAttention
from leapmpi.nn.layer import Layer
from leapmpi.nn.tensors import BlockTensors

PLACE_BYTES = 4
"""Bytes of the number of an edge in the block below."""

OWN = -1
"""Relation of the edge from a destination to itself."""


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

    def relations(found: Tensor) -> tuple[Tensor, Tensor]:
        assert block.relation is not None, "only blocks of typed graphs differ"
        assert below.relation is not None, "they are of the same graph"
        relation = below.values_with_self(found.new_full((below.n_dst,), OWN), below.relation.long())
        return relation[found], block.relation.long()

    found = edge_places(others.indptr, number, edges.counts, relations)
    in_order = torch.equal(found, torch.arange(len(found), device=found.device))
    return None if in_order else found.int()


def edge_places(
    indptr: Tensor, number: Tensor, counts: Tensor, relations: Callable[[Tensor], tuple[Tensor, Tensor]]
) -> Tensor:
    """Find the edges of a layer among those of the layer below: int64[edges], own ones first for each destination.

    indptr: int64[n + 1], of the edges below, own ones too. number: int64[m], the layer's destinations among those
    below; counts: int64[m], their edges in the layer. relations: returns those of edges at given places below, OWN for
    own edges, and those that the layer reads; called where the layer lacks edges.
    """
    begin = indptr[number]
    below = indptr[number + 1] - begin
    found = (begin - below.cumsum(0) + below).repeat_interleave(below)
    found += torch.arange(len(found), device=found.device)
    if not torch.equal(below, counts):
        # A relation has all its edges in the layer, or none: relations alone decide.
        relation, read = relations(found)
        found = found[(relation == OWN) | torch.isin(relation, read.unique())]
    assert len(found) == counts.sum(), "the layer below holds all edges of a destination"
    return found
