"""Layers whose aggregate is a weighted sum of projected rows, and their shares, computed without autograd.

A share takes the cheaper of two ways. One sums rows and projects the sums. The other projects every row once, for all
shares, and sums the products. Both are written by hand, forward and backward, for rows without gradients: autograd
takes longer. The whole layer is one step of autograd, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import at_sources, weighted_sum
from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.gemm import add_product, product_step, sum_of_outer, times_transposed
from leapmpi.nn.kernels import csr
from leapmpi.nn.kernels.kernel_choice import on_host, plus_matmul
from leapmpi.nn.layer import Layer, Projection, plain_prefix, projects_first, raw_sums
from leapmpi.nn.layer_forms import NO_PROMISES, LayerTraits, RawSums, ShareForm
from leapmpi.nn.rows import Rows, ScatteredRows, dense, select
from leapmpi.nn.share_forms import SUM, PartialStep
from leapmpi.nn.tensors import BlockTensors, Edges, PartialBlock, operations
from leapmpi.system.jit import compiled

_MANY = 0.9
"""Share of rows read, below which the others are not projected."""


@dataclass(frozen=True)
class ShareTerms:
    """Of what a share is the sum, besides the self part that is projected by other weights.

    weight: float[edges], that of each edge. own: float[k], that of the row of each of `PartialBlock.local`, or None.
    """

    weight: Tensor
    own: Tensor | None = None


class SumLayer(Layer):
    """Base of layers that sum projected rows, by weights that the block alone decides. Sub-classes set `neighbour`."""

    neighbour: Projection

    def __init_subclass__(cls, traits: LayerTraits = NO_PROMISES, **kwargs: Any) -> None:
        super().__init_subclass__(traits, **kwargs)
        if traits.plain_sums and (changed := [name for name, (own, base) in _parts(cls).items() if own is not base]):
            raise TypeError(f"{cls.__name__} promises plain sums, but has its own {' and '.join(changed)}")

    @property
    def own_projection(self) -> Projection | None:
        """The projection that makes the self part of destinations; None where that is one of the summed rows."""
        return None

    def edge_sums(self, block: BlockTensors, dtype: torch.dtype) -> tuple[Edges, Tensor]:
        """Return edges and their weights float[edges], which `aggregate` sums by; the block alone decides them."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it sums")

    def project(self, x: Rows) -> Tensor:
        return self.neighbour(x)

    def aggregate(self, block: BlockTensors, z: Rows, key: DropoutKey | None) -> Tensor:
        edges, weight = self.edge_sums(block, z.dtype)
        return weighted_sum(edges, z, weight)

    def _from_rows(self, block: BlockTensors, rows: Rows, x: Rows, key: DropoutKey | None) -> Tensor:
        # Sums that other models read are kept by `aggregate`.
        plain = self.traits.plain_sums and self.residual is None and block.sums is None
        if not plain or not isinstance(rows, Tensor):
            return super()._from_rows(block, rows, x, key)
        own = None if self.own_projection is None else self.own_projection.weight
        sums, first = self.edge_sums(block, rows.dtype), projects_first(self, block, rows)
        return autograd_step(rows, self.neighbour.weight, own, self.bias, *sums, first, not self.last)

    @property
    def shares(self) -> ShareForm | None:
        raw_share = self.raw_share if self.traits.sums_ahead else None
        return ShareForm(SUM, self.out_dim, self.partial, None, raw_share, self._by_hand, self._by_hand_apart)

    @property
    def sums(self) -> RawSums:
        weights: tuple[Tensor, ...] = ()
        if self.traits.plain_sums:
            weights = tuple(each.weight for each in (self.neighbour, self.own_projection) if each is not None)
        return replace(raw_sums(self), share=self.raw_share, weights=weights)

    def share_terms(self, block: PartialBlock, dtype: torch.dtype) -> ShareTerms:
        """Return the weights of the sums in a share. Local."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its shares sum")

    def partial(self, block: PartialBlock, x: Rows, key: DropoutKey | None) -> Tensor:
        """Sum this rank's terms, with the self parts of destinations that are owned here."""
        rows = self.prefix(x, block.src_original, key)
        if projects_first(self, block, rows):
            shares = self.raw_share(block, self.project(rows))
        else:
            shares = self.project(self.raw_share(block, rows))
        own, (destinations, local_rows) = self.own_projection, block.local
        return shares if own is None else shares.index_add(0, destinations, own(rows, local_rows))

    def raw_share(self, block: PartialBlock, rows: Rows) -> Tensor:
        """Return the terms of `rows`, projected or not, in the sums."""
        return self._summed(block, rows, self.share_terms(block, rows.dtype))

    def _by_hand(self, block: PartialBlock, x: Rows) -> PartialStep | None:
        if not isinstance(x, Tensor | ScatteredRows) or not self._is_by_hand(x) or projects_first(self, block, x):
            return None
        return self._summed_first(block, x)

    def _by_hand_apart(
        self, block: PartialBlock, local: int, x: Rows
    ) -> tuple[PartialStep, Callable[[], PartialStep]] | None:
        if not isinstance(x, Tensor | ScatteredRows) or not self._is_by_hand(x) or not on_host(x.device):
            return None
        if not projects_first(self, block, x):
            return None
        shares = _ProjectedShares(self, block, x)
        return shares.last_step(local), lambda: shares.step(0, local)

    def _summed(self, block: PartialBlock, rows: Rows, terms: ShareTerms) -> Tensor:
        """Compute `raw_share` by the `terms` of `block`."""
        sums, (destinations, local_rows) = weighted_sum(block.edges, rows, terms.weight), block.local
        if terms.own is None:
            return sums
        return sums.index_add(0, destinations, dense(select(rows, local_rows)) * terms.own.unsqueeze(1))

    def _is_by_hand(self, x: Tensor | ScatteredRows) -> bool:
        """Return whether shares of `x` are those of this class, of rows without gradients."""
        as_here = type(self).partial is SumLayer.partial and type(self).project is SumLayer.project
        return as_here and plain_prefix(self) and not x.requires_grad

    @torch.no_grad()
    def _summed_first(self, block: PartialBlock, x: Tensor | ScatteredRows) -> PartialStep:
        """Compute shares of rows that are summed before they are projected."""
        shares, learn_sums = product_step(self.raw_share(block, x), self.neighbour.weight)
        backward_own = self._add_own(shares, block, x)

        def backward(gradient: Tensor) -> None:
            learn_sums(gradient)
            backward_own(gradient)

        return shares, backward

    def _add_own(self, shares: Tensor, block: PartialBlock, x: Tensor | ScatteredRows) -> Callable[[Tensor], None]:
        """Add the self parts by `own_projection` to `shares`; what learns from the gradient of shares."""
        if self.own_projection is None:
            return lambda gradient: None
        destinations, local_rows = block.local
        parts, backward = product_step(x, self.own_projection.weight, local_rows)
        operations(shares.device).add_rows(shares, destinations, parts)
        return lambda gradient: backward(gradient.index_select(0, destinations))


