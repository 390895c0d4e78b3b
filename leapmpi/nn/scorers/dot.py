"""`dot`: the inner product of both embeddings."""

from __future__ import annotations

from torch import Tensor

from leapmpi.nn.scorer import Scorer, ScorerMember


class Dot(Scorer):
    """No parameters."""

    def forward(self, source: Tensor, destination: Tensor) -> Tensor:
        return (source * destination).sum(dim=1)

    def all_pairs(self, source: Tensor, destination: Tensor) -> Tensor:
        return source @ destination.T


def build(width: int) -> Scorer:
    """Build the scorer, which fits any width."""
    return Dot()


MEMBER = ScorerMember(build)
