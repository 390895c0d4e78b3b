"""Chunks of destinations: as many at a time as fit the memory that is given, by counts of what each chunk reads.

A chunk reads its destinations, their in-neighbours, each once, and the edges. Rows of other ranks are fetched once for
each chunk, so that larger chunks move fewer bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.inference.own_lists import OwnLists
from leapmpi.system.intrinsics import prefetch
from leapmpi.system.jit import compiled

_ATTEMPTS = 12
"""How often chunks are made smaller because of the rows that other ranks ask for."""


_AHEAD = 32
"""Sources between asking for the mark of one and reading it."""


@dataclass(frozen=True)
class ChunkBytes:
    """Bytes that a chunk takes on a rank, for each of what it reads and computes."""

    destination: int
    edge: int
    source: int
    """A distinct vertex that is read; destinations count too. Where it takes none, those of this rank are not counted.
    """
    remote: int
    """A source at home on another rank."""
    sent: int
    """A row that another rank reads in the same round."""

    @property
    def of_own(self) -> np.ndarray:
        """int64[4]: those of a destination, an edge, a source and a remote source."""
        return np.array([self.destination, self.edge, self.source, self.remote])


@dataclass(frozen=True)
class Chunks:
    """This rank's chunks of a layer. All ranks go through as many `rounds`; the last ones may be empty here."""

    ends: np.ndarray
    """int64[chunks]: where each chunk ends in the list of destinations."""
    counts: np.ndarray
    """int64[chunks, 4]: destinations, edges, distinct sources and remote ones of each chunk."""
    rounds: int
    bytes: int
    """The most that a round takes on any rank."""

    def __iter__(self) -> Iterator[slice]:
        """The destinations of each round."""
        ends = [0, *self.ends.tolist()]
        for number in range(self.rounds):
            yield slice(*ends[number : number + 2]) if number < len(self.ends) else slice(0, 0)

    @property
    def remote_rows(self) -> int:
        """The rows that this rank fetches from others."""
        return int(self.counts[:, 3].sum())


@compiled
def _read_remote(v, indptr, indices, first, end, seen, chunk):
    """How many sources outside of first..end-1 `v` adds to those of `chunk`; marks them."""
    far = np.int64(0)
    for e in range(indptr[v], indptr[v + 1]):
        u = indices[e]
        if u < first or u >= end:
            far += np.int64(seen[u] != chunk)
            seen[u] = chunk
    return far


@compiled
def _read(v, indptr, indices, first, end, seen, chunk):
    """How many sources `v` adds to those of `chunk`, and how many of them lie outside first..end-1; marks them."""
    new, far = np.int64(seen[v] != chunk), np.int64(0)
    seen[v] = chunk
    # No branch depends on the marks: processors could not predict it.
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
    """Where the chunk ends that begins at destinations[begin] and takes at most `limit` bytes, or one vertex.

    `seen` (int32 by number) holds less than `chunk` everywhere; `each` int64[4] is ChunkBytes.of_own. Writes what the
    chunk reads to `counts` int64[4], as in Chunks.
    """
    counts[:] = 0
    for i in range(begin, len(destinations)):
        v = destinations[i]
        degree = indptr[v + 1] - indptr[v]
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
    """Chunks of `destinations` (int64, of this rank), each as large as `limit` bytes allow on every rank. Collective.

    A chunk holds one vertex at least, so that `Chunks.bytes` may be more than `limit`. What other ranks fetch from this
    one in the same round counts too: where it is too much, all ranks cut again.
    """
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
    """The ends and counts of this rank's chunks of `limit` bytes. Local."""
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
    """int64[rounds]: how many rows of this rank the others read in each round. Collective."""
    ranks, topology = communicator.size, lists.topology
    if ranks == 1:
        return np.zeros(rounds, np.int64)
    remote = np.zeros((rounds, ranks), np.int64)
    seen = np.full(topology.numbered, -1, np.int32)
    _owners(numbers, ends, topology.indptr, topology.indices, lists.first, lists.end, lists.bounds, seen, remote)

    # Each rank learns what the others read of it.
    asked = np.empty((ranks, rounds), np.int64)
    once = np.ones(ranks, np.int64)
    communicator.exchange(np.ascontiguousarray(remote.T), once, asked, once, "control")
    return asked.sum(axis=0)
