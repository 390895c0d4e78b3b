"""Sparse rows of features, as the first layer reads them: its products read the non-zero entries alone.

A product with the weights is a weighted sum, over the entries of a row, of rows of the transposed weights: the same sum
as aggregation over edges. Its gradient with respect to the weights is the sum over the transposed entries, in a fixed
order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.aggregate import weighted_sum
from leapmpi.nn.tensors import Edges


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """float[rows, width], never differentiated."""

    entries: Edges
    """One edge for each non-zero element, from its column (source) to its row (destination)."""
    values: Tensor
    """float[entries]."""

    requires_grad = False

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        return len(self.entries.indptr) - 1, self.entries.sources

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """The device of the values."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.entries.indptr) - 1

    def to(self, dtype: torch.dtype) -> SparseMatrix:
        """The same matrix with values of `dtype`."""
        return self if dtype == self.dtype else replace(self, values=self.values.to(dtype))

    def __getitem__(self, rows: slice | np.ndarray) -> SparseMatrix:
        """The rows of a slice, as views, or those numbered int64[k], as copies."""
        if isinstance(rows, np.ndarray):
            return self.index_select(0, torch.from_numpy(rows).to(self.device))

        first, end, _ = rows.indices(len(self))
        indptr = self.entries.indptr[first : end + 1]
        begin, last = int(indptr[0]), int(indptr[-1])
        entries = Edges(indptr - begin, self.entries.indices[begin:last], self.entries.sources)
        return SparseMatrix(entries, self.values[begin:last])

    def index_select(self, dim: int, rows: Tensor) -> SparseMatrix:
        """A copy of the rows numbered `rows` int64[k]; `dim` must be 0."""
        assert dim == 0, "a sparse matrix is taken by rows"
        # Where the entries of each row start in the copy.
        counts = self.entries.counts[rows]
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])

        # The number, in this matrix, of each entry of the copy.
        shift = self.entries.indptr[rows] - indptr[:-1]
        number = torch.arange(int(indptr[-1]), device=self.device) + shift.repeat_interleave(counts)
        return SparseMatrix(Edges(indptr, self.entries.indices[number], self.entries.sources), self.values[number])

    def dense(self) -> Tensor:
        """float[rows, width], zeros included."""
        out = self.values.new_zeros(self.shape)
        row = torch.arange(len(self), device=self.device).repeat_interleave(self.entries.counts)
        out[row, self.entries.indices.long()] = self.values
        return out

    def times(self, weight: Tensor) -> Tensor:
        """This matrix x weight^T for weight float[out, width]: float[rows, out], differentiable in `weight`."""
        return weighted_sum(self.entries, weight.t().contiguous(), self.values)
