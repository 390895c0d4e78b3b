"""Cutting blocks to the edges that start at given rows: the local rows of a rank, or all rows for P3.

Which neighbours a destination sampled comes from a block, or is drawn again by the owner of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.engine.exchange.named_edges import KnownEdges
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Layer
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import Edges, EdgeWeights, PartialBlock
from leapmpi.system.jit import compiled


@compiled
def _keep_local(indptr, neighbours, first, end, place, kept, rows):
    """Edges whose source lies in [first, end): int64 indptr and int32 row numbers, and the distinct sources.

    `place` (int32[end - first], all -1) numbers rows in order of first appearance in `rows`; `kept` receives edges.
    """
    n = len(indptr) - 1
    kept_indptr = np.zeros(n + 1, np.int64)
    edges = known = 0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            vertex = neighbours[e]
            if first <= vertex < end:
                if place[vertex - first] < 0:
                    place[vertex - first] = known
                    rows[known] = vertex
                    known += 1
                kept[edges] = place[vertex - first]
                edges += 1
        kept_indptr[i + 1] = edges
    return kept_indptr, edges, known


@compiled
def _number_local(vertices, first, place, known, rows, numbers):
    """Number local `vertices` as `_keep_local` does, after its `known` rows; clears `place`. The new count."""
    for i in range(len(vertices)):
        if place[vertices[i] - first] < 0:
            place[vertices[i] - first] = known
            rows[known] = vertices[i]
            known += 1
        numbers[i] = place[vertices[i] - first]
    for k in range(known):
        place[rows[k] - first] = -1
    return known


@compiled
def _keep_in_place(indptr, neighbours, first, end, kept_indptr, kept):
    """Edges whose source lies in [first, end), as row numbers counted from `first`; returns the number of them."""
    edges = 0
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            row = neighbours[e] - first
            kept[edges] = row
            edges += 0 <= row < end - first
        kept_indptr[i + 1] = edges
    return edges


@compiled
def _count_new(rows, seen, stamp):
    """How many of `rows` do not bear `stamp` in `seen` yet, each counted once; they bear it afterwards."""
    count = 0
    for k in range(len(rows)):
        count += seen[rows[k]] != stamp
        seen[rows[k]] = stamp
    return count


@dataclass
class LocalShare:
    """What local rows contribute to some destinations: a partial `block`, and the rows that it reads.

    vertices: int64, those of the rows; None for all rows of this rank in place. read: the number of distinct rows that
    edges or destinations name. order: int64, the order in which the rows of `Layer.partial` are used; None for theirs.
    sent: int64[k] each, the destinations that an edge from here leads to, and the row of each in what they send first.
    """

    block: PartialBlock
    vertices: np.ndarray | None
    read: int
    order: np.ndarray | None = None
    sent: tuple[np.ndarray, np.ndarray] | None = None

    def rows(self, inputs: FeatureFetcher, scattered: bool) -> Rows:
        """The rows; with `scattered` none is copied where that can be."""
        if self.vertices is not None:
            return inputs.local(self.vertices, scattered)
        assert inputs.whole is not None, "`suit_in_place` has seen to it"
        return inputs.whole


class PartialBlockBuilder:
    """Makes the partial blocks of the rows of vertices `first` to `end` (exclusive)."""

    def __init__(self, topology: Topology, first: int, end: int, device: torch.device, numbered_from: int = 0) -> None:
        """`topology` holds these vertices at least; `numbered_from` is the id of its first one."""
        self.topology, self.first, self.end, self.device = topology, first, end, device
        self._numbered_from = numbered_from
        self._place = np.full(end - first, -1, np.int32)
        self._seen, self._stamp = np.zeros(end - first, np.int32), 0

    def share(
        self,
        layer: Layer,
        inputs: FeatureFetcher,
        indptr: np.ndarray,
        neighbours: np.ndarray,
        destinations: np.ndarray,
        sampled: np.ndarray | None = None,
        weight: np.ndarray | None = None,
    ) -> LocalShare:
        """What the rows contribute to `destinations` (int64[n]), read in the cheaper way.

        indptr: int64[n + 1], where the sampled neighbours (int64, global ids) of each destination start.
        sampled: int64[n], how many each one sampled, where `neighbours` does not hold all of them any more.
        weight: float32[edges], the weights of `neighbours` where the sampler weights its edges.
        """
        known = KnownEdges.listed(self.topology, destinations, indptr, neighbours, weight, sampled)
        return self.share_of(layer, inputs, known)

    def share_of(self, layer: Layer, inputs: FeatureFetcher, known: KnownEdges, with_own: bool = True) -> LocalShare:
        """What the rows contribute to the destinations of `known`, read in the cheaper way. Reads these rows alone.

        with_own: whether the layer reads the rows of destinations among these.
        """
        indptr, neighbours, destinations = known.indptr, known.neighbours, known.destinations
        local = np.flatnonzero((destinations >= self.first) & (destinations < self.end) & with_own)
        vertices = None
        if self.suit_in_place(layer, inputs, len(neighbours), len(destinations)):
            edges, local_rows, read = self._in_place(indptr, neighbours, destinations[local])
            original, degrees = self._original_ids, self._degrees
        else:
            edges, local_rows, vertices = self._collected(indptr, neighbours, destinations[local])
            read = len(vertices)
            original = self._on_device(self.topology.original_id[vertices - self._numbered_from])
            degrees = self._on_device(self.topology.degree(vertices - self._numbered_from))
        weight, kept = known.weight, None
        if weight is not None or known.edge_weight is not None:
            # Both ways keep the order of the edges.
            kept = (neighbours >= self.first) & (neighbours < self.end)
            weight = None if weight is None else weight[kept]
        block = PartialBlock(
            edges=edges,
            sampled=self._on_device(known.sampled),
            dst_degree=self._on_device(known.degree),
            src_original=original,
            src_degree=degrees,
            local=(self._on_device(local), self._on_device(local_rows)),
            weight=None if weight is None else self._on_device(weight),
            weights=None if kept is None else self._weights(known, kept, vertices),
        )
        return LocalShare(block, vertices, read)

    def _weights(self, known: KnownEdges, kept: np.ndarray, vertices: np.ndarray | None) -> EdgeWeights | None:
        """The weights of the `kept` edges (bool[edges]), sums over all; `vertices` are the rows, None for all in place.

        None where the dataset's edges have none.
        """
        if known.edge_weight is None or known.drawn_weight is None or known.weight_sum is None:
            return None
        assert self.topology.weight_sum is not None, "weights are held with their sums"
        rows = self._numbers if vertices is None else vertices - self._numbered_from
        sums = known.drawn_weight, known.weight_sum, self.topology.weight_sum[rows]
        return EdgeWeights(self._on_device(known.edge_weight[kept]), *map(self._on_device, sums))

    def suit_in_place(self, layer: Layer, inputs: FeatureFetcher, edges: int, destinations: int) -> bool:
        """Whether `layer` should be given all rows: none is copied, but if any are projected, all are.

        `edges` and `destinations` are those of the whole layer, not only of these rows.
        """
        if not inputs.in_place or not layer.plain_prefix:
            return False
        rows = self.end - self.first
        most = min(edges + destinations, rows)
        # Here the prefix is plain, so scattered rows are read where they lie too.
        copied = 0 if inputs.scatters else layer.copying_cost(most)
        collected = copied + layer.least_cost(most, destinations, edges)
        return layer.least_cost(rows, destinations, edges) <= collected

    def _collected(
        self, indptr: np.ndarray, neighbours: np.ndarray, local: np.ndarray
    ) -> tuple[Edges, np.ndarray, np.ndarray]:
        """The edges that start here, the rows (int64) of the `local` destinations, and the int64 ids of all rows."""
        kept, rows = np.empty(len(neighbours), np.int32), np.empty(len(neighbours) + len(local), np.int64)
        local_rows = np.empty(len(local), np.int64)
        kept_indptr, edges, known = _keep_local(indptr, neighbours, self.first, self.end, self._place, kept, rows)
        known = _number_local(local, self.first, self._place, known, rows, local_rows)
        return self._edges(kept_indptr, kept[:edges].copy(), known), local_rows, rows[:known].copy()

    def _in_place(self, indptr: np.ndarray, neighbours: np.ndarray, local: np.ndarray) -> tuple[Edges, np.ndarray, int]:
        """As `_collected`, but all rows are sources, numbered as they lie; at last the number of those read."""
        kept_indptr, kept = np.zeros(len(indptr), np.int64), np.empty(len(neighbours) + 1, np.int32)
        edges = _keep_in_place(indptr, neighbours, self.first, self.end, kept_indptr, kept)
        kept, local_rows = kept[:edges], local - self.first
        self._stamp += 1
        read = sum(int(_count_new(rows, self._seen, self._stamp)) for rows in (kept, local_rows))
        return self._edges(kept_indptr, kept, self.end - self.first), local_rows, read

    @property
    def _numbers(self) -> slice:
        """All rows by their numbers in the topology."""
        return slice(self.first - self._numbered_from, self.end - self._numbered_from)

    @cached_property
    def _original_ids(self) -> torch.Tensor:
        return self._on_device(self.topology.original_id[self._numbers])

    @cached_property
    def _degrees(self) -> torch.Tensor:
        numbers = self._numbers
        return self._on_device(np.diff(self.topology.indptr[numbers.start : numbers.stop + 1]))

    def number(self, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The distinct ones of `vertices` (int64[k], all of these rows), and int64[k]: the place of each among them."""
        rows, numbers = np.empty(len(vertices), np.int64), np.empty(len(vertices), np.int64)
        known = _number_local(vertices, self.first, self._place, 0, rows, numbers)
        return rows[:known].copy(), numbers

    def _edges(self, indptr: np.ndarray, indices: np.ndarray, rows: int) -> Edges:
        numbers = torch.from_numpy(indices)
        keeps = on_host(self.device)
        return Edges(self._on_device(indptr), numbers if keeps else numbers.long().to(self.device), rows)

    def _on_device(self, positions: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(positions).to(self.device)
