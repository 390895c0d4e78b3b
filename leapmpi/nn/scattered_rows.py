"""Rows of features in several places of memory: local ones in their shard, remote ones in the buffer they arrived in.

Products and sums read rows one by one by address, so no matrix of them is built. For float32 on the CPU.
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
"""Columns of a vector: narrower rows cannot be read in whole vectors."""


@dataclass(frozen=True, eq=False)
class ScatteredRows:
    """float32[rows, width], at least LEAST_WIDTH wide, never differentiated.

    The memory of the rows must not move, and `sources` keeps it alive.
    """

    addresses: Tensor
    """int64[rows]: the address of each row's first element."""
    width: int
    sources: tuple[Any, ...]
    """The arrays and buffers that the rows lie in."""

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
        """These rows, or a dense copy in another dtype."""
        return self if dtype == self.dtype else self.dense().to(dtype)

    def __getitem__(self, rows: slice | np.ndarray) -> ScatteredRows:
        """The rows of a slice, or those numbered int64[k]."""
        return replace(self, addresses=self.addresses[rows])

    def index_select(self, dim: int, rows: Tensor) -> ScatteredRows:
        """The rows numbered `rows` int64[k]; `dim` must be 0."""
        assert dim == 0, "scattered rows are taken by rows"
        return replace(self, addresses=self.addresses[rows])

    def dense(self) -> Tensor:
        """A copy as float32[rows, width]."""
        # Each row is the sum of itself alone.
        rows = torch.arange(len(self) + 1)
        return self.weighted_sums(rows, rows[:-1], torch.ones(len(self), dtype=self.dtype))

    def weighted_sums(self, indptr: Tensor, indices: Tensor, weight: Tensor) -> Tensor:
        """float32[n, width]: row i is the sum over its edges e of weight[e] * row indices[e], in the order of edges.

        indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges]. Raises ValueError for weights of
        another dtype or shape.
        """
        if weight.dtype != self.dtype or weight.shape != indices.shape:
            raise ValueError(f"{weight.dtype} {tuple(weight.shape)} cannot weigh {len(indices)} edges of float32 rows")
        if not len(indices):
            return torch.zeros(len(indptr) - 1, self.width, dtype=self.dtype)

        out = torch.empty(len(indptr) - 1, self.width, dtype=self.dtype)
        arrays = (each.contiguous().numpy() for each in (indptr, indices, weight, self.addresses))
        row_sums.weighted_sums(*arrays, out.numpy(), numba.get_num_threads())
        return out
