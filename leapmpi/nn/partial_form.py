"""How an aggregate is put together from shares that several ranks compute, and how gradients go back to the shares.

The owner of some sources computes a share for each destination (`Layer.partial`). A `PartialForm` says how many rows a
share has and how shares combine. `Combination` is one such computation: local shares first, then those that arrived.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from torch import Tensor


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
        """The part of `gradient` (float[total, width]) that belongs to the local shares."""

    @abstractmethod
    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        """The part of `gradient` that belongs to the shares that arrived: float[k, width]."""


class SumCombination(Combination):
    """Shares of one row add up."""

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._local = positions
        if positions is None:
            self.rows = local.clone()
        else:
            self.rows = local.new_zeros((total, local.shape[1])).index_add_(0, positions, local)

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        """Add up."""
        self._arrived = positions
        self.rows.index_add_(0, positions, arrived)

    def local_gradient(self, gradient: Tensor) -> Tensor:
        """The rows at the local positions; all, in order, where there is one local share a row."""
        return gradient if self._local is None else gradient.index_select(0, self._local)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        """The rows at the positions of what arrived."""
        return gradient.index_select(0, self._arrived)


class MaximumCombination(Combination):
    """The first half of the rows are maxima of shares, column by column; the second half are self parts, which add up.

    A gradient goes to the share that holds the maximum. Of equal shares it goes to the local one, then to the first
    that arrived. Rows without any share are 0.
    """

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        width = local.shape[1]
        if positions is None:
            positions = torch.arange(total, device=local.device)
        self._half, self._local_values, self._local = total // 2, local, positions
        self._top = local.new_full((self._half, width), -torch.inf)
        self._self_parts = SumCombination(local[:0], positions[:0], self._half)
        maxima = positions < self._half
        self._raise_to(local[maxima], positions[maxima])
        self._self_parts.rows.index_add_(0, positions[~maxima] - self._half, local[~maxima])

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        """Take the larger values; rows that no share reached are 0."""
        maxima = positions < self._half
        self._arrived_values, self._arrived = arrived, positions
        self._raise_to(arrived[maxima], positions[maxima])
        self._self_parts.rows.index_add_(0, positions[~maxima] - self._half, arrived[~maxima])
        self.rows = torch.cat([self._top.masked_fill(self._top == -torch.inf, 0.0), self._self_parts.rows])

    @cached_property
    def _holders(self) -> Tensor:
        """int32[half, width]: the share that holds each maximum. Local shares are numbered first; the lowest counts."""
        values = torch.cat([self._local_values, self._arrived_values])
        positions = torch.cat([self._local, self._arrived])
        among = positions < self._half
        numbers = torch.arange(len(positions), device=positions.device, dtype=torch.int32)[among].unsqueeze(1)
        reached = values[among] == self._top[positions[among]]
        nobody = len(positions)
        holders = torch.full_like(self._top, nobody, dtype=torch.int32).scatter_reduce_(
            0, positions[among].unsqueeze(1).expand_as(reached), torch.where(reached, numbers, nobody), "amin"
        )
        return holders.masked_fill_(self._top == -torch.inf, nobody)

    def local_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient where a local share holds the maximum, and that of the local self parts."""
        return self._gradient(gradient, self._local, 0)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient where a share that arrived holds the maximum, and that of self parts that arrived."""
        return self._gradient(gradient, self._arrived, len(self._local))

    def _raise_to(self, values: Tensor, positions: Tensor) -> None:
        """Raise the maxima at `positions` (int64[k]) to `values` (float[k, width]) where these are larger."""
        self._top.scatter_reduce_(0, positions.unsqueeze(1).expand_as(values), values, "amax")

    def _gradient(self, gradient: Tensor, positions: Tensor, first: int) -> Tensor:
        chosen = gradient.index_select(0, positions)
        numbers = first + torch.arange(len(positions), device=positions.device)
        maxima = positions < self._half
        holds = self._holders[positions[maxima]] == numbers[maxima].unsqueeze(1)
        chosen[maxima] = chosen[maxima] * holds
        return chosen


class PartialForm(ABC):
    """How shares of a layer's aggregate are laid out and combined. One instance serves all layers of its kind."""

    separate_self = False
    """Whether a destination's self part travels as a row of its own instead of within its home rank's share."""

    combination: type[Combination]

    @abstractmethod
    def parts(self, rows: Tensor, destinations: int) -> tuple[Tensor | None, Tensor]:
        """The self parts (None if they are in the aggregate) and the aggregates, float[destinations, out] each.

        `rows` is the combined matrix; `Layer.finish` takes both.
        """


class SumForm(PartialForm):
    """One row per destination: shares add up, the self part is in the share of the destination's home rank."""

    combination = SumCombination

    def parts(self, rows: Tensor, destinations: int) -> tuple[Tensor | None, Tensor]:
        """`rows` float[destinations, out] hold both."""
        return None, rows


class MaximumForm(PartialForm):
    """Two rows per destination: the maximum over its neighbours, from every owner, and the self part, from its home."""

    separate_self = True
    combination = MaximumCombination

    def parts(self, rows: Tensor, destinations: int) -> tuple[Tensor | None, Tensor]:
        """`rows` float[2 destinations, out]: maxima, then self parts."""
        return rows[destinations:], rows[:destinations]


SUM, MAXIMUM = SumForm(), MaximumForm()
