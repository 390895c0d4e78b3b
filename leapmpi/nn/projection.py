"""Projection: rows times a weight, the linear map of every layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leapmpi.nn.kernels.gemm import product
from leapmpi.nn.rows import Rows


class Projection(nn.Module):
    """Multiplication of rows by a weight float[out, in], without bias.

    `fans` overrides the widths (in, out) that set the range of the initial weights, where the weight is several maps.
    """

    def __init__(self, in_dim: int, out_dim: int, fans: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_dim, in_dim))
        self.fans = {"weight": fans or (in_dim, out_dim)}

    def forward(self, x: Rows, rows: Tensor | None = None) -> Tensor:
        """x float[n, in] -> float[n, out]; with `rows`, int64[n] numbers of rows of x, of x[rows]."""
        return product(x, self.weight, rows)
