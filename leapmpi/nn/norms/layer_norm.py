"""Layer normalisation. Ba, Kiros and Hinton, "Layer normalization" (2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Normalise(nn.Module):
    """Layer normalisation of rows, with gradients summed in the same order on any thread count."""

    def __init__(self, width: int, with_bias: bool = True) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if with_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """float[rows, width] -> float[rows, width]."""
        x = F.layer_norm(x, x.shape[1:]) * self.gain
        return x if self.bias is None else x + self.bias
