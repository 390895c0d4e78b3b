"""Destinations of each layer, and chunks of them that fit the memory, cut by counts.

A layer computes the vertices that the layer above reads. A chunk reads its destinations, their in-neighbours, each
once, and the edges. Values of other ranks are received once for each chunk, so that larger chunks move fewer bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_ATTEMPTS = 12
"""The most times that chunks are made smaller because of what other ranks request."""

_AHEAD = 32
"""Sources between the prefetch of a mark and its use."""

ListsOf = Callable[[int, np.ndarray], OwnLists]
"""The lists that a layer (0 is the first) reads for its destinations (int64 ascending)."""


class Needed(NamedTuple):
    """Vertices of one layer on this rank."""

    lists: OwnLists
    read: np.ndarray
    """int64 ascending: the vertices of this rank whose input rows are read."""
    destinations: np.ndarray
    """int64 ascending: those whose output rows are computed."""


@compiled
def _mark(destinations, indptr, indices, marked):
    """Mark the in-neighbours of `destinations`."""
    for i in range(len(destinations)):
        for e in range(indptr[destinations[i]], indptr[destinations[i] + 1]):
            marked[indices[e]] = True


def needed_by_layer(
    lists_of: ListsOf, communicator: Communicator, rank_offsets: np.ndarray, wanted: np.ndarray, layers: int
) -> list[Needed]:
    """Find the vertices that each layer reads and computes, the first layer first. Collective.

    wanted: int64 ascending, the vertices of this rank whose output of the last layer is requested; rank_offsets:
    int64[ranks + 1]. A layer computes the destinations of the layer above and their in-neighbours.
    """
    first, end = (int(each) for each in rank_offsets[communicator.rank : communicator.rank + 2])
    # Where all vertices are wanted, each layer needs all.
    every = not communicator.all_gather_rows(np.array([end - first - len(wanted)])).any()
    found: list[Needed] = []
    destinations = wanted
    for layer in reversed(range(layers)):
        lists = lists_of(layer, destinations)
        read = wanted if every else _with_in_neighbours(lists, communicator, rank_offsets, destinations)
        found.insert(0, Needed(lists, read, destinations))
        destinations = read
    return found


def _with_in_neighbours(
    lists: OwnLists, communicator: Communicator, rank_offsets: np.ndarray, destinations: np.ndarray
) -> np.ndarray:
    """Return the vertices of this rank among the destinations of all ranks and their in-neighbours. Collective."""
    topology, numbers = lists.topology, lists.numbers(destinations)
    marked = np.zeros(topology.numbered, bool)
    marked[numbers] = True
    _mark(numbers, topology.indptr, topology.indices, marked)

    # Owners compute rows, so each remote source is named to its owner, even where no vertex of that rank is wanted.
    here = marked[lists.first : lists.end].copy()
    marked[lists.first : lists.end] = False
    remote = np.flatnonzero(marked)
    counts = np.diff(np.searchsorted(remote, lists.bounds))
    codec = IdCodec.home_ranks(rank_offsets)
    named, _ = communicator.exchange_ids(lists.ids(remote), counts, codec)
    first = int(rank_offsets[communicator.rank])
    here[named - first] = True
    return first + np.flatnonzero(here)


@dataclass(frozen=True)
class ChunkBytes:
    """Bytes that a chunk takes on a rank, per unit of each kind."""

    destination: int
    edge: int
    source: int
    """Per distinct vertex that is read, destinations included. If 0, those of this rank are not counted."""
    remote: int
    """Per remote source."""
    sent: int
    """Per row that another rank reads in the same round."""

    @property
    def of_own(self) -> np.ndarray:
        """int64[4]: bytes of a destination, an edge, a source and a remote source."""
        return np.array([self.destination, self.edge, self.source, self.remote])


@dataclass(frozen=True)
class Chunks:
    """This rank's chunks of a layer. All ranks compute the same number of `rounds`; the last may be empty here."""

    ends: np.ndarray
    """int64[chunks]: the end of each chunk in the list of destinations."""
    counts: np.ndarray
    """int64[chunks, 4]: destinations, edges, distinct sources and remote ones of each chunk."""
    rounds: int
    bytes: int
    """The most bytes that a round takes on any rank."""

    def __iter__(self) -> Iterator[slice]:
        """Yield the place of each round's destinations."""
        ends = [0, *self.ends.tolist()]
        for number in range(self.rounds):
            yield slice(*ends[number : number + 2]) if number < len(self.ends) else slice(0, 0)

    @property
    def remote_rows(self) -> int:
        """The number of distinct remote sources, summed over chunks."""
        return int(self.counts[:, 3].sum())

    def remote_of(self, round: int) -> int:
        """Return the number of distinct remote sources of a round's chunk."""
        return int(self.counts[round, 3]) if round < len(self.counts) else 0


@compiled
def _read_remote(v, indptr, indices, first, end, seen, chunk):
    """Count the sources outside of first..end-1 that `v` adds to those of `chunk`, and mark them."""
    far = np.int64(0)
    for e in range(indptr[v], indptr[v + 1]):
        u = indices[e]
        if u < first or u >= end:
            far += np.int64(seen[u] != chunk)
            seen[u] = chunk
    return far


