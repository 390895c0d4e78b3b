"""Rows of features that are mostly zero, as the first layer reads them: its products touch their entries alone.

A product with the weights is a weighted sum over entries, of rows of the transposed weights: what aggregation does over
edges. Its gradient with respect to the weights is the sum over the transposed entries, in a fixed order.
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
    """float[rows, width], never differentiated. `entries` leads from columns (sources) to rows (destinations)."""

    entries: Edges
    values: Tensor
    """float[entries]."""

    requires_grad = False

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        return len(self.entries.indptr) - 1, self.entries.sources

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Where the values are."""
        return self.values.device

    def __len__(self) -> int:
        return len(self.entries.indptr) - 1

    def to(self, dtype: torch.dtype) -> SparseMatrix:
        """The same matrix with values of `dtype`."""
        return self if dtype == self.dtype else replace(self, values=self.values.to(dtype))

    def __getitem__(self, rows: slice | np.ndarray) -> SparseMatrix:
        """The rows `rows`, consecutive ones as views, those of int64[k] as copies."""
        if isinstance(rows, np.ndarray):
            return self.index_select(0, torch.from_numpy(rows).to(self.device))
        first, end, _ = rows.indices(len(self))
        indptr = self.entries.indptr[first : end + 1]
        begin, last = int(indptr[0]), int(indptr[-1])
        entries = Edges(indptr - begin, self.entries.indices[begin:last], self.entries.sources)
        return SparseMatrix(entries, self.values[begin:last])

    def index_select(self, dim: int, rows: Tensor) -> SparseMatrix:
        """The rows `rows` int64[k], `dim` being 0."""
        assert dim == 0, "a sparse matrix is taken by rows"
        counts = self.entries.counts[rows]
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])
        shift = self.entries.indptr[rows] - indptr[:-1]
        chosen = torch.arange(int(indptr[-1]), device=self.device) + shift.repeat_interleave(counts)
        return SparseMatrix(Edges(indptr, self.entries.indices[chosen], self.entries.sources), self.values[chosen])

    def dense(self) -> Tensor:
        """float[rows, width], zeros included."""
        out = self.values.new_zeros(self.shape)
        row = torch.arange(len(self), device=self.device).repeat_interleave(self.entries.counts)
        out[row, self.entries.indices.long()] = self.values
        return out

    def times(self, weight: Tensor) -> Tensor:
        """This x weight^T for float[out, width]: float[rows, out], differentiable in `weight`."""
        return weighted_sum(self.entries, weight.t().contiguous(), self.values)
