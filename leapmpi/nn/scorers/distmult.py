"""`distmult`: the inner product weighted by a learned vector: one for all edges, one a relation, or one a class.

Yang et al., "Embedding entities and relations for learning and inference in knowledge bases" (ICLR 2015).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from leapmpi.nn.relation_scorer import RelationScorer
from leapmpi.nn.scorer import Scorer, ScorerMember


class DistMult(Scorer):
    """sum of source x relation x destination of a plain graph; vectors begin as ones, which is `dot`."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.relation = nn.Parameter(torch.ones((classes, width) if classes else width))

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        if self.relation.dim() == 2:
            return (source * destination) @ self.relation.T
        return (source * self.relation * destination).sum(dim=1)

    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * self.relation) @ destination.T


class TypedDistMult(RelationScorer):
    """The same with a vector for each relation."""

    def query_of_source(self, source: Tensor, vector: Tensor) -> Tensor:
        return source * vector

    def query_of_destination(self, destination: Tensor, vector: Tensor) -> Tensor:
        return destination * vector


def build(width: int, classes: int = 0, relations: int = 0) -> Scorer:
    """Build the scorer of a typed graph, or, without relations, that of a plain one or of classes."""
    return TypedDistMult(width, width, relations) if relations else DistMult(width, classes)


MEMBER = ScorerMember(build, scores_classes=True, reads_relations=True)