@compiled
def _read(v, indptr, indices, first, end, seen, chunk):
    """Count the sources that `v` adds to those of `chunk`, and those of them outside of first..end-1; mark them."""
    new, far = np.int64(seen[v] != chunk), np.int64(0)
    seen[v] = chunk
    # No branch depends on the marks: it would be mispredicted.
    for e in range(indptr[v], indptr[v + 1]):
        if e + _AHEAD < len(indices):
            prefetch(seen, np.intp(indices[e + _AHEAD]))
        u = indices[e]
        unseen = np.int64(seen[u] != chunk)
        seen[u] = chunk
        new += unseen
        far += unseen & (np.int64(u < first) | np.int64(u >= end))
    return new, far


@compiled
def _next_chunk(destinations, begin, indptr, indices, first, end, seen, chunk, each, limit, counts):
    """Return the end of the chunk that begins at destinations[begin] and takes at most `limit` bytes, or one vertex.

    `seen` (int32 by number) holds less than `chunk` everywhere; `each` int64[4] is ChunkBytes.of_own. Writes the counts
    of the chunk to `counts` int64[4], as in Chunks.
    """
    counts[:] = 0
    for i in range(begin, len(destinations)):
        v = destinations[i]
        degree = indptr[v + 1] - indptr[v]
        # Marks are read in random order: where own sources cost nothing, only remote ones are marked.
        if each[2]:
            new, far = _read(v, indptr, indices, first, end, seen, chunk)
        else:
            new, far = np.int64(0), _read_remote(v, indptr, indices, first, end, seen, chunk)
        size = (counts[0] + 1) * each[0] + (counts[1] + degree) * each[1] + (counts[2] + new) * each[2]
        if i > begin and size + (counts[3] + far) * each[3] > limit:
            return i
        counts[0] += 1
        counts[1] += degree
        counts[2] += new
        counts[3] += far
    return len(destinations)


@compiled
def _owners(destinations, ends, indptr, indices, first, end, bounds, seen, remote):
    """Count the remote sources of each chunk by owner into `remote` (int64[chunks, ranks]); `seen` holds -1."""
    begin = 0
    for chunk in range(len(ends)):
        for i in range(begin, ends[chunk]):
            for e in range(indptr[destinations[i]], indptr[destinations[i] + 1]):
                u = indices[e]
                if seen[u] != chunk:
                    seen[u] = chunk
                    if u < first or u >= end:
                        remote[chunk, np.searchsorted(bounds, u, side="right") - 1] += 1
        begin = ends[chunk]


def cut(lists: OwnLists, communicator: Communicator, destinations: np.ndarray, each: ChunkBytes, limit: int) -> Chunks:
    """Cut `destinations` (int64, of this rank) into chunks as large as `limit` bytes allow on every rank. Collective.

    A chunk holds one vertex at least, so that `Chunks.bytes` may be more than `limit`. Rows that other ranks request in
    the same round count too: where they are too many, all ranks cut again.
    """
    # Requests of others are known only once all have cut. Smaller chunks lower them, by less than in proportion:
    # hence the margin, and several attempts.
    numbers = lists.numbers(destinations)
    tightened = limit
    for attempt in range(_ATTEMPTS):
        ends, counts = _cut_own(lists, numbers, each, tightened)
        rounds = int(communicator.all_gather_rows(np.array([len(ends)])).max(initial=0))
        sizes = np.zeros(rounds, np.int64)
        sizes[: len(ends)] = counts @ each.of_own
        sizes += each.sent * _sent_rows(lists, communicator, numbers, ends, rounds)
        most = int(communicator.all_gather_rows(np.array([sizes.max(initial=0)])).max())
        several = communicator.all_gather_rows(np.array([len(destinations) - len(ends)])).any()
        if most <= limit or not several or attempt == _ATTEMPTS - 1:
            break
        tightened = int(tightened * min(0.9, 0.95 * limit / most))
    return Chunks(ends, counts, rounds, most)


def _cut_own(lists: OwnLists, numbers: np.ndarray, each: ChunkBytes, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut this rank's chunks of `limit` bytes; return their ends and counts. Local."""
    topology = lists.topology
    seen = np.full(topology.numbered, -1, np.int32)
    ends: list[int] = []
    counts: list[np.ndarray] = []
    while (begin := ends[-1] if ends else 0) < len(numbers):
        read = np.empty(4, np.int64)
        arrays = topology.indptr, topology.indices, lists.first, lists.end, seen, len(ends)
        ends.append(int(_next_chunk(numbers, begin, *arrays, each.of_own, max(1, limit), read)))
        counts.append(read)
    return np.array(ends, np.int64), np.array(counts, np.int64).reshape(-1, 4)


def _sent_rows(
    lists: OwnLists, communicator: Communicator, numbers: np.ndarray, ends: np.ndarray, rounds: int
) -> np.ndarray:
    """Count the rows of this rank that the others read in each round: int64[rounds]. Collective."""
    ranks, topology = communicator.size, lists.topology
    if ranks == 1:
        return np.zeros(rounds, np.int64)
    remote = np.zeros((rounds, ranks), np.int64)
    seen = np.full(topology.numbered, -1, np.int32)
    _owners(numbers, ends, topology.indptr, topology.indices, lists.first, lists.end, lists.bounds, seen, remote)

    requested = np.empty((ranks, rounds), np.int64)
    once = np.ones(ranks, np.int64)
    communicator.exchange(np.ascontiguousarray(remote.T), once, requested, once, "control")
    return requested.sum(axis=0)
