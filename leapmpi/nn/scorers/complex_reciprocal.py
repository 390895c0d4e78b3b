"""`complex-reciprocal`: `complex`, with a second vector for each relation by which sources are predicted.

Lacroix et al., "Canonical Tensor Decomposition for Knowledge Base Completion" (ICML 2018), section 4.
"""

from __future__ import annotations

from functools import partial

from leapmpi.nn.relation_scorer import ReciprocalScorer, check_even
from leapmpi.nn.scorer import Scorer, ScorerMember
from leapmpi.nn.scorers.complex import ComplEx


def build(width: int, relations: int = 0) -> Scorer:
    """Build the scorer of twice `relations` vectors. Raises ConfigError for an odd width."""
    check_even(width, "complex-reciprocal")
    return ReciprocalScorer(partial(ComplEx, width, width, relations))


MEMBER = ScorerMember(build, reads_relations=True)
