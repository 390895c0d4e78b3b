"""A sampler of your own, in about ten lines: you decide which in-neighbour is drawn next.

The abstraction is that of Jangda, Polisetty, Guha and Serafini, "Accelerating graph sampling for graph machine learning
using GPUs" (NextDoor, EuroSys 2021): samples grow step by step, from the neighbours of their transit vertices.

    from leapmpi.sampling.user_samplers.api import OwnSampler, below, holds

    class GraphSage(OwnSampler):
        sizes = (25, 10)

        def next(neighbours, number, size, drawn, word):
            last = len(neighbours) - size + number
            vertex = neighbours[below(word, last + 1)]
            return neighbours[last] if holds(drawn, vertex) else vertex

A step is a hop. Vertices are named by their original ids, so draws do not depend on the partition. `word` is the only
source of randomness, so they do not depend on rank, thread or order. `next` and `transit` are compiled by numba.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

NONE = -1
"""Result of `next` that draws nothing this time."""


class OwnSampler:
    """Base of your sampler. The class is a declaration and never instantiated."""

    sizes: tuple[int, ...] = ()
    """Vertices to draw at each step, from the root outward: one number per layer of the model. Empty: --fanout."""
    unique = True
    """Whether draws of a transit are distinct: repeated draws are redone.

    A transit with at most as many in-neighbours as draws then takes them all, without a call of `next`.
    """
    collective = False
    """Whether a step draws once for all its transits of the whole batch, from the union of their in-neighbours.

    Each transit then keeps its own in-neighbours among the draws. Otherwise every transit draws separately.
    """
    transit: Callable | None = None
    """transit(step, vertex, degree) -> bool: whether a vertex draws at `step`. None: every vertex found so far does."""

    def next(neighbours, number, size, drawn, word):
        """Return the next vertex: one of `neighbours`, or NONE.

        neighbours: int64[k], original ids of the in-neighbours, ascending; number: draws made before, of `size`; drawn:
        int64, vertices drawn so far; word: uint64, a random word of this draw.
        """
        raise NotImplementedError


@compiled
def below(word, n):
    """Map a random word to a number in [0, n), for 0 < n <= 2**32: int64."""
    return np.int64(bounded(word, n))


@compiled
def holds(drawn, vertex):
    """Return whether `vertex` is among `drawn` (int64[k])."""
    found = False
    for each in drawn:
        found |= each == vertex
    return found
