"""The tensors of a Block on a device, and the edge lists that aggregation reads, made on first use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.nn.carried_attention import CarriedAttention
from leapmpi.nn.kernels import csr, csr_torch
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.relation_groups import group_edges
from leapmpi.sampling.block import Block
from leapmpi.system.counter_rng import DrawKey


def operations(device: torch.device) -> ModuleType:
    """Return the module that implements sums over edges on `device`."""
    return csr if on_host(device) else csr_torch


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges by destination: those of destination i are indptr[i] to indptr[i + 1]."""

    indptr: Tensor
    """int64[destinations + 1]."""
    indices: Tensor
    """int32[edges] (int64 off the CPU): source rows."""
    sources: int

    @property
    def destinations(self) -> int:
        """Number of destinations."""
        return len(self.indptr) - 1

    @cached_property
    def transposed(self) -> tuple[Edges, Tensor]:
        """The same edges by source, and int64[edges]: their numbers in this list."""
        indptr, indices, number = operations(self.indptr.device).transpose(self.indptr, self.indices, self.sources)
        return Edges(indptr, indices, len(self.indptr) - 1), number

    @cached_property
    def counts(self) -> Tensor:
        """int64[destinations]: edges of each destination."""
        return self.indptr.diff()

    @cached_property
    def numbers(self) -> Tensor:
        """int64[edges]: the number of the destination of each edge."""
        rows = torch.arange(self.destinations, device=self.indptr.device)
        return rows.repeat_interleave(self.counts, output_size=len(self.indices))

    def of_destinations(self, first: int, end: int) -> tuple[Edges, slice]:
        """Return the edges of destinations `first` to `end` (exclusive), and their slice of this list."""
        indptr = self.indptr[first : end + 1]
        edges = slice(int(indptr[0]), int(indptr[-1]))
        return Edges(indptr - edges.start, self.indices[edges], self.sources), edges


