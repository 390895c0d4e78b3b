"""Routes of shares and rows for the destinations of one rank, fixed by its lists; no weights are read.

The requester finds the fewest shares and rows that serve its remote edges, and names them to their owners: destinations
with their edges, and sources. What will be received can be counted before anything is named.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.comm.id_codec import IdCodec
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.feeds.partial import MixedRows
from leapmpi.exchange.items import RemoteItems, fewest_items, pairs_by_owner
from leapmpi.exchange.named_edges import EdgeNames, KnownEdges, words_of
from leapmpi.exchange.own_lists import OwnLists
from leapmpi.exchange.partial_block import LocalEdges, local_edges
from leapmpi.exchange.stage import Route, by_rank
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.sharded.answer_format import AnswerFormat, answer_format
from leapmpi.sampling.sharded.remote_lists import KIND as TOPOLOGY

HIDDEN = "activations"
"""The kind under which hidden rows, projected rows and shares are counted."""

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class ChunkItems:
    """The edges of destinations: from own vertices, `here`, and remote ones with the items that serve them."""

    here: LocalEdges
    far_indptr: np.ndarray
    """int64[n + 1]: where the remote edges of each destination start in `here.others`."""
    remote: RemoteItems

    @classmethod
    def of(cls, lists: OwnLists, destinations: np.ndarray, rank: int) -> ChunkItems:
        """Find the items for `destinations` (int64 ascending, of this rank). Local."""
        topology, numbers = lists.topology, lists.numbers(destinations)
        indptr = indptr_of(topology.degree(numbers))
        # Consecutive lists are a view of the topology, not a copy of their entries.
        if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
            neighbours = topology.indices[topology.indptr[numbers[0]] : topology.indptr[numbers[-1] + 1]]
        else:
            neighbours = topology.in_neighbours(numbers)
        here = local_edges(indptr, neighbours, lists.first, lists.end)
        far_indptr = indptr - here.indptr
        pairs = pairs_by_owner(numbers, far_indptr, here.others, lists.bounds, rank, False)
        return cls(here, far_indptr, fewest_items(far_indptr, here.others, lists.bounds, pairs))

    def named_edges(self, lists: OwnLists) -> np.ndarray:
        """Count the edges that shares serve, which are named to their owners: int64[ranks]."""
        numbers = self.here.others[self.remote.edge_rows < 0]
        return np.bincount(lists.owner_of(numbers), minlength=len(lists.bounds) - 1)

    def naming(self, vertices: int, id_bytes: int) -> dict[str, int]:
        """Count the bytes, by kind, that name the items, in a graph of `vertices`. Local."""
        counts = len(self.remote.destinations), np.count_nonzero(self.remote.edge_rows < 0)
        shares, edges = map(np.array, counts)
        answers = naming_format(vertices)
        words = int(words_of(answers, shares, shares, edges))
        return {TOPOLOGY: words * answers.word.itemsize, "ids": len(self.remote.rows) * id_bytes}


class ShareRoutes:
    """The routes for `destinations` (int64, of this rank), once they are named to owners. Collective to construct.

    named: the destinations, without edges. own, sent: partial blocks of own values, for own destinations and for those
    that others named. route: of items, for a matrix of one row per destination; mixed: rows among the items.
    """

    def __init__(self, ctx: RankContext, lists: OwnLists, destinations: np.ndarray, items: ChunkItems) -> None:
        self._lists, (first, _), communicator = lists, ctx.local_range, ctx.communicator
        numbers, remote = lists.numbers(destinations), items.remote
        facts = np.diff(items.here.indptr) + np.diff(items.far_indptr), lists.degrees_of(numbers)
        nothing = Edges(torch.zeros(len(numbers) + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 0)
        original = torch.from_numpy(lists.topology.original_id[numbers])
        self.named = BlockTensors(0, len(numbers), nothing, original, torch.from_numpy(facts[1]), None)

        # Name destinations with their edges, and the rows.
        theirs, share_counts = _names(ctx, lists, destinations, facts, items).exchange(communicator)
        codec = IdCodec.home_ranks(ctx.rank_offsets)
        wanted, row_counts = communicator.exchange_ids(lists.ids(remote.rows), remote.row_counts, codec)
        shares, rows = np.arange(len(theirs.destinations)), len(theirs.destinations) + np.arange(len(wanted))

        # Items that arrive, by owner: shares go to destinations, rows to their edges.
        each, places = (remote.pair_counts, remote.row_counts), np.arange(len(remote.rows))
        marks = np.zeros(len(remote.destinations), bool), np.ones(len(places), bool)
        positions = by_rank((remote.destinations, places), each)
        self.route = Route(len(numbers), None, positions, remote.counts, share_counts + row_counts)
        own_names = self._degrees(np.arange(lists.first, lists.end))
        self.sent = _block(theirs.indptr, theirs.neighbours - first, theirs.sampled, theirs.degree, own_names)
        self.own = _block(items.here.indptr, items.here.rows, *facts, own_names, numbers - lists.first)
        self.mixed = MixedRows(
            sent_rows=wanted - first,
            sent_order=by_rank((shares, rows), (share_counts, row_counts)),
            received=by_rank(marks, each),
            block=self._received(items, facts),
        )

    def _received(self, items: ChunkItems, facts: tuple[np.ndarray, np.ndarray]) -> PartialBlock:
        """Make the block of the edges that received rows serve."""
        kept = items.remote.edge_rows >= 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[items.far_indptr]
        return _block(indptr, items.remote.edge_rows[kept], *facts, self._degrees(items.remote.rows))

    def _degrees(self, numbers: np.ndarray) -> Tensor:
        """Return int64[k], in-degrees of vertices with these numbers; zeros where lists do not name sources."""
        named = not self._lists.topology.unnamed
        return torch.from_numpy(self._lists.degrees_of(numbers) if named else np.zeros(len(numbers), np.int64))


def _names(
    ctx: RankContext, lists: OwnLists, destinations: np.ndarray, facts: tuple[np.ndarray, np.ndarray], items: ChunkItems
) -> EdgeNames:
    """Make the names of the remote edges that shares serve."""
    kept, remote = items.remote.edge_rows < 0, items.remote
    indptr, numbers = np.concatenate(([0], np.cumsum(kept)))[items.far_indptr], items.here.others[kept]
    known = KnownEdges(destinations, *facts, indptr, lists.ids(numbers), None, None, None, None)
    return EdgeNames(
        known, lists.owner_of(numbers), remote.pair_counts, remote.destinations, naming_format(ctx.vertices)
    )


def _block(
    indptr: np.ndarray,
    rows: np.ndarray,
    sampled: np.ndarray,
    degree: np.ndarray,
    degrees: Tensor,
    own_rows: np.ndarray = _NOTHING,
) -> PartialBlock:
    """Make the block of edges from `rows`, integers[edges], to destinations, with facts int64[n] of these.

    degrees: int64[k], in-degrees of all rows. own_rows: int64[n], the rows of own destinations.
    """
    tensor = torch.from_numpy
    return PartialBlock(
        edges=Edges(tensor(indptr), tensor(rows.astype(np.int32, copy=False)), len(degrees)),
        sampled=tensor(sampled),
        dst_degree=tensor(degree),
        src_original=tensor(_NOTHING),
        src_degree=degrees,
        local=(torch.arange(len(own_rows)), tensor(own_rows)),
    )


def naming_format(vertices: int) -> AnswerFormat:
    """Return the words in which ids, degrees and counts are named to owners, in a graph of so many vertices."""
    return answer_format(vertices, 0)
