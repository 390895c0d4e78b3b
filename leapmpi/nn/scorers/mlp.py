"""`mlp`: a network of one hidden layer, as wide as the embeddings.

It reads their element-wise product, which is the same for both directions; for classes, which may differ by direction,
both embeddings side by side.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from leapmpi.nn.layer import Projection
from leapmpi.nn.scorer import Scorer, ScorerMember, every_pair


class MLP(Scorer):
    """second(relu(first(pair)))."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.first = Projection(2 * width if classes else width, width)
        self.second = Projection(width, classes or 1)
        self.hidden_bias, self.bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(classes or 1))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        pair = torch.cat([source, destination], dim=1) if self.classes else source * destination
        found = self.second(F.relu(self.first(pair) + self.hidden_bias)) + self.bias
        return found if self.classes else found.squeeze(1)

    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        return every_pair(self, source, destination)


def build(width: int, classes: int = 0) -> Scorer:
    """Build the scorer of edges, or of `classes` of edges."""
    return MLP(width, classes)


MEMBER = ScorerMember(build, scores_classes=True)
