"""Attention over the relations of a typed graph: scores by edge, softmax within a relation or across all of them.

Edges are in the order of `RelationGroups`: by relation, then destination. What relations multiply is multiplied once
for each destination that has drawn from them, not once for each edge, where sums allow it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import at_sources, softmax_of, softmax_share
from leapmpi.nn.gemm import sum_of_outer, times_transposed
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock, RelationGroups, operations

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

    @property
    def bounds(self) -> list[int]:
        """Beginnings of the edges of each of `groups.relations`, and the end of the last."""
        indptr = self.groups.edges.indptr
        return indptr.index_select(0, indptr.new_tensor(self.groups.bounds)).tolist()

    def weighted(self, score: Tensor) -> Tensor:
        """Add to scores float[edges, heads] what makes their exponentials those of all in-neighbours, estimated."""
        return score if self.weight is None else score + self.weight.to(score.dtype).log().unsqueeze(1)

    def softmax_within(self, score: Tensor) -> Tensor:
        """Take the softmax of scores float[edges, heads] over the edges of a destination and relation."""
        return softmax_of(self.groups.edges, self.weighted(score))

    def softmax_across(self, score: Tensor) -> Tensor:
        """Take the softmax of scores float[edges, heads] over all edges of a destination."""
        return softmax_of(self.edges, self.by_destination(self.weighted(score))).index_select(0, self.groups.order)

    def share_across(self, score: Tensor) -> tuple[Tensor, Tensor]:
        """Do `softmax_across` where these are some of a destination's edges; add the logarithms of `softmax_share`."""
        share, logs = softmax_share(self.edges, self.by_destination(self.weighted(score)))
        return share.index_select(0, self.groups.order), logs

    def by_destination(self, values: Tensor) -> Tensor:
        """Order `values`, float[edges, ...] in the order of `groups`, as `edges`."""
        return torch.empty_like(values).index_copy(0, self.groups.order, values)

    def to_destinations(self, values: Tensor) -> Tensor:
        """Add up `values` of groups, float[groups, width]: float[n_dst, width], relation by relation."""
        out = values.new_zeros(self.groups.destinations, values.shape[1])
        return out.index_add(0, self.groups.destination, values)


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
    for name in ("relation", "relation_sum", "weight"):
        if (values := getattr(block, name, None)) is not None:
            changed[name] = values[read]
    return replace(block, **changed)


class _ProductsByKind(Function):
    @staticmethod
    def forward(ctx, x, weights, kinds, bounds, numbers) -> Tensor:
        out = x.new_empty(bounds[-1], weights.shape[1])
        for kind, part in _parts(kinds, bounds):
            out[part] = times_transposed(*_operand(x, numbers, part, weights[kind]))
        ctx.kinds, ctx.bounds, ctx.numbers = kinds, bounds, numbers
        ctx.save_for_backward(x, weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights = ctx.saved_tensors
        grad, numbers = grad.contiguous(), ctx.numbers
        grad_x = torch.zeros_like(x) if ctx.needs_input_grad[0] else None
        grad_weights = torch.zeros_like(weights) if ctx.needs_input_grad[1] else None
        for kind, part in _parts(ctx.kinds, ctx.bounds):
            given = grad[part]
            if grad_weights is not None:
                rows, _, chosen = _operand(x, numbers, part, weights[kind])
                grad_weights[kind] += sum_of_outer(given, rows, chosen)
            if grad_x is not None:
                of_rows = times_transposed(given, weights[kind].t())
                if numbers is None:
                    grad_x[part] = of_rows
                else:
                    grad_x.index_add_(0, numbers[part], of_rows)
        return grad_x, grad_weights, None, None, None


def products_by_kind(
    x: Tensor, weights: Tensor, kinds: Sequence[int], bounds: Sequence[int], numbers: Tensor | None = None
) -> Tensor:
    """Multiply rows by the matrix of their kind: float[n, out], differentiable in `x` and `weights`.

    x: float[rows, in]; numbers: int64[n], those of the rows to multiply, None for all in their order. weights:
    float[K, out, in]; entries bounds[k] to bounds[k + 1] (exclusive) are multiplied by weights[kinds[k]].
    """
    return _ProductsByKind.apply(x, weights, tuple(kinds), tuple(bounds), numbers)


class _PairProducts(Function):
    @staticmethod
    def forward(ctx, z: Tensor, target: Tensor, edges: Edges, heads: int) -> Tensor:
        ctx.edges = edges
        ctx.save_for_backward(z, target)
        return operations(z.device).edge_products(edges.indptr, edges.indices, target, z, heads)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (z, target), edges, grad = ctx.saved_tensors, ctx.edges, grad.contiguous()
        of_target = operations(z.device).weighted_sum(edges.indptr, edges.indices, grad, z)
        return at_sources(edges, grad, target), of_target, None, None


def pair_products(edges: Edges, z: Tensor, target: Tensor, heads: int) -> Tensor:
    """Compute the product of the rows of both ends of each edge, each head by its columns: float[edges, heads].

    `z` float[sources, width], `target` float[destinations, width]; differentiable in both.
    """
    return _PairProducts.apply(z, target.contiguous(), edges, heads)


def block_diagonal(blocks: Tensor) -> Tensor:
    """Return matrices float[R, B out, B in] whose diagonal blocks are `blocks`, float[R, B, out, in]."""
    one = torch.eye(blocks.shape[1], dtype=blocks.dtype, device=blocks.device)
    apart = blocks.unsqueeze(3) * one[:, None, :, None]
    return apart.reshape(len(blocks), blocks.shape[1] * blocks.shape[2], -1)


def _parts(kinds: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yield each kind that has rows, with their slice."""
    for kind, (first, end) in zip(kinds, pairwise(bounds), strict=True):
        if first < end:
            yield kind, slice(first, end)


def _operand(x: Tensor, numbers: Tensor | None, part: slice, weight: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the operands of a product with the rows of `part`."""
    return (x[part], weight, None) if numbers is None else (x, weight, numbers[part])