def _parts(kind: type[SumLayer]) -> dict[str, tuple[object, object]]:
    """Return the methods of `kind` that plain sums are made of, each with that of the base."""
    return {
        "forward": (kind.forward, SumLayer.forward),
        "_from_rows": (kind._from_rows, SumLayer._from_rows),
        "project": (kind.project, SumLayer.project),
        "aggregate": (kind.aggregate, SumLayer.aggregate),
        "activation": (kind.activation, Layer.activation),
        "finish": (kind.finish, Layer.finish),
    }


class _ProjectedShares:
    """Shares of `block` from its rows `x`. Each row is projected once, unless it is among many that nobody reads.

    Gradients of projected rows add up, and then reach the weights once.
    """

    @torch.no_grad()
    def __init__(self, layer: SumLayer, block: PartialBlock, x: Tensor | ScatteredRows) -> None:
        self._block, self._x, self._terms = block, x, layer.share_terms(block, x.dtype)
        self._own = None if layer.own_projection is None else layer.own_projection.weight
        self._indices, rows = block.edges.indices, None
        self._destinations, self._local_rows = block.local
        own = (self._local_rows,) if self._own is None else ()
        read = rows_read((self._indices, *own), block.n_src)
        if len(read.rows) < _MANY * block.n_src:
            self._indices, rows = read.numbers(self._indices), read.rows
            self._local_rows = read.numbers(self._local_rows) if own else self._local_rows
        self._projected, self._learn = product_step(x, layer.neighbour.weight, rows)

    def last_step(self, first: int) -> PartialStep:
        """Compute `step` for the shares from `first` on, whose gradient is passed on last."""
        shares, backward = self.step(first, self._block.n_dst)

        def backward_all(gradient: Tensor) -> None:
            backward(gradient)
            self._learn(self._gradient)

        return shares, backward_all

    @torch.no_grad()
    def step(self, first: int, end: int) -> PartialStep:
        """Compute shares of destinations `first` to `end`; return a function that takes their gradient too."""
        edges, kept = self._block.edges.of_destinations(first, end)
        indices, weight = self._indices[kept], self._terms.weight[kept]
        shares = csr.weighted_sum(edges.indptr, indices, weight.unsqueeze(1), self._projected)
        backward_self_parts = self._add_self_parts(shares, first, end)

        @torch.no_grad()
        def backward(gradient: Tensor) -> None:
            csr.add_to_sources(self._gradient, edges.indptr, indices, weight, gradient)
            backward_self_parts(gradient)

        return shares, backward

    @cached_property
    def _gradient(self) -> Tensor:
        """The gradient of projected rows, zeros when its first part comes."""
        return torch.zeros_like(self._projected)

    def _add_self_parts(self, shares: Tensor, first: int, end: int) -> Callable[[Tensor], None]:
        """Add the self parts of destinations `first` to `end` to their `shares`; what learns from their gradient."""
        pairs = slice(*torch.searchsorted(self._destinations, torch.tensor([first, end])).tolist())
        destinations, rows = self._destinations[pairs] - first, self._local_rows[pairs]
        if self._own is not None:
            parts, learn = product_step(self._x, self._own, rows)
            csr.add_rows(shares, destinations, parts)
            return lambda gradient: learn(gradient.index_select(0, destinations))
        if self._terms.own is None:
            return lambda gradient: None
        scale = self._terms.own[pairs].unsqueeze(1)
        csr.add_rows(shares, destinations, self._projected.index_select(0, rows).mul_(scale))
        return lambda gradient: csr.add_rows(self._gradient, rows, gradient.index_select(0, destinations).mul_(scale))


