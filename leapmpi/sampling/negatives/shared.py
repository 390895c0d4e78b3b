"""Negatives `shared`: every vertex is equally likely, and all edges of a batch have the same; in a typed graph all ends
of the same type have.

Few vertices are embedded and sent, however many negatives an edge has: the choice for knowledge graphs (DGL-KE, Zheng
et al., SIGIR 2020, section 3.3). Edges of the graph are not redrawn. In a typed graph, with a loss that calls
each negative false by itself, they count for other edges alone.
"""

from __future__ import annotations

from leapmpi.sampling.negative_sampler import NegativesMember
from leapmpi.sampling.negatives.uniform import Uniform


class Shared(Uniform):
    """Draws once for all edges."""

    shared = True


MEMBER = NegativesMember(Shared)
