"""`distmult`: the inner product weighted by a learned vector, that of the one relation, or of each class.

Yang et al., "Embedding entities and relations for learning and inference in knowledge bases" (ICLR 2015).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leapmpi.nn.scorer import Scorer, ScorerMember


class DistMult(Scorer):
    """sum of source x relation x destination; relations begin as ones, which is `dot`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones((classes, width) if classes else width))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        if self.relation.dim() == 2:
            return (source * destination) @ self.relation.T
        return (source * self.relation * destination).sum(dim=1)

    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * self.relation) @ destination.T


def build(width: int, classes: int = 0) -> Scorer:
    return DistMult(width, classes)


MEMBER = ScorerMember(build, scores_classes=True)
