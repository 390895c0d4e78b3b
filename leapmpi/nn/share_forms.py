"""Combination of an aggregate from shares of several ranks, and the gradients of the shares.

The owner of some sources computes a share for each destination (`Layer.shares`). A `PartialForm` says how many rows a
share has and how shares combine. A `Combination` is one such computation: local shares first, then those that arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from leapmpi.nn.tensors import operations


class Combination(ABC):
    """The matrix that a layer reads after shares of all ranks are combined.

    Call order: construct with local shares, `add` the shares that arrived, read `rows`, then the two gradients.
    """

    rows: Tensor
    """float[total, width]: the combined matrix."""

    @abstractmethod
    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        """Put `local` (float[k, width]) into rows `positions` (int64[k]; None for one each, in order) of `total`."""

    @abstractmethod
    def add(self, arrived: Tensor, positions: Tensor) -> None:
        """Combine `arrived` (float[k, width]) into rows `positions` (int64[k])."""

    @abstractmethod
    def local_gradient(self, gradient: Tensor) -> Tensor:
        """Return the part of `gradient` (float[total, width]) that belongs to the local shares."""

    @abstractmethod
    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        """Return the part of `gradient` that belongs to the shares that arrived: float[k, width]."""


class SumCombination(Combination):
    """Shares of one row add up."""

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._local = positions
        if positions is None:
            self.rows = local.clone()
        else:
            self.rows = local.new_zeros((total, local.shape[1])).index_add_(0, positions, local)

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._arrived = positions
        operations(arrived.device).add_rows(self.rows, positions, arrived)

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return gradient if self._local is None else gradient.index_select(0, self._local)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(0, self._arrived)


class MaximumCombination(Combination):
    """The first half of the rows are maxima of shares, column by column; the second half are self parts, which add up.

    A gradient goes to the share that holds the maximum. Of equal shares it goes to the local one, then to the first
    that arrived. Rows without any share are 0.
    """

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._half = total // 2
        self._top = local.new_full((self._half, local.shape[1]), -torch.inf)
        self._self_parts = torch.zeros_like(self._top)
        self._local = local, torch.arange(total, device=local.device) if positions is None else positions
        self._combine(*self._local)

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._arrived = arrived, positions
        self._combine(arrived, positions)
        self.rows = torch.cat([self._top.masked_fill(self._top == -torch.inf, 0.0), self._self_parts])

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return self._gradient(gradient, self._local[1], 0)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return self._gradient(gradient, self._arrived[1], len(self._local[1]))

    def _combine(self, values: Tensor, positions: Tensor) -> None:
        """Raise maxima to `values` (float[k, width]) at `positions` (int64[k]), and add self parts."""
        maxima = positions < self._half
        largest = values[maxima]
        self._top.scatter_reduce_(0, positions[maxima].unsqueeze(1).expand_as(largest), largest, "amax")
        self._self_parts.index_add_(0, positions[~maxima] - self._half, values[~maxima])

    @cached_property
    def _holders(self) -> Tensor:
        """int32[half, width]: the share that holds each maximum. Local shares are numbered first; the lowest counts."""
        values, positions = (torch.cat(both) for both in zip(self._local, self._arrived, strict=True))
        among = positions < self._half
        numbers = torch.arange(len(positions), device=positions.device, dtype=torch.int32)[among].unsqueeze(1)
        reached = values[among] == self._top[positions[among]]
        nobody = len(positions)
        holders = torch.full_like(self._top, nobody, dtype=torch.int32).scatter_reduce_(
            0, positions[among].unsqueeze(1).expand_as(reached), torch.where(reached, numbers, nobody), "amin"
        )
        return holders.masked_fill_(self._top == -torch.inf, nobody)

    def _gradient(self, gradient: Tensor, positions: Tensor, first: int) -> Tensor:
        """Return the gradient of shares at `positions`, numbered from `first`: of maxima where they hold them."""
        chosen = gradient.index_select(0, positions)
        numbers = first + torch.arange(len(positions), device=positions.device)
        maxima = positions < self._half
        holds = self._holders[positions[maxima]] == numbers[maxima].unsqueeze(1)
        chosen[maxima] = chosen[maxima] * holds
        return chosen


class CollectedCombination(Combination):
    """Base of combinations that read local and arrived shares at once, when `rows` is first read."""

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._total = total
        positions = torch.arange(total, device=local.device) if positions is None else positions
        self._values, self._positions = [local], [positions]

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._values.append(arrived)
        self._positions.append(positions)

    def _collected(self) -> tuple[Tensor, Tensor]:
        """Return all shares, float[k, width], and their positions, int64[k]; local ones first."""
        return torch.cat(self._values), torch.cat(self._positions)


class SoftmaxCombination(CollectedCombination):
    """Three equal groups of rows: logarithms of sums of exponentials, means by these exponentials, and self parts.

    A share is a logarithm, -inf where it has no edge, and a mean, column by column. Means are weighed by the shares of
    the exponentials' whole sum, which come from differences of logarithms and so never overflow.
    """

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        super().__init__(local, positions, total)
        self._third = total // 3

    @cached_property
    def rows(self) -> Tensor:  # type: ignore[override]
        values, positions = self._collected()
        third, width = self._third, values.shape[1]
        logs, means, own = self._groups(positions)
        destinations = positions[logs]
        log, self._parts = parts_of_softmax(values[logs], destinations, third)

        # Means weighed by them, and how far each share's mean is from its destination's.
        mean = values.new_zeros(third, width).index_add_(0, destinations, self._parts * values[means])
        self._apart = values[means] - mean[destinations]
        self_parts = values.new_zeros(third, width).index_add_(0, positions[own] - 2 * third, values[own])
        return torch.cat([log, mean, self_parts])

    def local_gradient(self, gradient: Tensor) -> Tensor:
        """Return the gradient of local shares; that of logarithms comes from their effect on the means."""
        first = int((self._positions[0] < self._third).sum())
        return self._gradient(gradient, self._positions[0], slice(0, first))

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        first = int((self._positions[0] < self._third).sum())
        return self._gradient(gradient, self._positions[1], slice(first, None))

    def _gradient(self, gradient: Tensor, positions: Tensor, shares: slice) -> Tensor:
        """Return the gradient of the rows at `positions`; those of `shares` are logarithms and means."""
        logs, means, _ = self._groups(positions)
        out = gradient.index_select(0, positions)
        of_mean = self._parts[shares] * out[means]
        out[logs], out[means] = of_mean * self._apart[shares], of_mean
        return out

    def _groups(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mark the rows that are logarithms, means, and self parts: bool[k] each."""
        group = torch.div(positions, max(1, self._third), rounding_mode="floor")
        return group == 0, group == 1, group == 2


