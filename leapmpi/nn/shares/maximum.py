"""Maxima of shares."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from leapmpi.nn.shares.combination import Combination


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
        """The gradient of shares at `positions`, numbered from `first`: of maxima where they hold them."""
        chosen = gradient.index_select(0, positions)
        numbers = first + torch.arange(len(positions), device=positions.device)
        maxima = positions < self._half
        holds = self._holders[positions[maxima]] == numbers[maxima].unsqueeze(1)
        chosen[maxima] = chosen[maxima] * holds
        return chosen
