"""Rows found by the numbers of a rank's lists, and read in place.

A chunk then neither numbers its sources nor looks up their names, which takes as long as their sums. The numbers of its
block are those of the lists, counted from its first destination on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.rows import ScatteredRows
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_AT_ONCE = 1 << 20
"""Rows whose addresses are found at a time."""

_AHEAD = 32
"""Sources between the prefetch of a mark and its use."""


@compiled
def _renumber(first, end, sources, begin, numbered, out):
    """Write sources[first:end], counted from `begin` on, to `out`; lower numbers follow the `numbered` ones."""
    for e in range(first, end):
        number = np.int64(sources[e]) - begin
        out[e] = np.int32(number + numbered if number < 0 else number)


@compiled
def _list_remote(sources, first, end, seen, stamp, out):
    """Write the distinct `sources` outside of first..end-1 to `out`; return their count.

    `seen` (int32 by number) is set to `stamp` for each; `out` has room for one more than are found.
    """
    count = 0
    for e in range(len(sources)):
        if e + _AHEAD < len(sources):
            prefetch(seen, np.intp(sources[e + _AHEAD]))
        u = sources[e]
        # Written always, and kept only if it counts: a branch that is mispredicted costs more than a store.
        out[count] = u
        count += int((seen[u] != stamp) & ((u < first) | (u >= end)))
        seen[u] = stamp
    return count


class AddressedRows:
    """The rows of `fetcher` by the numbers of `lists`. Takes 20 bytes a number."""

    def __init__(self, ctx: RankContext, lists: OwnLists, fetcher: FeatureFetcher) -> None:
        self.lists, self.fetcher = lists, fetcher
        self._numbered = lists.topology.numbered
        # Twice in a row: a view from any number on holds the addresses of all.
        self._addresses = np.zeros(2 * self._numbered, np.int64)
        first, end = ctx.local_range
        for begin in range(first, end, _AT_ONCE):
            ids = np.arange(begin, min(begin + _AT_ONCE, end))
            found = fetcher.local(ids, scattered=True)
            assert isinstance(found, ScatteredRows), "rows have addresses, says `reads_by_number`"
            self._rows = found
            self._set(lists.numbers(ids), found)
        self._seen = np.full(self._numbered if ctx.ranks > 1 else 0, -1, np.int32)
        self._stamp = -1

    def block(self, destinations: np.ndarray) -> BlockTensors:
        """Make the block of `destinations` (int64[n], consecutive), whose sources are all numbers. Local."""
        topology, count = self.lists.topology, len(destinations)
        begin = int(self.lists.numbers(destinations[:1])[0])
        # Destinations follow each other, so their lists are one slice and need no copy.
        indptr = topology.indptr[begin : begin + count + 1]
        sources = topology.indices[indptr[0] : indptr[-1]]
        indices = np.empty(len(sources), np.int32)
        share_rows(_renumber, len(sources), sources, begin, self._numbered, indices)
        own = topology.original_id[begin : begin + count], self.lists.in_degrees(begin, begin + count)
        original, degree = (torch.from_numpy(np.array(each, np.int64)) for each in own)
        edges = Edges(torch.from_numpy(indptr - indptr[0]), torch.from_numpy(indices), self._numbered)
        return BlockTensors(0, count, edges, original, degree, None)

    def remote(self, destinations: np.ndarray, count: int) -> np.ndarray:
        """List the numbers of the `count` remote sources of `destinations`: int64[count]. Local."""
        if not len(self._seen) or not len(destinations):
            return np.empty(0, np.int64)
        self._stamp += 1
        first, end = self.lists.numbers(destinations[[0, -1]])
        indptr, found = self.lists.topology.indptr, np.empty(count + 1, np.int64)
        sources = self.lists.topology.indices[indptr[first] : indptr[end + 1]]
        listed = _list_remote(sources, self.lists.first, self.lists.end, self._seen, self._stamp, found)
        assert listed == count, "chunks are cut by these counts"
        return found[:count]

    def rows(self, destinations: np.ndarray, remote: np.ndarray, arrived: ScatteredRows) -> ScatteredRows:
        """Return the rows of all numbers, counted from the first of `destinations` on; those of `remote` `arrived`.

        Addresses of other remote rows are not valid, and the block does not read them.
        """
        self._set(remote, arrived)
        begin = int(self.lists.numbers(destinations[:1])[0])
        addresses = torch.from_numpy(self._addresses[begin : begin + self._numbered])
        return replace(self._rows, addresses=addresses, sources=(*self._rows.sources, *arrived.sources))

    def _set(self, numbers: np.ndarray, rows: ScatteredRows) -> None:
        self._addresses[numbers] = self._addresses[numbers + self._numbered] = rows.addresses.numpy()
