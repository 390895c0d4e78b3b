"""Draws from lists held by their owners: each vertex is requested once per sample, and drawn at each hop.

At a hop a rank sends its new vertices to their owners. An owner draws for all vertices requested by that rank so far in
the sample, with the hop's random words, and replies. Own vertices draw while the requests travel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leapmpi.comm.id_codec import IdCodec
from leapmpi.dataset.topology import Topology, places_among
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.edge_lookup import edge_numbers
from leapmpi.sampling.hop_sampler import HopSampler
from leapmpi.sampling.samplers.random_walk import RandomWalk
from leapmpi.sampling.sharded.answer_format import NUMBER, AnswerFormat, pack, unpack
from leapmpi.sampling.sharded.list_copies import ListCopies
from leapmpi.sampling.sharded.owner_draws import OwnerDraws
from leapmpi.sampling.sharded.shared_walks import SharedWalks
from leapmpi.sampling.sharded.topology_shard import TopologyShard
from leapmpi.system.counter_rng import DrawKey
from leapmpi.system.jit import compiled

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

KIND = "topology"
"""Kind under which bytes are counted."""


@compiled
def _in_order(home, vertex_at, counts, edge_at, indptr, order):
    """Find the order of all owners' edges by destination.

    home: int64[n], the owner of each destination; vertex_at, edge_at: int64[ranks], first entries of each owner in
    `counts` and among the edges; both are changed. Writes indptr int64[n + 1] and order int64[edges].
    """
    for i in range(len(home)):
        owner = home[i]
        first = edge_at[owner]
        for j in range(counts[vertex_at[owner]]):
            order[indptr[i] + j] = first + j
        indptr[i + 1] = indptr[i] + counts[vertex_at[owner]]
        edge_at[owner] += counts[vertex_at[owner]]
        vertex_at[owner] += 1


class HopDraws(NamedTuple):
    """Draws of all destinations of a hop, in their order, and facts about newly requested ones, in theirs."""

    indptr: np.ndarray
    """int64[n + 1]."""
    of_edges: list[np.ndarray]
    """Columns of the format by drawn edge: sources (ids in the dataset), weights, relations, numbers, ..."""
    of_vertices: list[np.ndarray]
    """Original ids, in-degrees, ... of each newly requested vertex."""


class OwnerPart(NamedTuple):
    """Reply of one owner at a hop."""

    counts: np.ndarray
    """int64[named]: drawn edges of each of its vertices, in the order of requests."""
    of_edges: list[np.ndarray]
    of_vertices: list[np.ndarray]
    """Columns as in HopDraws, in that order."""


class OwnerDrawn(NamedTuple):
    """Draws of own vertices: first edge of each, int64[n + 1], and the columns of the edges."""

    indptr: np.ndarray
    of_edges: list[np.ndarray]

    def cut(self, n: int) -> tuple[OwnerDrawn, OwnerDrawn]:
        """Split into the draws of the first `n` vertices and those of the others."""
        middle = self.indptr[n]
        return (
            OwnerDrawn(self.indptr[: n + 1], [column[:middle] for column in self.of_edges]),
            OwnerDrawn(self.indptr[n:] - middle, [column[middle:] for column in self.of_edges]),
        )


class RemoteLists:
    """Lists of all ranks as this rank draws from them. One sample at a time: `begin`, then `draw` hop by hop."""

    def __init__(
        self,
        sampler: HopSampler,
        shard: TopologyShard,
        communicator: Communicator,
        rank_offsets: np.ndarray,
        answers: AnswerFormat,
    ) -> None:
        """Take a `sampler` that draws from `shard.own`; `rank_offsets` is int64[ranks + 1]."""
        self.sampler, self.shard, self.communicator, self.answers = sampler, shard, communicator, answers
        self.rank_offsets = rank_offsets
        self.draws = OwnerDraws(sampler, shard)
        # A walk leaves the lists of its rank: each of its steps is drawn where the list is.
        if isinstance(sampler, RandomWalk):
            self.draws = SharedWalks(sampler, shard, communicator, rank_offsets, answers)
        self.id_codec = IdCodec.home_ranks(rank_offsets)
        self.copies: ListCopies | None = None
        """Copies of remote lists, if there may be any."""
        self.begin()

    def begin(self) -> None:
        """Forget all requests. Local."""
        none = np.empty(0, np.int64)
        self._home = none
        self._own = none
        self._copied = none
        self._ids = none
        self._named = [none] * self.communicator.size

    def draw(self, key: DrawKey, hop: int, new: np.ndarray, alone: bool = False) -> HopDraws:
        """Draw at `hop` for all vertices requested so far, `new` (int64[k]) after the earlier ones. Collective.

        alone: do not involve other ranks. Remote vertices draw nothing and their ids serve as original ids. Local then.
        """
        # Owners keep the vertices named so far: a later hop draws for all of them, and names only new ones.
        copies = None if alone else self.copies
        home, order, counts = self._by_owner(new, None if copies is None else copies.lists)
        rank = self.communicator.rank
        self._home = np.concatenate((self._home, home))
        mine = self.shard.own_numbers(new[home == rank])
        self._own = np.concatenate((self._own, mine))
        named = np.bincount(self._home, minlength=len(counts))
        if alone:
            own = self._own_part(self._drawn(key, hop, self._own, alone), mine)
            parts = [
                own if owner == rank else self._nothing_drawn(own, int(named[owner]), new[home == owner])
                for owner in range(len(counts))
            ]
            return self._merged(parts, order)

        # Draws from lists that are here overlap the transfer of requests, unless draws are collective themselves.
        finish = self._start_naming(new[order], counts)
        copied = [] if copies is None else self._copied_part(copies, key, hop, new[home == self.communicator.size])
        if self.draws.collective:
            requested = self._note(finish())
            drawn = self._drawn(key, hop, np.concatenate((self._own, *self._named)))
            of_own, of_others = drawn.cut(len(self._own))
        else:
            of_own = self._drawn(key, hop, self._own)
            requested = self._note(finish())
            of_others = self._drawn(key, hop, np.concatenate(self._named))
        own = self._own_part(of_own, mine)
        replies, sizes = self._answers(of_others, requested)
        received = self._exchange_answers(replies, sizes)
        parts = [
            own if owner == rank else self._unpacked(received[owner], int(named[owner]), int(counts[owner]))
            for owner in range(len(counts))
        ]
        found = self._merged([*parts, *copied], order)
        self._observe(new, home, found)
        return found

    def describe(self, new: np.ndarray) -> list[np.ndarray]:
        """Return original ids, in-degrees, ... of the vertices `new` (int64[k]), in their order. Collective."""
        rank, answers, copies = self.communicator.rank, self.answers, self.copies
        home, order, counts = self._by_owner(new, None if copies is None else copies.known)
        # Own vertices need no message.
        own = self._about(self.shard.own_numbers(new[home == rank]))
        requested = self._start_naming(new[order], counts)()

        # Both sides know the sizes, so none are exchanged.
        sizes = np.array([len(each) for each in requested])
        send = np.empty(int(answers.about_words(sizes).sum()), answers.word)
        start = 0
        for each in requested:
            start = pack(answers.of_vertices, self._about(each), slice(0, len(each)), send, start)
        wanted = counts.copy()
        wanted[rank] = 0
        expected = answers.about_words(wanted)
        receive = np.empty(int(expected.sum()), answers.word)
        self.communicator.exchange(send, answers.about_words(sizes), receive, expected, KIND)
        # Answers arrive by owner; the order of the request is restored at the end.
        begin = np.cumsum(expected) - expected
        parts = [
            own if owner == rank else unpack(answers.of_vertices, count, receive, int(begin[owner]))[0]
            for owner, count in enumerate(counts.tolist())
        ]
        if copies is not None:
            parts.append(copies.about(new[home == self.communicator.size]))
            if copies.observes:
                copies.note_descriptions(new[home != rank], self._description_bytes)
        return _restored(parts, order)

    def copy_most_requested(self, copies: ListCopies) -> None:
        """Fetch what `copies` chooses, and draw from its lists from now on. Collective."""
        known, ids = copies.chosen()
        copies.hold_facts(known, *self.describe(known))
        own, (original, degree) = self.shard.own, copies.about(ids)
        counts = self._by_owner(ids)[2]
        requested = self._start_naming(ids, counts)()

        # Both sides know the in-degrees, so no sizes are exchanged. Sources travel by their ids in the dataset.
        edges, indptr = own.in_edges(np.concatenate(requested)), indptr_of(degree)
        sizes = np.array([int(own.degree(each).sum()) for each in requested])
        expected = np.diff(indptr[indptr_of(counts)])

        def fetched(values: np.ndarray) -> np.ndarray:
            received = np.empty(int(expected.sum()), values.dtype)
            self.communicator.exchange(values, sizes, received, expected, KIND)
            return received

        indices = fetched(self.shard.ids_of(own.indices[edges]).astype(own.indices.dtype))
        relation, time = (None if each is None else fetched(each[edges]) for each in (own.relation, own.edge_time))
        sources = None
        if own.outside_degree is not None:
            # Draws read names of sources: each is held once, and lists hold its place.
            names = fetched(own.original_id[own.indices[edges]])
            sources, first, indices = np.unique(indices, return_index=True, return_inverse=True)
            original, indices = names[first], indices.astype(own.indices.dtype)
        lists = Topology(indptr, indices, original, edge_time=time, relation=relation, types=own.types)
        copies.hold_lists(ids, lists, sources)

    def _copied_part(self, copies: ListCopies, key: DrawKey, hop: int, new: np.ndarray) -> list[OwnerPart]:
        """Return the draws of copied lists as a reply, if any draw; `new` (int64[k]) come after the others. Local."""
        self._copied = np.concatenate((self._copied, new))
        if not len(self._copied):
            return []
        drawn = copies.draw(key, hop, self._copied)
        columns = [] if drawn.relation is None else [drawn.relation]
        return [OwnerPart(np.diff(drawn.indptr), [drawn.neighbours, *columns], copies.about(new))]

    @property
    def _description_bytes(self) -> int:
        """Bytes of a request for facts about a vertex, and of its answer."""
        words = int(self.answers.about_words(np.ones(1, np.int64))[0])
        return self.id_codec.id_bytes + words * self.answers.word.itemsize

    def _observe(self, new: np.ndarray, home: np.ndarray, found: HopDraws) -> None:
        """Note the bytes of the remote draws `found`, and of `new` requests to `home` (int64[k] each)."""
        copies, answers, rank = self.copies, self.answers, self.communicator.rank
        if copies is None or not copies.observes:
            return
        self._ids = np.concatenate((self._ids, new))
        remote, remote_new = self._home != rank, home != rank
        edges = np.diff(found.indptr)[remote]
        one = np.ones_like(edges)
        copies.note_draws(self._ids[remote], answers.answer_words(one, 0 * one, edges) * answers.word.itemsize)
        requests = new[remote_new]
        copies.note_draws(requests, np.full(len(requests), self._description_bytes))
        copies.note_degrees(requests, found.of_vertices[1][remote_new])

    def _by_owner(self, new: np.ndarray, copied: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the owner of each of `new`, their order by owner, and the count of each owner (int64[ranks]).

        With `copied` (int64[n], ascending) these have one more owner, after the ranks, that is not counted.
        """
        home, owners = np.searchsorted(self.rank_offsets, new, side="right") - 1, self.communicator.size
        if copied is not None:
            home[places_among(new, copied) >= 0] = owners
        counts = np.bincount(home, minlength=owners)[:owners].astype(np.int64)
        return home, np.argsort(home, kind="stable"), counts

    def _start_naming(self, ids: np.ndarray, counts: np.ndarray) -> Callable[[], list[np.ndarray]]:
        """Send `ids`, sorted by owner, to other ranks.

        The result waits, and returns the own numbers requested by each.
        """
        rank, network = self.communicator.rank, self.communicator
        # Copied lists need no message, and are the last.
        ids = ids[: int(counts.sum())]
        # Own ids are answered in place and do not travel.
        begin = int(counts[:rank].sum())
        ids = np.concatenate((ids[:begin], ids[begin + int(counts[rank]) :]))
        counts = counts.copy()
        counts[rank] = 0
        theirs = network.exchange_counts(counts)
        received = self.id_codec.empty(int(theirs.sum()))
        end = network.start_exchange(self.id_codec.encode(ids, counts), counts, received, theirs, KIND)

        def finish() -> list[np.ndarray]:
            end()
            named = self.shard.own_numbers(self.id_codec.decode(received, rank))
            return np.split(named, np.cumsum(theirs)[:-1])

        return finish

    def _exchange_answers(self, replies: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
        """Send `replies`, `sizes` words to each rank in turn; return the replies of each rank."""
        expected = self.communicator.exchange_counts(sizes)
        received = np.empty(int(expected.sum()), self.answers.word)
        self.communicator.exchange(replies, sizes, received, expected, KIND)
        return np.split(received, np.cumsum(expected)[:-1])

    def _unpacked(self, words: np.ndarray, named: int, new: int) -> OwnerPart:
        """Unpack the reply `words` of an owner about `named` vertices, `new` of them new."""
        answers = self.answers
        (counts,), start = unpack([NUMBER], named, words, 0)
        about, start = unpack(answers.of_vertices, new, words, start)
        edges, _ = unpack(answers.of_edges, answers.edges_of(len(words), named, new), words, start)
        return OwnerPart(counts, edges, about)

    def _merged(self, parts: Sequence[OwnerPart], order: np.ndarray) -> HopDraws:
        """Merge the owners' replies in the order of the destinations; `order` sorts the new ones by owner."""
        counts, edges = [each.counts for each in parts], [each.of_edges for each in parts]
        about = _restored([each.of_vertices for each in parts], order)
        filled = [owner for owner, each in enumerate(counts) if len(each)]
        if len(filled) == 1:
            return HopDraws(indptr_of(counts[filled[0]]), edges[filled[0]], about)
        vertex_at = indptr_of(np.array([len(each) for each in counts]))[:-1]
        edge_at = indptr_of(np.array([len(each[0]) for each in edges]))
        indptr, places = np.zeros(len(self._home) + 1, np.int64), np.empty(edge_at[-1], np.int64)
        _in_order(self._home, vertex_at, np.concatenate(counts), edge_at[:-1], indptr, places)
        return HopDraws(indptr, [np.concatenate(column)[places] for column in zip(*edges, strict=True)], about)

    def _own_part(self, drawn: OwnerDrawn, new: np.ndarray) -> OwnerPart:
        """Return own draws as a reply, with facts about the `new` ones (own numbers). Local."""
        return OwnerPart(np.diff(drawn.indptr), drawn.of_edges, self._about(new))

    def _nothing_drawn(self, own: OwnerPart, named: int, new: np.ndarray) -> OwnerPart:
        """Return a placeholder reply of an owner of `named` vertices: no draws, `new` ones with their ids."""
        about = [new, *(np.zeros(len(new), column.dtype) for column in own.of_vertices[1:])]
        return OwnerPart(np.zeros(named, np.int64), [column[:0] for column in own.of_edges], about)

    def _note(self, requested: list[np.ndarray]) -> list[np.ndarray]:
        """Add `requested` (own numbers by rank) to the requested vertices. Local."""
        self._named = [np.concatenate(each) for each in zip(self._named, requested, strict=True)]
        return requested

    def _answers(self, drawn: OwnerDrawn, requested: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the replies to all ranks, which newly request `requested`, and the words of each. Local.

        drawn: draws of all vertices requested by them so far.
        """
        answers, (indptr, edges) = self.answers, drawn
        about = self._about(np.concatenate(requested))

        # Each rank's reply is a slice of vertices, new vertices and edges.
        vertices = indptr_of(np.array([len(each) for each in self._named]))
        new = indptr_of(np.array([len(each) for each in requested]))
        bounds = indptr[vertices]
        sizes = answers.answer_words(np.diff(vertices), np.diff(new), np.diff(bounds))
        words, counts = np.empty(int(sizes.sum()), answers.word), np.diff(indptr)
        start = 0
        for rank in range(len(requested)):
            start = pack([NUMBER], [counts], _rows(vertices, rank), words, start)
            start = pack(answers.of_vertices, about, _rows(new, rank), words, start)
            start = pack(answers.of_edges, edges, _rows(bounds, rank), words, start)
        return words, sizes

    def _about(self, numbers: np.ndarray) -> list[np.ndarray]:
        """Return original ids, in-degrees and, with weights, their sums, of own vertices."""
        own = self.shard.own
        found = [own.original_id[numbers], own.degree(numbers)]
        if self.answers.weights:
            assert own.weight_sum is not None, "weights are carried"
            found.append(own.weight_sum[numbers])
        return found

    def _drawn(self, key: DrawKey, hop: int, numbers: np.ndarray, alone: bool = False) -> OwnerDrawn:
        """Draw for own vertices at `hop`."""
        own, answers = self.shard.own, self.answers
        drawn = self.draws.draw(key, hop, numbers, alone)
        # The order of columns is that of the answer's format, by which the requester takes them apart.
        columns = []
        if drawn.weight is not None:
            columns.append(drawn.weight)
        if drawn.relation is not None:
            columns.append(drawn.relation)
        if answers.numbers:
            found = edge_numbers(own, drawn.indptr, drawn.neighbours, numbers)
            columns.append(found + self.shard.first_edge)
            if answers.weights:
                assert own.edge_weight is not None, "weights are carried"
                columns.append(own.edge_weight[found])
        return OwnerDrawn(drawn.indptr, [self.draws.ids_of(drawn.neighbours), *columns])


def _rows(bounds: np.ndarray, rank: int) -> slice:
    return slice(int(bounds[rank]), int(bounds[rank + 1]))


def _restored(parts: Sequence[list[np.ndarray]], order: np.ndarray) -> list[np.ndarray]:
    """Return the columns of the owners in the order before `order` sorted them by owner."""
    columns = []
    for each in zip(*parts, strict=True):
        by_owner = np.concatenate(each)
        values = np.empty_like(by_owner)
        values[order] = by_owner
        columns.append(values)
    return columns
