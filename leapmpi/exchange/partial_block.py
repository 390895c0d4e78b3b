"""Cutting blocks to the edges that start at given rows: the local rows of a rank, or all rows for P3.

The sampled neighbours of a destination come from a block, or from a draw repeated by the owner of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from leapmpi.dataset.topology import Topology
from leapmpi.exchange.named_edges import KnownEdges
from leapmpi.features.fetcher import FeatureFetcher
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.layer import Layer, copying_cost, least_cost, plain_prefix
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors, Edges, EdgeWeights, PartialBlock, as_tensor_dtype
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.system.jit import compiled


@compiled
def _cut(indptr, neighbours, first, rows, here_indptr, here, elsewhere):
    """Split edges by their sources: rows `first` to `first` + `rows`, as numbers counted from `first`, and other ids.

    Returns the number of edges that start here. `here` and `elsewhere` have room for all edges, and one entry more.
    """
    # Both are written for each edge, and only one advances: a branch here would be mispredicted half of the time.
    edges, count = np.int64(0), np.uint64(rows)
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            row = neighbours[e] - first
            here[edges] = row
            elsewhere[e - edges] = neighbours[e]
            # A row below 0 is a large number without its sign.
            edges += np.int64(np.uint64(row) < count)
        here_indptr[i + 1] = edges
    return edges


@compiled
def _number(rows, place, known, distinct, numbers):
    """Number `rows` in order of first appearance, after `known` ones; return the new count.

    New rows are written to `distinct`. place: int32, by row its number, -1 without.
    """
    for k in range(len(rows)):
        if place[rows[k]] < 0:
            place[rows[k]] = known
            distinct[known] = rows[k]
            known += 1
        numbers[k] = place[rows[k]]
    return known


@compiled
def _count_new(rows, seen, stamp):
    """Count the distinct ones of `rows` whose entry of `seen` is not `stamp` yet, and set it."""
    count = 0
    for k in range(len(rows)):
        count += seen[rows[k]] != stamp
        seen[rows[k]] = stamp
    return count


@dataclass(frozen=True, eq=False)
class LocalEdges:
    """The edges of some destinations that start at local rows."""

    indptr: np.ndarray
    """int64[n + 1]: offsets of the edges of each destination."""
    rows: np.ndarray
    """int32[edges here]: rows by their numbers in place, in the order of all edges, as `others`."""
    others: np.ndarray
    """int64[other edges]: numbers of remote sources."""


@dataclass
class LocalShare:
    """The contribution of local rows to some destinations: a partial `block`, and the rows that it reads.

    vertices: int64, those of the rows; None for all rows of this rank in place. read: the number of distinct rows that
    edges or destinations name. wanted: int64[k], positions of further requested rows; None for none.
    """

    block: PartialBlock
    vertices: np.ndarray | None
    read: int
    wanted: np.ndarray | None = None

    def rows(self, inputs: FeatureFetcher, scattered: bool) -> Rows:
        """Return the rows; with `scattered`, without copies where possible."""
        if self.vertices is not None:
            return inputs.local(self.vertices, scattered)
        assert inputs.whole is not None, "`suit_in_place` has seen to it"
        return inputs.whole


def local_edges(indptr: np.ndarray, neighbours: np.ndarray, first: int, end: int) -> LocalEdges:
    """Split the edges of destinations by whether their source is one of `first` to `end` (exclusive).

    neighbours: integers[edges], sources by number; indptr: int64[n + 1], offsets of those of each destination.
    """
    here_indptr, here = np.zeros(len(indptr), np.int64), np.empty(len(neighbours) + 1, np.int32)
    elsewhere = np.empty(len(neighbours) + 1, np.int64)
    edges = _cut(indptr, neighbours, first, end - first, here_indptr, here, elsewhere)
    return LocalEdges(here_indptr, here[:edges], elsewhere[: len(neighbours) - edges])


def destinations_of(block: Block, device: torch.device) -> BlockTensors:
    """Return the destinations of `block` on `device`, without edges."""
    indptr, indices = torch.zeros(block.n_dst + 1, dtype=torch.int64), torch.empty(0, dtype=torch.int32)
    nothing = Edges(indptr.to(device), indices.to(device), block.n_dst)
    original, degree = (torch.tensor(each).to(device) for each in (block.dst_original, block.dst_degree))
    return BlockTensors(block.hop, block.n_dst, nothing, original, degree, None)


class PartialBlockBuilder:
    """Makes the partial blocks of the rows of vertices `first` to `end` (exclusive)."""

    def __init__(self, topology: Topology, first: int, end: int, device: torch.device, numbered_from: int = 0) -> None:
        """Use `topology`, which holds these vertices at least; `numbered_from` is the id of its first one."""
        self.topology, self.first, self.end, self.device = topology, first, end, device
        self._numbered_from = numbered_from
        self._place = np.full(end - first, -1, np.int32)
        self._seen, self._stamp = np.zeros(end - first, np.int32), 0

    def cut(self, indptr: np.ndarray, neighbours: np.ndarray) -> LocalEdges:
        """Return the edges that start here, and the others, of destinations whose `neighbours` are int64[edges].

        indptr: int64[n + 1], where those of each destination start.
        """
        return local_edges(indptr, neighbours, self.first, self.end)

    def share(
        self,
        layer: Layer,
        inputs: FeatureFetcher,
        indptr: np.ndarray,
        neighbours: np.ndarray,
        destinations: np.ndarray,
        sampled: np.ndarray | None = None,
    ) -> LocalShare:
        """Return the contribution of the rows to `destinations` (int64[n]), read in the cheaper way.

        indptr: int64[n + 1], offsets of the sampled neighbours (int64, global ids) of each destination.
        sampled: int64[n], the number that each one sampled, where `neighbours` no longer holds all of them.
        """
        known = KnownEdges.listed(self.topology, destinations, indptr, neighbours, sampled=sampled)
        return self.share_of(layer, inputs, [(known, self.cut(indptr, neighbours))])

    def share_of(
        self,
        layer: Layer,
        inputs: FeatureFetcher,
        groups: Sequence[tuple[KnownEdges, LocalEdges]],
        with_own: bool = True,
        wanted: np.ndarray | None = None,
    ) -> LocalShare:
        """Return the contribution of these rows to the destinations of `groups`, read in the cheaper way.

        groups: destinations with all their edges, and the same `cut`, one group after the other. with_own: whether the
        layer reads the rows of destinations among these. wanted: int64[k], further vertices whose rows are read.
        """
        known, here = zip(*groups, strict=True)
        destinations = _joined(known, "destinations")
        local = np.flatnonzero((destinations >= self.first) & (destinations < self.end) & with_own)

        # Rows in place need no copy and no numbering, but a layer that projects then projects all of them.
        numbers, local_rows, vertices = _joined(here, "rows"), destinations[local] - self.first, None
        further = np.empty(0, np.int64) if wanted is None else wanted - self.first
        if self.suit_in_place(layer, inputs, sum(len(each.neighbours) for each in known), len(destinations)):
            count, read = self.end - self.first, self._distinct(numbers, local_rows, further)
            original, degrees = self._original_ids, self._degrees
        else:
            rows, (numbers, local_rows, further) = self._numbered(numbers, local_rows, further)
            vertices, count, read = rows + self.first, len(rows), len(rows)
            original = self._on_device(self.topology.original_id[vertices - self._numbered_from])
            degrees = self._on_device(self.topology.degree(vertices - self._numbered_from))

        # Neither way reorders edges, so a mask over all edges picks the weights of those kept.
        weight, kept = _joined(known, "weight"), None
        relation, sums, counts = (_joined(known, name) for name in ("relation", "relation_sum", "relation_count"))
        if weight is not None or known[0].edge_weight is not None or relation is not None:
            neighbours = _joined(known, "neighbours")
            kept = (neighbours >= self.first) & (neighbours < self.end)
            weight = None if weight is None else weight[kept]
        block = PartialBlock(
            edges=self._edges(_joined_indptr(here), numbers, count),
            sampled=self._on_device(_joined(known, "sampled")),
            dst_degree=self._on_device(_joined(known, "degree")),
            src_original=original,
            src_degree=degrees,
            local=(self._on_device(local), self._on_device(local_rows)),
            weight=None if weight is None else self._on_device(weight),
            weights=None if kept is None else self._weights(known, kept, vertices),
            relation=None if relation is None else self._on_device(as_tensor_dtype(relation[kept])),
            relation_sum=None if sums is None else self._on_device(sums[kept]),
            relation_count=None if counts is None else self._on_device(counts[kept]),
        )
        return LocalShare(block, vertices, read, None if wanted is None else further)

    def _weights(
        self, known: Sequence[KnownEdges], kept: np.ndarray, vertices: np.ndarray | None
    ) -> EdgeWeights | None:
        """Return the weights of the `kept` edges (bool[edges]) with their sums; None where edges have none.

        vertices: int64, those of the rows; None for all rows in place.
        """
        if known[0].edge_weight is None:
            return None
        assert self.topology.weight_sum is not None, "weights are held with their sums"
        # A shard has sums of own vertices alone, counted from its first one.
        rows = self._numbers if vertices is None else vertices - self._numbered_from
        sums = _joined(known, "drawn_weight"), _joined(known, "weight_sum"), self.topology.weight_sum[rows]
        return EdgeWeights(self._on_device(_joined(known, "edge_weight")[kept]), *map(self._on_device, sums))

    def suit_in_place(self, layer: Layer, inputs: FeatureFetcher, edges: int, destinations: int) -> bool:
        """Return whether `layer` should read all rows in place: none is copied, but if any are projected, all are.

        `edges` and `destinations` are those of the whole layer, not only of these rows.
        """
        if not inputs.in_place or not plain_prefix(layer):
            return False
        rows = self.end - self.first
        most = min(edges + destinations, rows)
        # The prefix is plain here, so scattered rows are read in place too.
        copied = 0 if inputs.scatters else copying_cost(layer, most)
        collected = copied + least_cost(layer, most, destinations, edges)
        return least_cost(layer, rows, destinations, edges) <= collected

    def _distinct(self, *rows: np.ndarray) -> int:
        """Count the distinct ones among all `rows`."""
        self._stamp += 1
        return sum(int(_count_new(each, self._seen, self._stamp)) for each in rows)

    def _numbered(self, *rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the distinct ones of all `rows`, int64[k] in order of first appearance, and each row's place there."""
        distinct, known = np.empty(sum(map(len, rows)), np.int64), 0
        numbers = [np.empty_like(each) for each in rows]
        for each, found in zip(rows, numbers, strict=True):
            known = int(_number(each, self._place, known, distinct, found))
        distinct = distinct[:known].copy()
        self._place[distinct] = -1
        return distinct, numbers

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
        """Return the distinct ones of `vertices` (int64[k], all of these rows), and their places there: int64[k]."""
        rows, (numbers,) = self._numbered(vertices - self.first)
        return rows + self.first, numbers

    def _edges(self, indptr: np.ndarray, indices: np.ndarray, rows: int) -> Edges:
        numbers = torch.from_numpy(indices)
        keeps = on_host(self.device)
        return Edges(self._on_device(indptr), numbers if keeps else numbers.long().to(self.device), rows)

    def _on_device(self, positions: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(positions).to(self.device)


def _joined(groups: Sequence[Any], name: str) -> Any:
    """Concatenate the arrays `name` of all groups; None where there are none."""
    arrays = [getattr(each, name) for each in groups]
    return None if arrays[0] is None else np.concatenate(arrays)


def _joined_indptr(groups: Sequence[LocalEdges]) -> np.ndarray:
    """Return offsets of the edges of each destination, int64, where those of the groups follow each other."""
    return indptr_of(np.concatenate([np.diff(each.indptr) for each in groups]))
