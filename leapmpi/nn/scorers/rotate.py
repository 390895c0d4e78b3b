"""`rotate`: the nearer the source, turned by the angles of the relation, is to the destination, the likelier the edge.

Sun et al., "RotatE: Knowledge Graph Embedding by Relational Rotation in Complex Space" (ICLR 2019), equation 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from leapmpi.nn.kernels.distances import LEAST, LENGTHS
from leapmpi.nn.relation_scorer import DistanceScorer, check_even, complex_product, conjugate
from leapmpi.nn.scorer import Scorer, ScorerMember


class RotatE(DistanceScorer):
    """A margin minus the sum of the distances of complex numbers; a relation has an angle for each of them."""

    kind = LENGTHS

    def __init__(self, width: int, relations: int) -> None:
        super().__init__(width, width // 2, relations)
        # From angles near 0 all relations end as no turn, which makes the end itself the nearest vertex.
        self.limits = {"relation": math.pi}

    def query_of_source(self, source: Tensor, vector: Tensor) -> Tensor:
        return complex_product(source, _turns(vector))

    def query_of_destination(self, destination: Tensor, vector: Tensor) -> Tensor:
        return complex_product(destination, conjugate(_turns(vector)))

    def distance(self, difference: Tensor) -> Tensor:
        real, imaginary = difference.chunk(2, dim=-1)
        return (real * real + imaginary * imaginary + LEAST).sqrt().sum(dim=-1)


def _turns(angle: Tensor) -> Tensor:
    """Return complex numbers of length 1 with these angles."""
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def build(width: int, relations: int = 0) -> Scorer:
    """Build the scorer, with half as many angles as columns in a relation. Raises ConfigError for an odd width."""
    check_even(width, "rotate")
    return RotatE(width, relations)


MEMBER = ScorerMember(build, reads_relations=True)
