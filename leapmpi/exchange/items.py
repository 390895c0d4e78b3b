"""The items that a rank requests of the owners of sources: shares of destinations, and projected rows of sources."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.plan.vertex_cover import cover_edges
from leapmpi.sampling.block import Block

_NOWHERE = -1
"""The place of a row that is not requested."""


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
        """The number of items."""
        return len(self.pairs) + len(self.rows)


def items_of(
    block: Block, home: np.ndarray, chosen: np.ndarray, ranks: int, exact: bool = True, mixes: bool = True
) -> Items:
    """Find the items that serve the edges of `block` from `chosen` sources, and these where they are destinations.

    home: int64[n_src], the owner of each source; chosen: bool[n_src]. The items are the fewest, or nearly so where not
    `exact`; they are shares alone unless `mixes`.
    """
    edges = np.flatnonzero(chosen[block.indices])
    of_edge = np.searchsorted(block.indptr, edges, side="right") - 1
    themselves = np.flatnonzero(chosen[: block.n_dst])
    owners = np.concatenate((home[block.indices[edges]], home[themselves]))
    keys = owners * block.n_dst + np.concatenate((of_edge, themselves))
    pairs, numbers = np.unique(keys, return_inverse=True)
    edge_rows = np.full(block.edges, _NOWHERE, np.int64)
    if not mixes or not len(edges):
        return Items(pairs, themselves[:0], edge_rows)

    # Owners add what destinations give to themselves, whatever else is requested.
    forced = np.zeros(len(pairs), bool)
    forced[numbers[len(edges) :]] = True
    sources = block.indices[edges].astype(np.int64)
    by_owner = None if exact else pairs // block.n_dst
    as_share, as_row, by_rows = cover_edges(numbers[: len(edges)], sources, block.n_src, forced, by_owner)

    rows = np.flatnonzero(as_row)
    rows = rows[np.argsort(home[rows], kind="stable")]
    place = np.full(block.n_src, _NOWHERE, np.int64)
    place[rows] = np.arange(len(rows))
    edge_rows[edges[by_rows]] = place[sources[by_rows]]
    return Items(pairs[as_share], rows, edge_rows)
