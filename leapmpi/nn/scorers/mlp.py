"""`mlp`: a network of one hidden layer, as wide as the embeddings, over their element-wise product."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.nn.layer import Projection
from leapmpi.nn.scorer import Scorer


class MLP(Scorer):
    """second(relu(first(source x destination)))."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Projection(width, width), Projection(width, 1)
        self.hidden_bias, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(1))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        hidden = F.relu(self.first(source * destination) + self.hidden_bias)
        return (self.second(hidden) + self.bias).squeeze(1)

    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        rows = [self(row.expand_as(destination), destination) for row in source]
        return torch.stack(rows) if rows else source.new_empty((0, len(destination)))


def build(width: int) -> Scorer:
    return MLP(width)