class AttentionCombination(CollectedCombination):
    """Rows of logarithms of sums of exponentials, one for each of `heads`, then of means by these exponentials.

    A share of no edge has logarithms of -inf. Means of all heads are side by side. Gradients are those of means, and
    of the logarithms by their effect on them.
    """

    def __init__(self, heads: int, local: Tensor, positions: Tensor | None, total: int) -> None:
        super().__init__(local, positions, total)
        self._heads = heads

    @cached_property
    def rows(self) -> Tensor:  # type: ignore[override]
        values, positions = self._collected()
        share, means = values[:, : self._heads], values[:, self._heads :]
        logs, self._parts = parts_of_softmax(share, positions, self._total)
        mean = means.new_zeros(self._total, means.shape[1])
        mean.index_add_(0, positions, self._by_head(means, self._parts).flatten(1))
        self._apart = means - mean[positions]
        return torch.cat([logs, mean], dim=1)

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return self._gradient(gradient, self._positions[0], slice(0, len(self._positions[0])))

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return self._gradient(gradient, self._positions[1], slice(len(self._positions[0]), None))

    def _gradient(self, gradient: Tensor, positions: Tensor, shares: slice) -> Tensor:
        of_mean = self._by_head(gradient.index_select(0, positions)[:, self._heads :], self._parts[shares])
        of_log = (of_mean * self._apart[shares].view_as(of_mean)).sum(2)
        return torch.cat([of_log, of_mean.flatten(1)], dim=1)

    def _by_head(self, columns: Tensor, factor: Tensor) -> Tensor:
        """Multiply columns float[k, width] by a `factor` of each head, float[k, heads]: float[k, heads, columns]."""
        return columns.unflatten(1, (self._heads, -1)) * factor.unsqueeze(2)


