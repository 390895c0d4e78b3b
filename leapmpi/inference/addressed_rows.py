"""AddressedRows: what a layer reads, found by the number that a rank's lists give to a vertex, where it lies.

A chunk then neither numbers its sources anew nor looks up what they are, which takes as long as adding them up: the
numbers of its block are those of the lists, counted from its first destination on. Rows of other ranks are listed and
fetched once for each chunk, as ever.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from leapmpi.exchange.context import RankContext
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.inference.layer_plan import LayerPlan
from leapmpi.inference.own_lists import OwnLists
from leapmpi.nn.rows import ScatteredRows
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_AT_ONCE = 1 << 20
"""Rows whose addresses are found at a time."""

_AHEAD = 32
"""Sources between asking for the mark of one and reading it."""

_MOST = 2**31 - 1
"""The numbers that a block can hold."""


@compiled
def _renumber(first, end, sources, begin, numbered, out):
    """Count the numbers sources[first:end] from `begin` on: what comes before it follows the last of `numbered`."""
    for e in range(first, end):
        number = np.int64(sources[e]) - begin
        out[e] = np.int32(number + numbered if number < 0 else number)


@compiled
def _list_remote(sources, first, end, seen, chunk, out):
    """Write the distinct `sources` outside of first..end-1 to `out`; `seen` (int32 by number) marks those of `chunk`.

    `out` has room for one more than there are. Returns how many there are.
    """
    count = 0
    for e in range(len(sources)):
        if e + _AHEAD < len(sources):
            prefetch(seen, np.intp(sources[e + _AHEAD]))
        u = sources[e]
        out[count] = u
        count += int((seen[u] != chunk) & ((u < first) | (u >= end)))
        seen[u] = chunk
    return count


def reads_by_number(plan: LayerPlan, lists: OwnLists, destinations: np.ndarray) -> bool:
    """Whether the rows that a layer reads for `destinations` (int64 ascending, of this rank) can be found so. Local.

    They lie in memory in single precision, all follow each other, and the layer reads nothing else of its sources.
    """
    follow = len(destinations) > 0 and destinations[-1] - destinations[0] == len(destinations) - 1
    carried = lists.topology.edge_weight is not None or "edge_features" in plan.layer.edge_data
    plain = plan.in_place and not plan.multiplies_sources and not plan.layer.traits.reads_names
    return bool(follow and plain and not carried and lists.topology.numbered < _MOST)


class AddressedRows:
    """The rows of `fetcher`, which a layer reads by the numbers of `lists`. Takes 20 bytes a number."""

    def __init__(self, ctx: RankContext, lists: OwnLists, fetcher: FeatureFetcher) -> None:
        self.lists, self.fetcher = lists, fetcher
        self._numbered = lists.topology.numbered
        # Twice, one after the other: from any number on, a view holds the addresses of all.
        self._addresses = np.zeros(2 * self._numbered, np.int64)
        first, end = ctx.local_range
        for begin in range(first, end, _AT_ONCE):
            ids = np.arange(begin, min(begin + _AT_ONCE, end))
            found = fetcher.local(ids, scattered=True)
            assert isinstance(found, ScatteredRows), "`reads_by_number` has seen that rows have addresses"
            self._rows = found
            self._set(lists.numbers(ids), found)
        self._seen = np.full(self._numbered if ctx.ranks > 1 else 0, -1, np.int32)
        self._chunk = -1

    def block(self, destinations: np.ndarray) -> BlockTensors:
        """The block of `destinations` (int64[n], which follow each other), whose sources are all numbers. Local."""
        topology, count = self.lists.topology, len(destinations)
        begin = int(self.lists.numbers(destinations[:1])[0])
        indptr = topology.indptr[begin : begin + count + 1]
        sources = topology.indices[indptr[0] : indptr[-1]]
        indices = np.empty(len(sources), np.int32)
        share_rows(_renumber, len(sources), sources, begin, self._numbered, indices)
        own = topology.original_id[begin : begin + count], self.lists.in_degrees(begin, begin + count)
        original, degree = (torch.from_numpy(np.array(each, np.int64)) for each in own)
        edges = Edges(torch.from_numpy(indptr - indptr[0]), torch.from_numpy(indices), self._numbered)
        return BlockTensors(0, count, edges, original, degree, None)

    def remote(self, destinations: np.ndarray, count: int) -> np.ndarray:
        """int64[count]: the numbers of the sources of `destinations` that are at home on other ranks. Local."""
        if not len(self._seen) or not len(destinations):
            return np.empty(0, np.int64)
        self._chunk += 1
        first, end = self.lists.numbers(destinations[[0, -1]])
        indptr, found = self.lists.topology.indptr, np.empty(count + 1, np.int64)
        sources = self.lists.topology.indices[indptr[first] : indptr[end + 1]]
        listed = _list_remote(sources, self.lists.first, self.lists.end, self._seen, self._chunk, found)
        assert listed == count, "chunks are cut by counts of what they read"
        return found[:count]

    def rows(self, destinations: np.ndarray, remote: np.ndarray, arrived: ScatteredRows) -> ScatteredRows:
        """The rows of all numbers, from that of the first of `destinations` on; those of `remote` have `arrived`.

        Rows of other ranks that the block does not read are not there.
        """
        self._set(remote, arrived)
        begin = int(self.lists.numbers(destinations[:1])[0])
        addresses = torch.from_numpy(self._addresses[begin : begin + self._numbered])
        return replace(self._rows, addresses=addresses, sources=(*self._rows.sources, *arrived.sources))

    def _set(self, numbers: np.ndarray, rows: ScatteredRows) -> None:
        self._addresses[numbers] = self._addresses[numbers + self._numbered] = rows.addresses.numpy()
