"""The input of a first layer: rows in a matrix or in several places of memory, sparse rows, rows of several types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.kernels import row_sums
from leapmpi.nn.kernels.row_types import FLOAT32, NO_SCALE, RowType, read_addressed
from leapmpi.nn.kernels.simd import COLUMNS
from leapmpi.nn.tensors import Edges
from leapmpi.nn.typed_matrix import TypedMatrix

LEAST_WIDTH = COLUMNS
"""Columns of a vector: narrower rows cannot be read in whole vectors."""


@dataclass(frozen=True, eq=False)
class ScatteredRows:
    """float32[rows, width] on the CPU, at least LEAST_WIDTH wide, never differentiated.

    Local rows are in their shard, remote ones in the buffer where they arrived, in the bytes of `kind`. Products and
    sums read them one by one by address, so no matrix of them is built. Their memory must not move, and `sources` keeps
    it alive.
    """

    addresses: Tensor
    """int64[rows]: the address of each row's first element."""
    width: int
    sources: tuple[Any, ...]
    """The arrays and buffers that hold the rows."""
    kind: RowType = FLOAT32
    """Layout of the elements in memory."""
    scale: np.ndarray = field(default_factory=lambda: NO_SCALE)
    """float32[2, width]: steps and middles of the columns, if `kind` is scaled."""

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
        """Return these rows, or a dense copy in another dtype."""
        return self if dtype == self.dtype else self.dense().to(dtype)

    def __getitem__(self, rows: slice | np.ndarray | Tensor) -> ScatteredRows:
        """Return the rows of a slice, or those numbered int64[k]."""
        return replace(self, addresses=self.addresses[rows])

    def dense(self) -> Tensor:
        """Make a copy as float32[rows, width]."""
        out = torch.empty(len(self), self.width, dtype=self.dtype)
        addresses = self.addresses.contiguous().numpy()
        read_addressed(self.kind, 0, 1, addresses, self.scale, out.numpy(), np.arange(len(self)))
        return out

    def weighted_sums(self, indptr: Tensor, indices: Tensor, weight: Tensor) -> Tensor:
        """Sum weight[e] * row indices[e] over the edges e of each row i, in their order: float32[n, width].

        indptr int64[n + 1], indices int32 or int64[edges], weight float32[edges]. Raises ValueError for weights of
        another dtype or shape.
        """
        if weight.dtype != self.dtype or weight.shape != indices.shape:
            raise ValueError(f"{weight.dtype} {tuple(weight.shape)} cannot weigh {len(indices)} edges of float32 rows")
        if not len(indices):
            return torch.zeros(len(indptr) - 1, self.width, dtype=self.dtype)

        out = torch.empty(len(indptr) - 1, self.width, dtype=self.dtype)
        arrays = (each.contiguous().numpy() for each in (indptr, indices, weight, self.addresses))
        row_sums.weighted_sums_of(self.kind)(*arrays, self.scale, out.numpy())
        return out


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """float[rows, width], never differentiated; products read its non-zero entries alone."""

    entries: Edges
    """One edge for each non-zero element, from its column (source) to its row (destination)."""
    values: Tensor
    """float[entries]."""

    requires_grad = False

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, width)."""
        return len(self), self.entries.sources

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
        """Return the same matrix with values of `dtype`."""
        return replace(self, values=self.values.to(dtype))

    def __getitem__(self, rows: slice | np.ndarray | Tensor) -> SparseMatrix:
        """Return the rows of a slice, as views, or those numbered int64[k], as copies."""
        if isinstance(rows, slice):
            first, end, _ = rows.indices(len(self))
            entries, chosen = self.entries.of_destinations(first, end)
            return SparseMatrix(entries, self.values[chosen])

        # The offsets of the entries of each row in the copy.
        rows = torch.as_tensor(rows, device=self.device)
        counts = self.entries.counts[rows]
        indptr = torch.zeros(len(rows) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(counts, 0, out=indptr[1:])

        # The number, in this matrix, of each entry of the copy.
        shift = self.entries.indptr[rows] - indptr[:-1]
        number = torch.arange(int(indptr[-1]), device=self.device) + shift.repeat_interleave(counts)
        return SparseMatrix(Edges(indptr, self.entries.indices[number], self.entries.sources), self.values[number])

    def dense(self) -> Tensor:
        """Return float[rows, width], zeros included."""
        out = self.values.new_zeros(self.shape)
        row = torch.arange(len(self), device=self.device).repeat_interleave(self.entries.counts)
        out[row, self.entries.indices.long()] = self.values
        return out


Rows = Tensor | ScatteredRows | SparseMatrix | TypedMatrix
"""float[rows, width]."""

R = TypeVar("R", bound=Rows)


def dense(x: Rows) -> Tensor:
    """Return `x` as a tensor float[rows, width], itself if it is one."""
    return x if isinstance(x, Tensor) else x.dense()


def select(x: R, rows: Tensor | None) -> R:
    """Return x[rows] for rows int64[k], or x itself where `rows` is None."""
    if rows is None:
        return x
    return cast("R", x.index_select(0, rows) if isinstance(x, Tensor) else x[rows])
