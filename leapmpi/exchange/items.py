"""The items that a rank requests of the owners of sources: shares of destinations, and projected rows of sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.plan.homes import home_counts, home_rank
from leapmpi.plan.vertex_cover import cover_edges
from leapmpi.sampling.block import Block
from leapmpi.system.jit import compiled

_NOWHERE = -1
"""The place of a row that is not requested."""


@compiled
def pairs_by_owner(destinations, indptr, elsewhere, rank_offsets, rank, with_owner):
    """List the other ranks that each destination depends on, for its neighbours or, `with_owner`, itself.

    `elsewhere` are its neighbours on other ranks, from indptr[i] on. Returns int64[ranks], pairs by owner, and
    int64[pairs], the number of the destination of each, by owner.
    """
    ranks, n_dst = len(rank_offsets) - 1, len(destinations)
    # The last destination that was noted for an owner: each pair is noted once.
    last, counts, place = np.empty(ranks, np.int64), np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    last[:] = -1
    total = 0
    pairs = np.empty((len(elsewhere) + n_dst, 2), np.int64)
    for i in range(n_dst):
        # The destination itself comes before its edges.
        for e in range(indptr[i] - with_owner, indptr[i + 1]):
            owner = home_rank(destinations[i] if e < indptr[i] else elsewhere[e], rank_offsets)
            if owner != rank and last[owner] != i:
                last[owner] = i
                counts[owner] += 1
                pairs[total, 0], pairs[total, 1] = owner, i
                total += 1
    # Sort the pairs by owner, stably.
    for owner in range(1, ranks):
        place[owner] = place[owner - 1] + counts[owner - 1]
    numbers = np.empty(total, np.int64)
    for k in range(total):
        owner = pairs[k, 0]
        numbers[place[owner]] = pairs[k, 1]
        place[owner] += 1
    return counts, numbers


@compiled
def _pairs_of_edges(indptr, others, rank_offsets, starts, destinations, of_edge):
    """Write the pair of each remote edge. Pairs of owner r begin at starts[r], ordered by their destinations."""
    place = starts.copy()
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            owner = home_rank(others[e], rank_offsets)
            while destinations[place[owner]] < i:
                place[owner] += 1
            of_edge[e] = place[owner]


@compiled
def _pairs_of(indptr, indices, home, chosen, ranks):
    """List the distinct pairs of an owner and a destination that reads `chosen` rows of it, its own row included.

    Returns int64, owner * n_dst + destination, ascending.
    """
    n_dst = len(indptr) - 1
    last, counts = np.full(ranks, -1, np.int64), np.zeros(ranks + 1, np.int64)
    found = np.empty((len(indices) + n_dst, 2), np.int64)
    total = 0
    for i in range(n_dst):
        for e in range(indptr[i] - 1, indptr[i + 1]):
            # The destination itself comes before its edges.
            source = i if e < indptr[i] else np.int64(indices[e])
            if chosen[source] and last[home[source]] != i:
                last[home[source]] = i
                counts[home[source] + 1] += 1
                found[total, 0], found[total, 1] = home[source], i
                total += 1
    # Destinations ascend already, so that a counting sort by owner puts pairs in order.
    place = np.cumsum(counts)
    pairs = np.empty(total, np.int64)
    for k in range(total):
        owner = found[k, 0]
        pairs[place[owner]] = owner * n_dst + found[k, 1]
        place[owner] += 1
    return pairs


@dataclass(frozen=True, eq=False)
class Items:
    """Requested items.

    pairs: int64, owner * n_dst + destination, ascending. rows: int64, positions of sources, by owner. edge_rows:
    int64[edges], the place among `rows` of the source of an edge that no share serves, -1 for all other edges.
    """

    pairs: np.ndarray
    rows: np.ndarray
    edge_rows: np.ndarray

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self.pairs) + len(self.rows)


def items_of(
    block: Block, home: np.ndarray, chosen: np.ndarray, ranks: int, exact: bool = True, mixes: bool = True
) -> Items:
    """Find the items that serve the edges of `block` from `chosen` sources, and these where they are destinations.

    home: int64[n_src], the owner of each source; chosen: bool[n_src]. The items are the fewest, or nearly so where not
    `exact`; they are shares alone unless `mixes`.
    """
    edge_rows = np.full(block.edges, _NOWHERE, np.int64)
    if not mixes:
        return Items(_pairs_of(block.indptr, block.indices, home, chosen, ranks), np.empty(0, np.int64), edge_rows)

    # One key for each pair of owner and destination, so that sorting them orders pairs by owner.
    edges = np.flatnonzero(chosen[block.indices])
    of_edge = np.searchsorted(block.indptr, edges, side="right") - 1
    themselves = np.flatnonzero(chosen[: block.n_dst])
    owners = np.concatenate((home[block.indices[edges]], home[themselves]))
    keys = owners * block.n_dst + np.concatenate((of_edge, themselves))
    pairs, numbers = np.unique(keys, return_inverse=True)
    if not len(edges):
        return Items(pairs, themselves[:0], edge_rows)

    # Owners add what destinations give to themselves, whatever else is requested.
    forced = np.zeros(len(pairs), bool)
    forced[numbers[len(edges) :]] = True
    sources = block.indices[edges].astype(np.int64)
    by_owner = None if exact else pairs // block.n_dst
    as_share, as_row, by_rows = cover_edges(numbers[: len(edges)], sources, block.n_src, forced, by_owner)

    # Owners receive requests by rank; rows of one owner keep their order.
    rows = np.flatnonzero(as_row)
    rows = rows[np.argsort(home[rows], kind="stable")]
    place = np.full(block.n_src, _NOWHERE, np.int64)
    place[rows] = np.arange(len(rows))
    edge_rows[edges[by_rows]] = place[sources[by_rows]]
    return Items(pairs[as_share], rows, edge_rows)


@dataclass(frozen=True, eq=False)
class RemoteItems:
    """Items that serve the remote edges of some destinations, where vertices of a rank have consecutive numbers.

    pair_counts: int64[ranks], requested shares of each owner; destinations: int64[pairs], by owner. rows: int64,
    ascending numbers of requested rows; row_counts: int64[ranks]. edge_rows: int64[remote edges], the place among
    `rows` of the source of an edge that no share serves, -1 for all others.
    """

    pair_counts: np.ndarray
    destinations: np.ndarray
    rows: np.ndarray
    row_counts: np.ndarray
    edge_rows: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """int64[ranks]: items of each owner."""
        return self.pair_counts + self.row_counts


def fewest_items(
    indptr: np.ndarray,
    others: np.ndarray,
    bounds: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    forced: np.ndarray | None = None,
) -> RemoteItems:
    """Find the items that serve remote edges, nearly the fewest.

    The remote sources `others` (int64) of destination i begin at indptr[i] (int64[n + 1]); bounds[r] to bounds[r + 1]
    are the numbers of rank r. pairs: as `pairs_by_owner` returns them; forced: bool[pairs], pairs that need a share.
    """
    # Pairs are in order of owner and destination, so the pair of each edge is found in one walk.
    counts, destinations = pairs
    ranks = len(counts)
    owner = np.repeat(np.arange(ranks), counts)
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    of_edge = np.empty(len(others), np.int64)
    _pairs_of_edges(indptr, others, bounds, starts, destinations, of_edge)

    # Edges of different owners share neither rows nor pairs, so one cover serves all owners at once.
    sources, numbers = np.unique(others, return_inverse=True)
    forced = np.zeros(len(owner), bool) if forced is None else forced
    as_share, as_row, by_rows = cover_edges(of_edge, numbers, len(sources), forced, owner)
    kept, rows = np.flatnonzero(as_share), sources[as_row]
    places = np.where(by_rows, np.cumsum(as_row)[numbers] - 1, _NOWHERE)
    return RemoteItems(
        pair_counts=np.bincount(owner[kept], minlength=ranks).astype(np.int64),
        destinations=destinations[kept],
        rows=rows,
        row_counts=home_counts(rows, bounds),
        edge_rows=places,
    )