class LogarithmCombination(CollectedCombination):
    """Logarithms of sums of exponentials, column by column; the sums add up."""

    @cached_property
    def rows(self) -> Tensor:  # type: ignore[override]
        values, positions = self._collected()
        logs, self._parts = parts_of_softmax(values, positions, self._total)
        return logs

    def local_gradient(self, gradient: Tensor) -> Tensor:
        local = self._positions[0]
        return self._parts[: len(local)] * gradient.index_select(0, local)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return self._parts[len(self._positions[0]) :] * gradient.index_select(0, self._positions[1])


def parts_of_softmax(logs: Tensor, destinations: Tensor, total: int) -> tuple[Tensor, Tensor]:
    """Combine logarithms of sums of exponentials, float[k, width], of shares of `destinations` (int64[k]).

    Returns those of all sums, float[total, width], 0 without any, and each share's part of its sum, float[k, width].
    """
    top = logs.new_full((total, logs.shape[1]), -torch.inf)
    top.scatter_reduce_(0, destinations.unsqueeze(1).expand_as(logs), logs, "amax")
    # Relative to the largest of a destination, no exponential overflows.
    exponentials = (logs - top[destinations]).exp().masked_fill(logs == -torch.inf, 0)
    sums = torch.zeros_like(top).index_add_(0, destinations, exponentials)
    # The largest exponential is 1, so the clamp acts on destinations without any edge alone.
    return torch.where(sums > 0, top + sums.log(), 0), exponentials / sums.clamp(min=1e-30)[destinations]


PartialStep = tuple[Tensor, Callable[[Tensor], None]]
"""Shares, and what passes the gradient of them on to the weights."""


@dataclass(frozen=True)
class PartialForm:
    """Layout and combination of shares of a layer's aggregate. One instance serves all layers of its kind."""

    combination: Callable[[Tensor, Tensor | None, int], Combination]
    """A constructor from local shares, their positions, and the number of rows."""
    separate_self: bool = False
    """Whether a destination's self part travels as a row of its own instead of within its home rank's share."""
    share_rows: int = 1
    """Rows of a share, where self parts are separate; the matrix holds the first of each destination, then the next."""
    by_attention: bool = False
    """Whether shares are means by exponentials of scores, which ranks compute for each other."""

    def parts(self, rows: Tensor, destinations: int) -> tuple[Tensor | None, Tensor]:
        """Return the self parts (None if they are in the aggregate) and the aggregates, float[destinations, out] each.

        `rows` is the combined matrix, with the self parts, if separate, below; `Layer.finish` takes both. Of a share of
        several rows, the last one is the aggregate.
        """
        if not self.separate_self:
            return None, rows
        below = self.share_rows * destinations
        return rows[below:], rows[below - destinations : below]


SUM, MAXIMUM = PartialForm(SumCombination), PartialForm(MaximumCombination, separate_self=True)
"""Sums: one row per destination. Maxima: one from every owner of a neighbour, and a self part from the home."""

NORMALISED = PartialForm(SumCombination, by_attention=True)
"""Sums weighted by softmaxes that are known before shares are computed: one row from every owner of a neighbour."""

SEPARATE_SUM, SOFTMAX = PartialForm(SumCombination, True), PartialForm(SoftmaxCombination, True, 2)
"""Sums of what is not linear in rows, and means by a softmax: from every owner of a neighbour, and a self part."""


def attention(heads: int, separate_self: bool = False) -> PartialForm:
    """Return the form of attention by `heads`: one row for each owner of a neighbour, or of the destination itself.

    With `separate_self` the self part is a row of its own: the mean of a softmax over itself alone.
    """
    return PartialForm(partial(AttentionCombination, heads), separate_self, by_attention=True)
