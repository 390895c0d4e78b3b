"""Draws of typed graphs on a device: lists by relation, cut as relation_lists.py cuts them, and drawn by any form."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.graph_types import MOST_VERTICES
from leapmpi.device.device_frontier import Destinations, DeviceTopology, placed
from leapmpi.device.draw_form import DrawForm
from leapmpi.device.lists import DeviceDrawn, numbers_within, rows_of, starts
from leapmpi.sampling.hop_sampler import ALL
from leapmpi.sampling.relation_lists import ALL_OF_LIST, RelationDraws
from leapmpi.system.counter_rng import DrawKey

_VERTEX_BITS = MOST_VERTICES.bit_length() - 1


class DeviceRelations:
    """Relations of all edges on the device, and the lists of each hop."""

    def __init__(self, relations: RelationDraws, relation: np.ndarray, device: torch.device) -> None:
        """Take the `relation` of each edge of the topology, unsigned[m]."""
        # torch computes little with uint16.
        self._relation = placed(relation if relation.itemsize == 1 else relation.astype(np.int32), device)
        self._bases = placed(relations.bases[1:], device)
        self._hops = []
        for plan in relations.hops:
            distinct = np.unique(plan.fanout[plan.drawn]).tolist()
            self._hops.append((*(placed(array, device) for array in plan), distinct))

    @staticmethod
    def needed_bytes(relation: np.ndarray) -> int:
        """Return the bytes of the relations on a device."""
        return len(relation) * (1 if relation.itemsize == 1 else 4)

    def draw(self, form: DrawForm, key: DrawKey, hop: int, topology: DeviceTopology, to: Destinations) -> DeviceDrawn:
        """Draw for `to` at `hop` by `form`, from one list for each destination and relation."""
        lists_of_type, drawn, fanout, distinct = self._hops[hop]
        kind = torch.searchsorted(self._bases, to.original, right=True)
        of_destination = starts(lists_of_type.diff()[kind])
        row = rows_of(of_destination)
        relation = drawn[lists_of_type[kind][row] + numbers_within(of_destination)]
        # A vertex's list is sorted by relation, so each relation's edges are a range of it.
        begin = self._place(to, row, relation)
        degree = self._place(to, row, relation + 1) - begin
        lists = Destinations(to.vertices[row], begin, to.original[row] | (relation << _VERTEX_BITS), degree)

        # A form draws with one fan-out at a time.
        if len(distinct) < 2:
            found = form.draw_at_most(_fanout(distinct[0] if distinct else 0), key, hop, topology, lists)
        else:
            limit = fanout[relation]
            groups = [torch.nonzero(limit == each).flatten() for each in distinct]
            parts = [
                form.draw_at_most(_fanout(each), key, hop, topology, lists.part(some))
                for each, some in zip(distinct, groups, strict=True)
            ]
            found = _merged(groups, parts, len(row))
        # Lists of a destination follow each other, so their edges join without being moved.
        of_edges = relation.repeat_interleave(found.indptr.diff(), output_size=len(found.sources))
        return found._replace(indptr=found.indptr[of_destination], relation=of_edges.to(self._relation.dtype))

    def _place(self, to: Destinations, row: Tensor, wanted: Tensor) -> Tensor:
        """Return the first place in the list of each `row` whose relation is not below `wanted`: int64[lists]."""
        low, high = to.start[row], (to.start + to.degree)[row]
        longest = int(to.degree.max()) if len(to.degree) else 0
        last = max(0, len(self._relation) - 1)
        for _ in range(longest.bit_length() if len(self._relation) else 0):
            middle = (low + high) >> 1
            below = (low < high) & (self._relation[middle.clamp(max=last)].long() < wanted)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        return low


def _fanout(limit: int) -> int:
    return ALL if limit == ALL_OF_LIST else limit


def _merged(groups: list[Tensor], parts: list[DeviceDrawn], lists: int) -> DeviceDrawn:
    """Merge the draws of groups of lists, each the numbers int64 of its lists, in the order of `lists` lists."""
    counts = parts[0].indptr.new_zeros(lists)
    for some, part in zip(groups, parts, strict=True):
        counts[some] = part.indptr.diff()
    indptr = starts(counts)
    places = [
        indptr[some].repeat_interleave(part.indptr.diff(), output_size=len(part.sources)) + numbers_within(part.indptr)
        for some, part in zip(groups, parts, strict=True)
    ]
    # Every draw has a place of its own, so that sorting needs no stable order.
    order = torch.cat(places).argsort()

    def joined(arrays: list[Tensor | None]) -> Tensor | None:
        found = [each for each in arrays if each is not None]
        return torch.cat(found)[order] if found else None

    sources = joined([part.sources for part in parts])
    assert sources is not None, "all parts have sources"
    weight, numbers = joined([part.weight for part in parts]), joined([part.numbers for part in parts])
    return DeviceDrawn(indptr, sources, weight, numbers)