@dataclass(frozen=True, eq=False)
class EdgeWeights:
    """The weights of the dataset's edges in a block: float32[edges], and the sums that they are divided by.

    drawn, dst_sum: float64[n_dst], the sum over the sampled in-edges of a destination on all ranks, and over all of its
    in-edges in the graph; src_sum: float64[n_src], that of each source.
    """

    edges: Tensor
    drawn: Tensor
    dst_sum: Tensor
    src_sum: Tensor

    def share(self, counts: Tensor, weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return float[edges], each edge's share in the estimated weighted mean over a destination's in-neighbours.

        It is the weight over the sum of those drawn. Where the sampler weights its edges too, it is the product of both
        weights over the sum of all, so that edges drawn in proportion to their weights count alike. 0 where a sum is 0.
        """
        each, total = self.edges.to(dtype), self.drawn
        if weight is not None:
            each, total = each * weight.to(dtype), self.dst_sum
        of_rows = torch.where(total > 0, total, 1.0).to(dtype)
        return each / of_rows.repeat_interleave(counts, output_size=len(each))

    def of_destinations(self, first: int, end: int, kept: slice) -> EdgeWeights:
        """Return the weights of destinations `first` to `end` (exclusive), whose edges are `kept`."""
        return EdgeWeights(self.edges[kept], self.drawn[first:end], self.dst_sum[first:end], self.src_sum)


@dataclass(frozen=True, eq=False)
class RelationGroups:
    """The edges of a block by relation and destination: a group is the edges of one relation to one destination.

    edges: from sources to groups, which are ordered by relation, then destination. order: int64[edges], the number of
    each of these edges in the block. relations: those with groups, ascending; bounds[k] to bounds[k + 1] are the groups
    of relations[k]. destination: int64[groups], that of each, below `destinations`.
    """

    edges: Edges
    order: Tensor
    relations: tuple[int, ...]
    bounds: tuple[int, ...]
    destination: Tensor
    destinations: int

    @classmethod
    def of(cls, edges: Edges, relation: Tensor | None) -> RelationGroups:
        """Group `edges`; relations, integers[edges], ascend within a destination, None for 0 everywhere."""
        relation = torch.zeros_like(edges.indices) if relation is None else relation
        order, first, destination, bounds = group_edges(edges.indptr, relation)
        return cls(
            edges=Edges(first, edges.indices[order], edges.sources),
            order=order,
            relations=tuple(np.flatnonzero(np.diff(bounds)).tolist()),
            bounds=(0, *bounds[1:][np.diff(bounds) > 0].tolist()),
            destination=destination,
            destinations=edges.destinations,
        )


@dataclass(frozen=True, eq=False)
class BlockTensors:
    """A Block's arrays as tensors on one device; destinations are the first `n_dst` sources."""

    hop: int
    n_dst: int
    edges: Edges
    known_original: Tensor
    """int64[n_src], or int64[n_dst] where no layer reads those of the other sources: original ids."""
    known_degree: Tensor
    """Likewise, in-degrees in the whole graph."""
    weight: Tensor | None
    """float32[edges]: with it, the sum of weight x value estimates the sum over all in-neighbours."""
    weights: EdgeWeights | None = None
    """The weights of the dataset's edges, where they are used."""
    edge_features: Tensor | None = None
    """float[edges, Fe]: the features of the dataset's edges, where a layer reads them."""
    edge_numbers: Tensor | None = None
    """int64[edges]: positions of the edges in the topology, where a device drew them and data of edges are used."""
    relation: Tensor | None = None
    """uint8[edges], or int32[edges] with more than 256 relations: those of the edges of a typed graph, else None."""
    ages: Tensor | None = None
    """float32[n_src, AGES]: as in a Block."""
    own_rows: Tensor | None = None
    """int64[n_dst]: the number of each destination's own row, where these are not the first rows."""
    sums: dict[tuple[type, torch.dtype], Tensor] | None = None
    """Sums of features by kind and type of layer, kept where several models read the same ones."""
    attention: CarriedAttention | None = None
    """The link by which layers that mix their attention with that of the layer below hand it on."""

    @property
    def n_src(self) -> int:
        """Number of sources, destinations included."""
        return self.edges.sources

    @property
    def src_original(self) -> Tensor:
        """int64[n_src]: original ids, the vertices' names in dropout masks."""
        return self._of_sources(self.known_original)

    @property
    def src_degree(self) -> Tensor:
        """int64[n_src]: in-degrees in the whole graph."""
        return self._of_sources(self.known_degree)

    @property
    def dst_original(self) -> Tensor:
        """int64[n_dst]: original ids of the destinations."""
        return self.known_original[: self.n_dst]

    @property
    def dst_degree(self) -> Tensor:
        """int64[n_dst]: in-degrees of the destinations in the whole graph."""
        return self.known_degree[: self.n_dst]

    def mask_names(self, key: DrawKey | None, rate: float) -> Tensor:
        """Return the original ids int64[n] that masks of `rate` read: of all sources, or the known ones without masks.

        `key` is that of the masks, None in evaluation, where nothing is dropped.
        """
        return self.src_original if key is not None and rate > 0 else self.known_original

    def _of_sources(self, known: Tensor) -> Tensor:
        if len(known) < self.n_src:
            raise RuntimeError("a layer reads names or degrees of sources, but its traits say reads_names=False")
        return known

    @property
    def edge_weight(self) -> Tensor | None:
        """float32[edges]: the weights of the dataset's edges, None without."""
        return None if self.weights is None else self.weights.edges

    @cached_property
    def edges_with_self(self) -> Edges:
        """The edges, with one from each destination to itself before its others."""
        indptr, indices = operations(self.edges.indptr.device).with_self(self.edges.indptr, self.edges.indices)
        return Edges(indptr, indices, self.n_src)

    def values_with_self(self, own: Tensor, others: Tensor) -> Tensor:
        """Merge `own` (float[n_dst, ...]) of self edges with `others` (float[edges, ...]), in their order."""
        edges = self.edges_with_self
        values = others.new_empty((len(edges.indices), *others.shape[1:]))
        # Places, not a mask: a mask's number of entries is known to the device alone.
        values[edges.indptr[:-1]] = own
        values[torch.arange(len(others), device=others.device) + self.edges.numbers + 1] = others
        return values

    def share(self, dtype: torch.dtype) -> Tensor:
        """Return float[edges]: each edge's share in the estimated mean over all in-neighbours of its destination.

        It is a weighted mean where edges have weights.
        """
        if self.weights is not None:
            return self.weights.share(self.edges.counts, self.weight, dtype)
        return self.plain_share(dtype)

    def plain_share(self, dtype: torch.dtype) -> Tensor:
        """Return `share`, float[edges], without the weights of the dataset's edges."""
        edges = self.edges
        return csr_torch.shares(edges.indptr, len(edges.indices), None, self.weight, self.dst_degree, dtype)

    @cached_property
    def groups(self) -> RelationGroups:
        """The edges by relation and destination."""
        return RelationGroups.of(self.edges, self.relation)

    def relation_share(self, dtype: torch.dtype) -> Tensor:
        """Return each edge's share in the mean of its destination and relation: float[edges], in the order of `groups`.

        One over the number of its drawn edges, or weight over the sum of their weights.
        """
        edges, order = self.groups.edges, self.groups.order
        if self.weight is None:
            share = edges.counts.double().reciprocal_()
            return share.repeat_interleave(edges.counts, output_size=len(edges.indices)).to(dtype)
        weight = self.weight.double()[order]
        sums = weight.new_zeros(edges.destinations).index_add_(0, edges.numbers, weight)
        return (weight / sums[edges.numbers]).to(dtype)


def as_tensor_dtype(relation: np.ndarray) -> np.ndarray:
    """Return relations, uint8[n] as they are, others as int32[n]: torch computes little with uint16."""
    return relation if relation.dtype == np.uint8 else relation.astype(np.int32)


def drawn_there(block: Block, device: torch.device) -> bool:
    """Return whether `block` was drawn on `device`, so that its tensors are there."""
    return block.tensors is not None and block.tensors.edges.indptr.device == device


def to_tensors(block: Block, device: torch.device | str = "cpu") -> BlockTensors:
    """Return the tensors of `block` on `device`; on the CPU they share the block's memory."""
    device = torch.device(device)
    if drawn_there(block, device):
        return block.tensors

    def tensor(array: np.ndarray) -> Tensor:
        array = np.ascontiguousarray(array)
        return torch.from_numpy(array if array.flags.writeable else array.copy()).to(device, non_blocking=True)

    # torch indexes by int64 alone on devices; kernels of the host read int32.
    indices = tensor(block.indices)
    edges = Edges(tensor(block.indptr), indices if on_host(device) else indices.long(), block.n_src)
    weight = None if block.weight is None else tensor(block.weight)
    weights = None
    if block.edge_weight is not None and block.drawn_weight is not None and block.src_weight_sum is not None:
        sums = tensor(block.src_weight_sum)
        weights = EdgeWeights(tensor(block.edge_weight), tensor(block.drawn_weight), sums[: block.n_dst], sums)
    names = tensor(block.src_original), tensor(block.src_degree)
    relation = None if block.relation is None else tensor(as_tensor_dtype(block.relation))
    ages = None if block.ages is None else tensor(block.ages)
    return BlockTensors(block.hop, block.n_dst, edges, *names, weight, weights, relation=relation, ages=ages)


@dataclass(frozen=True, eq=False)
class PartialBlock:
    """The part of a block whose sources are rows of this rank; destinations may be those of any rank's block.

    Unlike in a block, destinations need not be sources: `local` pairs those that are.
    """

    edges: Edges
    """From source rows of this rank to destinations: the sampled edges that start here."""
    sampled: Tensor
    """int64[n_dst]: sampled in-neighbours of each destination on all ranks together."""
    dst_degree: Tensor
    """int64[n_dst]: in-degrees in the whole graph."""
    src_original: Tensor
    """int64[n_src]: original ids of the rows."""
    src_degree: Tensor
    """int64[n_src]: in-degrees of the rows in the whole graph."""
    local: tuple[Tensor, Tensor]
    """int64[k] each: destinations of this rank, ascending, and the number of their row."""
    weight: Tensor | None = None
    """float32[edges]: as in a block."""
    weights: EdgeWeights | None = None
    """As in a block."""
    sent: Tensor | None = None
    """float[n_dst or runs, sent_width]: numbers received from destinations with an edge here, where they are read."""
    relation: Tensor | None = None
    """As in a block."""
    relation_sum: Tensor | None = None
    """float64[edges], with relations: edges that its destination drew of its relation on all ranks, or weights."""
    relation_count: Tensor | None = None
    """int64[edges]: the number of those edges, present where the sampler gives weights."""
    dst_original: Tensor | None = None
    """int64[n_dst]: original ids of the destinations, where the layer's masks read them."""
    runs: tuple[Tensor, Tensor] | None = None
    """int64[runs]: the first edge of each destination and relation; int64[k]: the runs with edges elsewhere too."""
    begun: tuple[Tensor, ...] = ()
    """Values of `ShareForm.begin`, then logarithms over all ranks, float[k, log_width]."""

    @property
    def n_src(self) -> int:
        """Number of source rows."""
        return self.edges.sources

    @property
    def edge_weight(self) -> Tensor | None:
        """float32[edges]: the weights of the dataset's edges, None without."""
        return None if self.weights is None else self.weights.edges

    @property
    def n_dst(self) -> int:
        """Number of destinations."""
        return len(self.sampled)

    def share(self, dtype: torch.dtype) -> Tensor:
        """Return float[edges]: each edge's share in the estimated mean, as in a block."""
        weights = self.weights
        return self.plain_share(dtype) if weights is None else weights.share(self.edges.counts, self.weight, dtype)

    def plain_share(self, dtype: torch.dtype) -> Tensor:
        """Return `share`, float[edges], without the weights of the dataset's edges."""
        edges = self.edges
        return csr_torch.shares(edges.indptr, len(edges.indices), self.sampled, self.weight, self.dst_degree, dtype)

    @cached_property
    def groups(self) -> RelationGroups:
        """As in a block."""
        return RelationGroups.of(self.edges, self.relation)

    def relation_share(self, dtype: torch.dtype) -> Tensor:
        """Return shares as in a block: float[edges], in the order of `groups`."""
        assert self.relation_sum is not None, "blocks of typed graphs know what each destination drew of a relation"
        each = torch.ones_like(self.relation_sum) if self.weight is None else self.weight.double()
        return (each / self.relation_sum)[self.groups.order].to(dtype)

    @property
    def edges_with_self(self) -> Edges:
        """The edges, with one from each destination of this rank to itself before its others."""
        return self._with_self[0]

    def values_with_self(self, own: Tensor, others: Tensor) -> Tensor:
        """Merge `own` [local destinations, ...] of self edges with `others` [edges, ...], in their order."""
        values = others.new_empty((len(own) + len(others), *others.shape[1:]))
        values[self._with_self[1]], values[self._with_self[2]] = own, others
        return values

    @cached_property
    def _with_self(self) -> tuple[Edges, Tensor, Tensor]:
        """Edges with self edges, and int64: places of self edges and of the others among them."""
        edges, (destinations, rows) = self.edges, self.local
        before = torch.zeros_like(self.sampled).index_fill_(0, destinations, 1).cumsum(0)
        indptr, every = edges.indptr + F.pad(before, (1, 0)), torch.arange(len(edges.indices), device=before.device)
        own, others = indptr[:-1][destinations], every + before[edges.numbers]
        indices = edges.indices.new_empty(len(own) + len(others))
        indices[own], indices[others] = rows.to(indices.dtype), edges.indices
        return Edges(indptr, indices, self.n_src), own, others

    def split(self, destinations: int) -> tuple[PartialBlock, PartialBlock]:
        """Split into blocks of the first `destinations` and of the others; they share the sources, and memory."""
        return self.of_destinations(0, destinations), self.of_destinations(destinations, self.n_dst)

    def of_destinations(self, first: int, end: int) -> PartialBlock:
        """Return the block of destinations `first` to `end` (exclusive), which shares the sources, and memory."""
        (edges, kept), (destinations, rows) = self.edges.of_destinations(first, end), self.local
        # Destinations with own rows ascend, so those of the range follow each other.
        among = slice(*torch.searchsorted(destinations, destinations.new_tensor([first, end])).tolist())
        return PartialBlock(
            edges,
            self.sampled[first:end],
            self.dst_degree[first:end],
            self.src_original,
            self.src_degree,
            (destinations[among] - first, rows[among]),
            None if self.weight is None else self.weight[kept],
            None if self.weights is None else self.weights.of_destinations(first, end, kept),
            None if self.sent is None else self.sent[first:end],
            None if self.relation is None else self.relation[kept],
            None if self.relation_sum is None else self.relation_sum[kept],
            None if self.relation_count is None else self.relation_count[kept],
            None if self.dst_original is None else self.dst_original[first:end],
        )
