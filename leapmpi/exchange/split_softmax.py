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


@compiled
def _split(indptr, relation, owner, home, ranks, owners, groups):
    """Write an owner and the number of a group for each group that is split among owners.

    Returns how many were written, the number of groups, and how many parts of any groups are away from the `home` of
    their destination.
    """
    # `last` remembers the group that a count belongs to: clearing all ranks for each group would take ranks x groups.
    counts, last = np.zeros(ranks, np.int64), np.full(ranks, -1)
    found = count = away = 0
    for i in range(len(indptr) - 1):
        begin = indptr[i]
        while begin < indptr[i + 1]:
            end, first = begin, found
            while end < indptr[i + 1] and relation[end] == relation[begin]:
                if last[owner[end]] != begin:
                    last[owner[end]], counts[owner[end]] = begin, 0
                counts[owner[end]] += 1
                end += 1
            # The first edge of each owner speaks for the others: `last` is reset so that the owner counts once.
            for e in range(begin, end):
                if last[owner[e]] == begin:
                    last[owner[e]] = -1
                    away += owner[e] != home[i]
                    if counts[owner[e]] != end - begin:
                        owners[found], groups[found] = owner[e], count
                        found += 1
            count += found > first
            begin = end
    return found, count, away


@compiled
def _find_runs(indptr, relation, drawn, destinations, edges, incomplete):
    """Write the destination and first edge of each group, and whether it has fewer edges here than were `drawn`."""
    found = 0
    for i in range(len(indptr) - 1):
        begin = indptr[i]
        while begin < indptr[i + 1]:
            end = begin
            while end < indptr[i + 1] and relation[end] == relation[begin]:
                end += 1
            destinations[found], edges[found], incomplete[found] = i, begin, end - begin != drawn[begin]
            found += 1
            begin = end
    return found


@dataclass(frozen=True, eq=False)
class SplitGroups:
    """The groups of a block that are split among owners, numbered by destination, then relation.

    groups: int64[k], by owner, those with edges there; counts: int64[ranks], of each owner; total: their number. away:
    the number of parts, of all groups, at owners that do not own the destination.
    """

    groups: np.ndarray
    counts: np.ndarray
    total: int
    away: int

    @classmethod
    def of(cls, block: Block, rank_offsets: np.ndarray) -> SplitGroups:
        """Find the split groups of `block`. Local."""
        ranks, owners, groups = len(rank_offsets) - 1, *np.empty((2, block.edges), np.int64)
        homes = home_of(block.neighbours, rank_offsets), home_of(block.dst, rank_offsets)
        found, total, away = _split(block.indptr, block.relation, *homes, ranks, owners, groups)
        order = np.argsort(owners[:found], kind="stable")
        return cls(groups[:found][order], np.bincount(owners[:found], minlength=ranks).astype(np.int64), total, away)

    def remote(self, rank: int) -> int:
        """Count the groups at owners other than `rank`."""
        return len(self.groups) - int(self.counts[rank])


@dataclass(frozen=True, eq=False)
class Runs:
    """The groups with edges on a rank, by destination, then relation.

    int64[runs]: destinations; edges, the first one of each; relations. incomplete: int64[k], the runs of groups that
    have edges on other ranks too.
    """

    destinations: np.ndarray
    edges: np.ndarray
    relations: np.ndarray
    incomplete: np.ndarray

    @classmethod
    def of(cls, block: PartialBlock) -> Runs:
        """Find the runs of `block`. Local."""
        assert block.relation is not None, "softmaxes within relations are those of typed graphs"
        # Weights may be so far apart that sums of them hide an edge; counts hide none.
        drawn = block.relation_sum if block.weight is None else block.relation_count
        assert drawn is not None, "relations come with their sums and counts"
        indptr, relation, count = (each.cpu().numpy() for each in (block.edges.indptr, block.relation, drawn))
        (destinations, edges), incomplete = np.empty((2, len(relation)), np.int64), np.empty(len(relation), np.bool_)
        found = _find_runs(indptr, relation, count, destinations, edges, incomplete)
        edges = edges[:found].copy()
        return cls(destinations[:found].copy(), edges, relation[edges], np.flatnonzero(incomplete[:found]))


class SplitSoftmax:
    """The exchange of logarithms of `width` columns: from owners to the rank of a destination, and totals back."""

    def __init__(
        self, ctx: RankContext, width: int, wanted: SplitGroups, runs: Runs, destinations: int, named: np.ndarray
    ) -> None:
        """Take `wanted` of this rank's block of so many `destinations`, and `runs` of these, then of others' by rank.

        named: int64[ranks], how many destinations each rank has named here.
        """
        # Runs are in order of destinations, and those of each requesting rank follow each other.
        bounds = np.searchsorted(runs.destinations[runs.incomplete], destinations + indptr_of(named))
        self.runs = torch.from_numpy(runs.edges).to(ctx.device), torch.from_numpy(runs.incomplete).to(ctx.device)
        self.own, sent = int(bounds[0]), np.diff(bounds)
        mine = np.repeat(np.arange(ctx.ranks), wanted.counts) == ctx.rank
        counts = np.where(np.arange(ctx.ranks) == ctx.rank, 0, wanted.counts)
        here, places = wanted.groups[mine], np.arange(len(runs.incomplete))
        # Totals go back by the same route reversed: whoever sent a logarithm receives its total.
        there = Route(wanted.total, here, wanted.groups[~mine], counts, sent)
        back = Route(len(places), places[: self.own], places[self.own :], sent, counts)
        zeros = False, False
        self._there, self._back = (
            Stage(ctx, there, width, LogarithmCombination, zeros),
            Stage(ctx, back, width, zeros=zeros),
        )

    def forward(self, logs: Tensor, backward: Callable[[Tensor], None]) -> Tensor:
        """Exchange `logs` (float[k, width], of the incomplete runs); return those of the whole groups. Collective.

        `backward` takes the gradient of `logs` once that of the result is complete.
        """
        own: list[Tensor] = []
        mine, others = logs[: self.own], logs[self.own :]
        # The gradient of own logarithms is complete first, and waits for that of the others.
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
