"""Softmaxes within relations whose edges are at several owners: logarithms cross ranks before shares.

A group is the drawn edges of one destination and relation. An owner that has all of them takes their softmax alone. Of
other groups each owner sends the logarithm of its sum of exponentials, for each head. The requester adds up the sums
and returns the total. Shares are then normalised before they travel, so that those of all relations add up to one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.context import RankContext
from leapmpi.exchange.stage import ComputedApart, PickedRows, Route, Stage
from leapmpi.nn.share_forms import LogarithmCombination
from leapmpi.nn.tensors import PartialBlock
from leapmpi.plan.homes import home_of
from leapmpi.sampling.block import Block, indptr_of
from leapmpi.system.jit import compiled

_NO_WEIGHT = np.empty(0, np.float32)


@compiled
def _split(indptr, relation, weight, owner, ranks, owners, groups):
    """Write an owner and the number of a group for each group that is split among owners.

    Returns how many were written, and the number of groups. Sums are added up as owners do it, to the same bits.
    """
    sums, last = np.zeros(ranks), np.full(ranks, -1)
    found = count = 0
    for i in range(len(indptr) - 1):
        begin = indptr[i]
        while begin < indptr[i + 1]:
            end, total, first = begin, 0.0, found
            while end < indptr[i + 1] and relation[end] == relation[begin]:
                each = np.float64(weight[end]) if len(weight) else 1.0
                if last[owner[end]] != begin:
                    last[owner[end]], sums[owner[end]] = begin, 0.0
                sums[owner[end]] += each
                total += each
                end += 1
            for e in range(begin, end):
                if last[owner[e]] == begin:
                    last[owner[e]] = -1
                    if sums[owner[e]] != total:
                        owners[found], groups[found] = owner[e], count
                        found += 1
            count += found > first
            begin = end
    return found, count


@compiled
def _incomplete(indptr, relation, weight, relation_sum, destinations, edges):
    """Write the destination and the first edge of each group whose edges do not add up to `relation_sum`."""
    found = 0
    for i in range(len(indptr) - 1):
        begin = indptr[i]
        while begin < indptr[i + 1]:
            end, total = begin, 0.0
            while end < indptr[i + 1] and relation[end] == relation[begin]:
                total += np.float64(weight[end]) if len(weight) else 1.0
                end += 1
            if total != relation_sum[begin]:
                destinations[found], edges[found] = i, begin
                found += 1
            begin = end
    return found


@dataclass(frozen=True, eq=False)
class SplitGroups:
    """The groups of a block that are split among owners, numbered by destination, then relation.

    groups: int64[k], by owner, those of which it has edges; counts: int64[ranks], of each owner; total: their number.
    """

    groups: np.ndarray
    counts: np.ndarray
    total: int

    @classmethod
    def of(cls, block: Block, rank_offsets: np.ndarray) -> SplitGroups:
        """Find the split groups of `block`. Local."""
        ranks, owners, groups = len(rank_offsets) - 1, *np.empty((2, block.edges), np.int64)
        weight = _NO_WEIGHT if block.weight is None else block.weight
        home = home_of(block.neighbours, rank_offsets)
        found, total = _split(block.indptr, block.relation, weight, home, ranks, owners, groups)
        order = np.argsort(owners[:found], kind="stable")
        return cls(groups[:found][order], np.bincount(owners[:found], minlength=ranks).astype(np.int64), total)

    def remote(self, rank: int) -> int:
        """Count the groups at owners other than `rank`."""
        return len(self.groups) - int(self.counts[rank])


class SplitSoftmax:
    """The exchange of logarithms of `width` columns: from owners to the rank of a destination, and totals back."""

    def __init__(self, ctx: RankContext, width: int, wanted: SplitGroups, block: PartialBlock, named: np.ndarray):
        """Take `wanted` of this rank's block, and `block` of its rows: its own destinations, then others' by rank.

        named: int64[ranks], how many destinations each rank has named here.
        """
        destinations, self.edges = _first_edges(block)
        starts = block.n_dst - int(named.sum()) + indptr_of(named)
        bounds = np.searchsorted(destinations, starts)
        self.own, sent = int(bounds[0]), np.diff(bounds)
        mine = np.repeat(np.arange(ctx.ranks), wanted.counts) == ctx.rank
        counts = np.where(np.arange(ctx.ranks) == ctx.rank, 0, wanted.counts)
        here, places = wanted.groups[mine], np.arange(len(destinations))
        there = Route(wanted.total, here, wanted.groups[~mine], counts, sent)
        back = Route(len(places), places[: self.own], places[self.own :], sent, counts)
        zeros = False, False
        self._there, self._back = (
            Stage(ctx, there, width, LogarithmCombination, zeros),
            Stage(ctx, back, width, zeros=zeros),
        )

    def forward(self, logs: Tensor, backward: Callable[[Tensor], None]) -> Tensor:
        """Exchange `logs` (float[k, width], of the groups in `edges`); return those of the whole groups. Collective.

        `backward` takes the gradient of `logs` once that of the result is complete.
        """
        own: list[Tensor] = []
        mine, others = logs[: self.own], logs[self.own :]
        computed = ComputedApart(
            (others, lambda gradient: backward(torch.cat([*own, gradient]))), lambda: (mine, own.append)
        )
        matrix, stage = self._there.forward(computed), self._there

        def returned(gradient: Tensor) -> None:
            matrix.grad = gradient

        assert stage.local_positions is not None, "some logarithms arrive"
        counts = stage.route.received_counts
        picked = PickedRows(matrix, stage.local_positions, stage.received_positions, counts, returned)
        return self._back.forward(picked)

    def backward(self) -> None:
        """Return the gradients of totals to their ranks, and those of logarithms to owners. Collective."""
        self._back.backward()
        self._there.backward()

    def count(self) -> None:
        """Count what is sent. Local: nothing is sent."""
        self._there.transfer.count()
        self._back.transfer.count()


def _first_edges(block: PartialBlock) -> tuple[np.ndarray, np.ndarray]:
    """Return the destinations and the first edges, int64[k] each, of groups of which other ranks have edges too."""
    assert block.relation is not None, "softmaxes within relations are those of typed graphs"
    assert block.relation_sum is not None, "relations come with their sums"
    arrays = [each.cpu().numpy() for each in (block.edges.indptr, block.relation, block.relation_sum)]
    weight = _NO_WEIGHT if block.weight is None else block.weight.cpu().numpy()
    destinations, edges = np.empty((2, len(arrays[1])), np.int64)
    found = _incomplete(*arrays[:2], weight, arrays[2], destinations, edges)
    return destinations[:found].copy(), edges[:found].copy()
