"""`transe`: the nearer source + relation is to the destination, the likelier the edge; distances are sums of
magnitudes.

Bordes et al., "Translating Embeddings for Modeling Multi-relational Data" (NIPS 2013), section 2, with d = L1.
"""

from __future__ import annotations

from torch import Tensor

from leapmpi.nn.kernels.distances import MAGNITUDES
from leapmpi.nn.relation_scorer import DistanceScorer
from leapmpi.nn.scorer import Scorer, ScorerMember


class TransE(DistanceScorer):
    """A margin minus |source + relation - destination|."""

    kind = MAGNITUDES

    def query_of_source(self, source: Tensor, vector: Tensor) -> Tensor:
        return source + vector

    def query_of_destination(self, destination: Tensor, vector: Tensor) -> Tensor:
        return destination - vector

    def distance(self, difference: Tensor) -> Tensor:
        return difference.abs().sum(dim=-1)


def build(width: int, relations: int = 0) -> Scorer:
    """Build the scorer of `relations` vectors."""
    return TransE(width, width, relations)


MEMBER = ScorerMember(build, reads_relations=True)
