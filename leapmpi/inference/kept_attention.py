"""Attention that a layer leaves at the edges of this rank's destinations, in chunks, for the layer above."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.topology import entries_of
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.inference.chunks import Needed
from leapmpi.inference.row_store import RowStore
from leapmpi.nn.attention_links import OWN, edge_places
from leapmpi.nn.carried_attention import CarriedAttention
from leapmpi.nn.layer import Layer
from leapmpi.nn.tensors import BlockTensors
from leapmpi.sampling.block import indptr_of


class KeptAttention:
    """The attention of all edges of the destinations of one layer on this rank, in the rows of a store.

    rows: float[edges, heads], destination by destination: first the edge to itself, then its list.
    """

    def __init__(self, needed: Needed, rows: np.ndarray) -> None:
        self.needed, self.rows = needed, rows
        self._indptr = indptr_of(edge_counts(needed.lists, needed.destinations))

    @classmethod
    def of(cls, needed: Needed, layer: Layer, store: RowStore, dtype: np.dtype, finished: bool) -> KeptAttention:
        """Allocate the rows that `layer` fills in, or map those that an earlier start has `finished`. Local."""
        count = int(edge_counts(needed.lists, needed.destinations).sum())
        given = name_of(layer), count, layer.heads, dtype
        return cls(needed, store.kept(*given) if finished else store.rows(*given))

    def write(self, place: slice, values: np.ndarray) -> None:
        """Write the attention of the edges of destinations number `place`, float[edges, heads]."""
        self.rows[self._indptr[place.start] : self._indptr[place.stop]] = values

    def read(self, lists: OwnLists, destinations: np.ndarray) -> np.ndarray:
        """Return the attention of the edges that `lists` hold of `destinations`: float[edges, heads], own ones first.

        destinations: int64[n], some of this layer's, whose edges in `lists` are in this layer's lists too.
        """
        number = np.searchsorted(self.needed.destinations, destinations)

        def relations(places: Tensor) -> tuple[Tensor, Tensor]:
            relation = torch.full_like(places, OWN)
            # Own edges stand first, where the list of a destination begins.
            relation[torch.isin(places, indptr[number], invert=True)] = _relations(self.needed.lists, destinations)
            return relation, _relations(lists, destinations)

        indptr, counts = (torch.from_numpy(each) for each in (self._indptr, edge_counts(lists, destinations)))
        return self.rows[edge_places(indptr, torch.from_numpy(number), counts, relations).numpy()]


def _relations(lists: OwnLists, destinations: np.ndarray) -> Tensor:
    """Return the relations of the edges that `lists` hold of `destinations`: int64[edges]."""
    topology, counts = lists.topology, edge_counts(lists, destinations) - 1
    assert topology.relation is not None, "only lists of typed graphs differ"
    entries = entries_of(topology.indptr[lists.numbers(destinations)], counts)
    return torch.from_numpy(topology.relation[entries].astype(np.int64))


@dataclass(frozen=True)
class AttentionStep:
    """The attention that one layer reads, None for the first layer, and what it leaves, None where nothing reads it."""

    below: KeptAttention | None
    own: KeptAttention | None

    def linked(self, block: BlockTensors, lists: OwnLists, destinations: np.ndarray) -> BlockTensors:
        """Return the `block` of `destinations` with the attention of its edges in the layer below. Local."""
        below = None
        if self.below is not None:
            values = torch.from_numpy(self.below.read(lists, destinations)).to(block.edges.indptr.device)
            below = CarriedAttention(None, None, True)
            below.leave(values)
        return replace(block, attention=CarriedAttention(below, None, self.own is not None))

    def keep(self, place: slice, block: BlockTensors) -> None:
        """Keep what the layer has left at the edges of `block`, that of destinations number `place`. Local."""
        assert block.attention is not None, "`linked` has made it"
        if self.own is not None and block.attention.values is not None:
            self.own.write(place, block.attention.values.cpu().numpy())


def name_of(layer: Layer) -> str:
    """Return the name of the rows of the attention that `layer` leaves."""
    return f"attention-{layer.number}"


def edge_counts(lists: OwnLists, destinations: np.ndarray) -> np.ndarray:
    """Return how many edges `lists` hold of each of `destinations` (int64[n], of this rank), its own one too."""
    numbers, indptr = lists.numbers(destinations), lists.topology.indptr
    return indptr[numbers + 1] - indptr[numbers] + 1


def kept_bytes(layer: Layer, needed: Needed, size: int) -> int:
    """Return the bytes of KeptAttention of `layer`, with floats of `size` bytes; 0 where it leaves none."""
    if not layer.carries:
        return 0
    edges = int(edge_counts(needed.lists, needed.destinations).sum())
    return edges * layer.heads * size + 8 * (len(needed.destinations) + 1)
