"""Logits from the roots' rows of all layers: jumping knowledge, one product.

Roots are the first destinations of every block, so their rows of each layer are on the rank of the last layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from leapmpi.nn.dropout import DropoutKey
from leapmpi.nn.layer import Projection

if TYPE_CHECKING:
    from leapmpi.config.sections import ModelConfig


class Head(nn.Module):
    """A product with the last layer's rows, or with those of all layers combined as `config.jumping` says.

    Side by side (cat), or column by column the largest (max). Xu et al., "Representation learning on graphs with
    jumping knowledge networks" (ICML 2018), section 4.
    """

    def __init__(self, config: ModelConfig, layers: int, out_dim: int) -> None:
        super().__init__()
        self.jumping = config.jumping
        self.width = config.hidden * (layers if self.jumping == "cat" else 1)
        self.output = Projection(self.width, out_dim)
        self.bias = nn.Parameter(torch.zeros(out_dim))

    def prefix(self, x: Tensor, vertices: Tensor, key: DropoutKey | None) -> Tensor:
        """Apply row-wise work to combined rows (float[roots, width]); `vertices` int64[roots] are original ids."""
        return x

    def forward(self, rows: Sequence[Tensor], vertices: Tensor, key: DropoutKey | None) -> Tensor:
        """Compute logits float[roots, out] from the roots' rows of each layer in order, float[roots, hidden]."""
        combined = rows[-1]
        if self.jumping == "cat":
            combined = torch.cat(list(rows), dim=1)
        elif self.jumping == "max":
            combined = torch.stack(list(rows)).max(0).values
        return self.output(self.prefix(combined, vertices, key)) + self.bias
