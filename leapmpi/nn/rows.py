"""The input of a first layer: rows in a matrix, rows in several places of memory, or sparse rows."""

from __future__ import annotations

from typing import overload

from torch import Tensor

from leapmpi.nn.scattered_rows import ScatteredRows
from leapmpi.nn.sparse_matrix import SparseMatrix

Rows = Tensor | ScatteredRows | SparseMatrix
"""float[rows, width]."""


def dense(x: Rows) -> Tensor:
    """`x` as a tensor float[rows, width], itself if it is one."""
    return x if isinstance(x, Tensor) else x.dense()


@overload
def select(x: Tensor, rows: Tensor | None) -> Tensor: ...
@overload
def select(x: ScatteredRows, rows: Tensor | None) -> ScatteredRows: ...
@overload
def select(x: SparseMatrix, rows: Tensor | None) -> SparseMatrix: ...
@overload
def select(x: Rows, rows: Tensor | None) -> Rows: ...
def select(x: Rows, rows: Tensor | None) -> Rows:
    """x[rows] for rows int64[k], or x itself where `rows` is None."""
    return x if rows is None else x.index_select(0, rows)