def autograd_step(
    rows: Tensor,
    neighbour: Tensor,
    own: Tensor | None,
    bias: Tensor,
    edges: Edges,
    weight: Tensor,
    projects_first: bool,
    activates: bool,
) -> Tensor:
    """Return act(W_neighbour sum of weighted rows + W_own row of the destination + bias).

    `rows` is float[n_src, in], destinations first; `neighbour` and `own` float[out, in], no own rows where that is
    None; `bias` float[out]; `weight` float[edges]. The activation is the rectifier, or none. With `projects_first` rows
    are multiplied before they are summed. Differentiable in rows, weights of the layer, and bias.
    """
    return _AutogradStep.apply(rows, neighbour, own, bias, edges, weight.unsqueeze(1), projects_first, activates)


class _AutogradStep(Function):
    @staticmethod
    def forward(ctx, rows, neighbour, own, bias, edges, weight, projects_first, activates) -> Tensor:
        sums = operations(rows.device).weighted_sum
        # Off the host a product and the bias are one operation.
        bias_first = not on_host(rows.device) and not projects_first
        if projects_first:
            summed = rows
            out = sums(edges.indptr, edges.indices, weight, times_transposed(rows, neighbour))
        else:
            summed = sums(edges.indptr, edges.indices, weight, rows)
            out = plus_matmul(bias, summed, neighbour.t()) if bias_first else times_transposed(summed, neighbour)
        if own is not None:
            add_product(out, rows[: out.shape[0]], own)
        if not bias_first:
            out.add_(bias)
        if activates:
            out.relu_()
        ctx.edges, ctx.projects_first, ctx.activates = edges, projects_first, activates
        # Only what the backward pass reads is kept: rows are the largest array of a step.
        kept = rows if own is not None or projects_first else None
        ctx.save_for_backward(kept, summed, neighbour, own, weight, out if activates else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, summed, neighbour, own, weight, out = ctx.saved_tensors
        of_rows, of_neighbour, of_own, of_bias = ctx.needs_input_grad[:4]
        grad = (torch.ops.aten.threshold_backward(grad, out, 0) if ctx.activates else grad).contiguous()
        grad_bias = grad.sum(0) if of_bias else None

        # The weights of own rows, then those of neighbours; of what is summed first, the sums are read.
        grad_own = sum_of_outer(grad, rows[: grad.shape[0]]) if of_own else None
        at_rows = at_sources(ctx.edges, weight, grad) if ctx.projects_first else grad
        grad_neighbour = sum_of_outer(at_rows, summed) if of_neighbour else None
        if not of_rows:
            return None, grad_neighbour, grad_own, grad_bias, None, None, None, None

        grad_rows = times_transposed(at_rows, neighbour.t())
        if not ctx.projects_first:
            grad_rows = at_sources(ctx.edges, weight, grad_rows)
        if own is not None:
            add_product(grad_rows[: grad.shape[0]], grad, own.t())
        return grad_rows, grad_neighbour, grad_own, grad_bias, None, None, None, None


@compiled
def _mark(numbers, marks):
    for e in range(len(numbers)):
        marks[numbers[e]] = True


@compiled
def _number_marked(marks, rows, place):
    """Write the marked rows into `rows`, and the number of each among them into `place`; returns how many there are."""
    count = 0
    for row in range(len(marks)):
        if marks[row]:
            rows[count] = row
            place[row] = count
            count += 1
    return count


@compiled
def _look_up(numbers, place, out):
    for e in range(len(numbers)):
        out[e] = place[numbers[e]]


@dataclass(frozen=True)
class RowsRead:
    """`rows` int64[k], ascending; `place` int32[sources]: the number of each row among them, arbitrary for others."""

    rows: Tensor
    place: np.ndarray

    def numbers(self, of_rows: Tensor) -> Tensor:
        """Return the places in `rows` of those numbered `of_rows` (int32 or int64[n]): of its dtype."""
        found = torch.empty_like(of_rows)
        _look_up(of_rows.contiguous().numpy(), self.place, found.numpy())
        return found


def rows_read(numbers: Sequence[Tensor], sources: int) -> RowsRead:
    """Return those of `sources` rows that are in any of `numbers` (int32 or int64[n] each, on the host)."""
    marks = np.zeros(sources, np.bool_)
    for each in numbers:
        _mark(each.contiguous().numpy(), marks)
    rows, place = np.empty(sources, np.int64), np.empty(sources, np.int32)
    count = _number_marked(marks, rows, place)
    return RowsRead(torch.from_numpy(rows[:count]), place)
