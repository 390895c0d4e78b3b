"""Attention over the relations of a typed graph: scores by edge, softmax within a relation or across all of them.

Edges are in the order of `RelationGroups`: by relation, then destination. What relations multiply is multiplied once
for each destination that has drawn from them, not once for each edge, where sums allow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import repeated, softmax_of, softmax_share
from leapmpi.nn.gemm import product
from leapmpi.nn.kernels import group_softmax
from leapmpi.nn.kernels.csr import arrays
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock, RelationGroups
from leapmpi.system.worker_threads import threads

_RUN = 1 << 14
"""Most edges of a run."""

AnyBlock = TypeVar("AnyBlock", BlockTensors, PartialBlock)


@dataclass(frozen=True, eq=False)
class ReadEdges:
    """The edges of a block that a layer reads.

    edges: by destination. groups: the same edges by relation and destination. relation: int64[edges], in the order of
    `groups`. places: of each of `groups.relations`, its place among those of the layer. weight: float32[edges], those
    of a sampler in the order of `groups`, None without.
    """

    edges: Edges
    groups: RelationGroups
    relation: Tensor
    places: tuple[int, ...]
    weight: Tensor | None

    @classmethod
    def of(cls, block: AnyBlock, place_of: Mapping[int, int]) -> ReadEdges:
        """Return the edges of `block` whose relations have a place in `place_of`."""
        block = without_pruned(block, place_of)
        groups, relation = block.groups, relation_of(block)
        order, places = groups.order, tuple(place_of[r] for r in groups.relations)
        weight = None if block.weight is None else block.weight[order]
        return cls(block.edges, groups, relation[order], places, weight)

    @property
    def sources(self) -> Tensor:
        """int64[edges]: the number of the source of each edge."""
        return self.groups.edges.indices.long()

    @property
    def destinations(self) -> Tensor:
        """int64[edges]: the number of the destination of each edge."""
        return self.groups.destination[self.groups.edges.numbers]

    @cached_property
    def runs(self) -> tuple[Edges, Tensor]:
        """The edges in runs of one relation, and int64[runs]: the place of the relation of each.

        Runs have a bounded length, so that threads share those of a large relation.
        """
        edges, begins, runs = self.groups.edges, [0], []
        of_relations = edges.indptr[edges.indptr.new_tensor(self.groups.bounds)].tolist()
        for place, (first, end) in zip(self.places, pairwise(of_relations), strict=True):
            ends = [*range(first + _RUN, end, _RUN), end]
            begins += ends
            runs += [place] * len(ends)
        return Edges(edges.indptr.new_tensor(begins), edges.indices, edges.sources), edges.indptr.new_tensor(runs)

    def cells(self, relations: int) -> Tensor:
        """Return int64[groups]: the cell of each in a table of destinations by the `relations` of the layer."""
        sizes = [end - first for first, end in pairwise(self.groups.bounds)]
        destination = self.groups.destination
        place, count = destination.new_tensor(self.places), destination.new_tensor(sizes)
        return destination * relations + place.repeat_interleave(count, output_size=len(destination))

    def groups_of(self, edges: Tensor) -> Tensor:
        """Return the groups of `edges`, int64[k] by their numbers in the block."""
        numbers = torch.empty_like(self.groups.order).index_copy_(0, self.groups.order, self.groups.edges.numbers)
        return numbers.index_select(0, edges)

    def terms(self, x: Tensor, weights: Tensor) -> Tensor:
        """Multiply the row of each edge's destination by the row of weights of its relation: float[edges, heads].

        x: float[destinations, in]; weights: float[relations of the layer, heads, in].
        """
        relations, heads = weights.shape[:2]
        table = product(x, weights.flatten(0, 1)).view(-1, heads)
        return repeated(self.groups.edges, table.index_select(0, self.cells(relations)))

    def weighted(self, score: Tensor) -> Tensor:
        """Add to scores float[edges, heads] what makes their exponentials those of all in-neighbours, estimated."""
        return score if self.weight is None else score + self.weight.to(score.dtype).log().unsqueeze(1)

    def softmax_within(self, score: Tensor) -> Tensor:
        """Take the softmax of scores float[edges, heads] over the edges of a destination and relation."""
        return softmax_of(self.groups.edges, self.weighted(score))

    def share_within(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Do `softmax_within`; return the logarithms of `softmax_share` of all groups, too."""
        return softmax_share(self.groups.edges, self.weighted(score))

    def softmax_across(self, score: Tensor) -> Tensor:
        """Take the softmax of scores float[edges, heads] over all edges of a destination."""
        score = self.weighted(score)
        # Groups share rows of destinations, so one thread must run the kernel.
        if on_host(score.device) and threads() == 1:
            return _SoftmaxOfGroups.apply(score.contiguous(), self.groups)
        return self.by_group(softmax_of(self.edges, self.by_destination(score)))

    def share_across(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Do `softmax_across` where these are some of a destination's edges; return `softmax_share`'s logs too."""
        share, logs = softmax_share(self.edges, self.by_destination(self.weighted(score)))
        return self.by_group(share), logs

    def by_destination(self, values: Tensor) -> Tensor:
        """Order `values`, float[edges, heads] in the order of `groups`, as `edges`."""
        return _Reordered.apply(values, self.groups.order, True)

    def by_group(self, values: Tensor) -> Tensor:
        """Order `values`, float[edges, heads] in the order of `edges`, as `groups`."""
        return _Reordered.apply(values, self.groups.order, False)


class _SoftmaxOfGroups(Function):
    """The softmax over all edges of a destination, in the order of `groups`, with the bits of `softmax_of`."""

    @staticmethod
    def forward(ctx, score: Tensor, groups: RelationGroups) -> Tensor:
        ctx.lists = *arrays(groups.edges.indptr, groups.destination), groups.destinations
        share = torch.from_numpy(group_softmax.softmax(*ctx.lists, *arrays(score)))
        ctx.save_for_backward(share)
        return share

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        given = arrays(*ctx.saved_tensors, grad.contiguous())
        return torch.from_numpy(group_softmax.softmax_backward(*ctx.lists, *given)), None


class _Reordered(Function):
    """Row order[i] of values at place i; with `back`, row i at place order[i]. Each is the other's gradient."""

    @staticmethod
    def forward(ctx, values: Tensor, order: Tensor, back: bool) -> Tensor:
        ctx.order, ctx.back = order, back
        return _reordered(values, order, back)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        return _reordered(grad, ctx.order, not ctx.back), None, None


def _reordered(values: Tensor, order: Tensor, back: bool) -> Tensor:
    return torch.empty_like(values).index_copy_(0, order, values) if back else values.index_select(0, order)


def relation_of(block: BlockTensors | PartialBlock) -> Tensor:
    """Return the relations of the edges of `block`, int64[edges]; 0 in a block without."""
    return torch.zeros_like(block.edges.indices).long() if block.relation is None else block.relation.long()


def without_pruned(block: AnyBlock, place_of: Mapping[int, int]) -> AnyBlock:
    """Return `block` with the edges whose relations have a place in `place_of`; itself where these are all."""
    if all(r in place_of for r in block.groups.relations):
        return block
    edges, relation = block.edges, relation_of(block)
    read = torch.isin(relation, torch.tensor(list(place_of), device=relation.device))
    before = torch.cat((edges.indptr.new_zeros(1), read.cumsum(0)))
    changed: dict[str, Any] = {"edges": Edges(before[edges.indptr], edges.indices[read], edges.sources)}
    for name in ("relation", "relation_sum", "relation_count", "weight"):
        if (values := getattr(block, name, None)) is not None:
            changed[name] = values[read]
    return replace(block, **changed)


def block_diagonal(blocks: Tensor) -> Tensor:
    """Return matrices float[R, B out, B in] whose diagonal blocks are `blocks`, float[R, B, out, in]."""
    one = torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    apart = blocks.unsqueeze(3) * one[:, None, :, None]
    return apart.reshape(len(blocks), blocks.shape[1] * blocks.shape[2], -1)
