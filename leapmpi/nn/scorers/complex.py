"""`complex`: the real part of source x relation x conjugate destination, in complex numbers.

It depends on the direction of the edge.

Trouillon et al., "Complex Embeddings for Simple Link Prediction" (ICML 2016), equation 11.
"""

from __future__ import annotations

from torch import Tensor

from leapmpi.nn.relation_scorer import RelationScorer, check_even, complex_product, conjugate
from leapmpi.nn.scorer import Scorer, ScorerMember


class ComplEx(RelationScorer):
    """Half of the columns are real parts, the others imaginary parts."""

    def query_of_source(self, source: Tensor, vector: Tensor) -> Tensor:
        return complex_product(source, vector)

    def query_of_destination(self, destination: Tensor, vector: Tensor) -> Tensor:
        return complex_product(destination, conjugate(vector))


def build(width: int, relations: int = 0) -> Scorer:
    """Build the scorer of `relations` vectors. Raises ConfigError for an odd width."""
    check_even(width, "complex")
    return ComplEx(width, width, relations)


MEMBER = ScorerMember(build, reads_relations=True)
