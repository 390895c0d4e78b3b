"""`distmult-reciprocal`: `distmult`, with a second vector for each relation by which sources are predicted.

Lacroix et al., "Canonical Tensor Decomposition for Knowledge Base Completion" (ICML 2018), section 4.
"""

from __future__ import annotations

from functools import partial

from leapmpi.nn.relation_scorer import ReciprocalScorer
from leapmpi.nn.scorer import Scorer, ScorerMember
from leapmpi.nn.scorers.distmult import TypedDistMult


def build(width: int, relations: int = 0) -> Scorer:
    """Build the scorer of twice `relations` vectors."""
    return ReciprocalScorer(partial(TypedDistMult, width, width, relations))


MEMBER = ScorerMember(build, reads_relations=True)
