"""What combines shares, and the plainest of its kinds: sums."""

from __future__ import annotations

from abc import ABC, abstractmethod

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
        self._arrived = positions
        operations(arrived.device).add_rows(self.rows, positions, arrived)

    def local_gradient(self, gradient: Tensor) -> Tensor:
        return gradient if self._local is None else gradient.index_select(0, self._local)

    def arrived_gradient(self, gradient: Tensor) -> Tensor:
        return gradient.index_select(0, self._arrived)
