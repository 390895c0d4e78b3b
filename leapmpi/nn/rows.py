"""What a first layer reads: rows in a matrix, rows where they lie, or rows of which most elements are zero."""

from __future__ import annotations

from torch import Tensor

from leapmpi.nn.scattered_rows import ScatteredRows
from leapmpi.nn.sparse_matrix import SparseMatrix

Rows = Tensor | ScatteredRows | SparseMatrix
"""float[rows, width]."""


def dense(x: Rows) -> Tensor:
    """`x` as a tensor float[rows, width], itself if it is one."""
    return x if isinstance(x, Tensor) else x.dense()


def chosen(x: Rows, rows: Tensor | None) -> Rows:
    """x[rows] for int64[k], or x itself where `rows` is None."""
    return x if rows is None else x.index_select(0, rows)
