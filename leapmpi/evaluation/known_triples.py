"""Typed edges known in an evaluation, of training or held back: ranks of an edge are filtered by them.

Known are the destinations of (source, relation), and the sources of (destination, relation), of the edges to score.
"""

from __future__ import annotations

import numpy as np

from leapmpi.dataset.edge_splits import EdgeSplits
from leapmpi.dataset.topology import Topology, places_among
from leapmpi.sampling.block import indptr_of
from leapmpi.sampling.typed_negatives import DESTINATION, SOURCE

_AT_ONCE = 1 << 22
"""Edges of the topology that are looked up at a time."""


class KnownTriples:
    """Known partners of the ends of `edges`, int64[k, 3] of sources, destinations and relations."""

    def __init__(self, topology: Topology, splits: EdgeSplits, edges: np.ndarray) -> None:
        assert topology.types is not None, "the graph is typed"
        self._types, self._original, self._vertices = topology.types, topology.original_id, topology.vertices
        self._found = {each: self._partners(topology, splits, edges, each) for each in (SOURCE, DESTINATION)}

    def are_known(self, edges: np.ndarray, candidates: np.ndarray, replaced: int) -> np.ndarray:
        """Return bool[k]: whether `candidates` (int64[k]) in place of the end `replaced` of `edges` make known edges.

        edges: int64[k, 3], among those of the constructor.
        """
        queries, indptr, partners = self._found[replaced]
        number = np.searchsorted(queries, self._code(edges, 1 - replaced))
        pairs = np.repeat(np.arange(len(queries)), np.diff(indptr)) * np.int64(self._vertices) + partners
        return places_among(number * np.int64(self._vertices) + candidates, pairs) >= 0

    def mask(self, edges: np.ndarray, replaced: int, first: int, end: int) -> np.ndarray:
        """Return bool[k, end - first]: which vertices `first` to `end` are not candidates for the end `replaced`.

        edges: int64[k, 3]. Excluded are vertices of other types, and all known partners of the end that stays. That end
        itself is a candidate, as in published scores.
        """
        wanted = self._types.ends[edges[:, 2], replaced]
        out = self._types.of_original(self._original[first:end]) != wanted[:, None]
        queries, indptr, partners = self._found[replaced]
        number = np.searchsorted(queries, self._code(edges, 1 - replaced))
        for row, (low, high) in enumerate(zip(indptr[number], indptr[number + 1], strict=True)):
            known = partners[low:high]
            out[row, known[(known >= first) & (known < end)] - first] = True
        return out

    def _partners(
        self, topology: Topology, splits: EdgeSplits, edges: np.ndarray, replaced: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return codes of the ends that stay, ascending, and the known partners of each: int64[q], [q + 1], [p]."""
        queries = np.unique(self._code(edges, 1 - replaced))
        found = [np.empty((0, 2), np.int64)]
        assert topology.relation is not None, "typed topologies hold relations"
        # A part of the edges at a time: as triples they take several times the memory of the topology.
        for first in range(0, topology.edges, _AT_ONCE):
            chosen = np.arange(first, min(first + _AT_ONCE, topology.edges))
            destinations = np.searchsorted(topology.indptr, chosen, side="right") - 1
            columns = topology.indices[chosen], destinations, topology.relation[chosen]
            triples = np.stack([each.astype(np.int64) for each in columns], axis=1)
            found.append(self._matching(queries, triples, replaced))
        # Filtered ranks leave out known partners of all splits, not of training alone (Bordes et al. 2013).
        for name in ("val", "test"):
            ends, relation = np.array(getattr(splits, name)), getattr(splits, f"{name}_relation")
            if relation is not None:
                triples = np.column_stack([ends, np.asarray(relation).astype(np.int64)])
                found.append(self._matching(queries, triples, replaced))
        pairs = np.unique(np.concatenate(found), axis=0)
        return queries, indptr_of(np.bincount(pairs[:, 0], minlength=len(queries))), pairs[:, 1].copy()

    def _matching(self, queries: np.ndarray, triples: np.ndarray, replaced: int) -> np.ndarray:
        """Return int64[p, 2]: numbers of `queries` that `triples` answer, and their partners."""
        number = places_among(self._code(triples, 1 - replaced), queries)
        hits = number >= 0
        return np.stack([number[hits], triples[hits, replaced]], axis=1)

    def _code(self, edges: np.ndarray, column: int) -> np.ndarray:
        """Return one number for relation and end of each edge, below 2**63."""
        return edges[:, 2] * np.int64(self._vertices) + edges[:, column]
