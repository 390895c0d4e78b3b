"""Means of shares by a softmax."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from leapmpi.nn.shares.combination import Combination


class SoftmaxCombination(Combination):
    """Three equal groups of rows: logarithms of sums of exponentials, means by these exponentials, and self parts.

    A share is a logarithm, -inf where it has no edge, and a mean, column by column. Means are weighed by the shares of
    the exponentials' whole sum, which come from differences of logarithms and so never overflow.
    """

    def __init__(self, local: Tensor, positions: Tensor | None, total: int) -> None:
        self._third = total // 3
        positions = torch.arange(total, device=local.device) if positions is None else positions
        self._values, self._positions = [local], [positions]

    def add(self, arrived: Tensor, positions: Tensor) -> None:
        self._values.append(arrived)
        self._positions.append(positions)

    @cached_property
    def rows(self) -> Tensor:  # type: ignore[override]
        values, positions = torch.cat(self._values), torch.cat(self._positions)
        third, width = self._third, values.shape[1]
        logs, means, own = self._groups(positions)
        destinations = positions[logs]

        # Each share's part of the exponentials of its destination.
        share = values[logs]
        top = values.new_full((third, width), -torch.inf)
        top.scatter_reduce_(0, destinations.unsqueeze(1).expand_as(share), share, "amax")
        exponentials = (share - top[destinations]).exp().masked_fill(share == -torch.inf, 0)
        sums = values.new_zeros(third, width).index_add_(0, destinations, exponentials)
        self._parts = exponentials / sums.clamp(min=1e-30)[destinations]

        # Means weighed by them, and how far each share's mean is from its destination's.
        mean = values.new_zeros(third, width).index_add_(0, destinations, self._parts * values[means])
        self._apart = values[means] - mean[destinations]
        self_parts = values.new_zeros(third, width).index_add_(0, positions[own] - 2 * third, values[own])
        return torch.cat([torch.where(sums > 0, top + sums.log(), 0), mean, self_parts])

    def local_gradient(self, gradient: Tensor) -> Tensor:
        """Logarithms get the gradient that their effect on the means gives them."""
        first = int((self._positions[0] < self._third).sum())
        return self._gradient(gradient, self._positions[0], slice(0, first))

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        first = int((self._positions[0] < self._third).sum())
        return self._gradient(gradient, self._positions[1], slice(first, None))

    def _gradient(self, gradient: Tensor, positions: Tensor, shares: slice) -> Tensor:
        """The gradient of the rows at `positions`, of which those of `shares` are logarithms and means."""
        logs, means, _ = self._groups(positions)
        out = gradient.index_select(0, positions)
        of_mean = self._parts[shares] * out[means]
        out[logs], out[means] = of_mean * self._apart[shares], of_mean
        return out

    def _groups(self, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """bool[k] each: which rows are logarithms, means, and self parts."""
        group = torch.div(positions, max(1, self._third), rounding_mode="floor")
        return group == 0, group == 1, group == 2
