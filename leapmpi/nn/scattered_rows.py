"""Rows of features where they lie: own ones in their shard, others where they arrived. Nothing is copied to read them.

Products and sums take rows one by one, and so can do without a matrix of them. For single precision on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.kernels import row_sums
from leapmpi.nn.kernels.simd import COLUMNS

LEAST_WIDTH = COLUMNS
"""Narrower rows are not worth reading in vectors."""


@dataclass(frozen=True, eq=False)
class ScatteredRows:
    """float32[rows, width], at least LEAST_WIDTH wide, never differentiated.

    addresses: int64[rows], of each row's first element; sources: whatever holds that memory.
    """

    addresses: Tensor
    width: int
    sources: tuple[Any, ...]

    requires_grad = False
    dtype = torch.float32
    device = torch.device("cpu")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        return len(self.addresses), self.width

    def __len__(self) -> int:
        return len(self.addresses)

    def to(self, dtype: torch.dtype) -> ScatteredRows | Tensor:
        """These rows, or a copy of another type."""
        return self if dtype == self.dtype else self.dense().to(dtype)

    def __getitem__(self, rows: slice | np.ndarray) -> ScatteredRows:
        """The rows `rows`, consecutive ones or those of int64[k]."""
        return replace(self, addresses=self.addresses[rows])

    def index_select(self, dim: int, rows: Tensor) -> ScatteredRows:
        """The rows `rows` int64[k], `dim` being 0."""
        assert dim == 0, "scattered rows are taken by rows"
        return replace(self, addresses=self.addresses[rows])

    def dense(self) -> Tensor:
        """A copy as float32[rows, width]."""
        rows = torch.arange(len(self) + 1)
        return self.weighted_sums(rows, rows[:-1], torch.ones(len(self), dtype=self.dtype))

    def weighted_sums(self, indptr: Tensor, indices: Tensor, weight: Tensor) -> Tensor:
        """Row i is the sum over edges e of row i of weight[e] * row indices[e], in their order: float32[n, width].

        indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges]. Raises ValueError for other weights.
        """
        if weight.dtype != self.dtype or weight.shape != indices.shape:
            raise ValueError(f"{weight.dtype} {tuple(weight.shape)} cannot weigh {len(indices)} edges of float32 rows")
        if not len(indices):
            return torch.zeros(len(indptr) - 1, self.width, dtype=self.dtype)
        out = torch.empty(len(indptr) - 1, self.width, dtype=self.dtype)
        arrays = (each.contiguous().numpy() for each in (indptr, indices, weight, self.addresses))
        row_sums.weighted_sums(*arrays, out.numpy(), numba.get_num_threads())
        return out
