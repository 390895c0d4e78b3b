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
"""What `next` returns to draw nothing this time."""


class OwnSampler:
    """Base of your sampler. The class is a declaration: no instance is made."""

    sizes: tuple[int, ...] = ()
    """Vertices to draw at each step, from the root outward: one number per layer of the model. Empty: --fanout."""
    unique = True
    """Whether a transit's draws are distinct: a vertex drawn before is drawn again. A transit that has no more
    in-neighbours than draws then takes them all, and `next` is not called."""
    collective = False
    """Whether a step draws once for all its transits over the whole batch, from the union of their in-neighbours; each
    transit then keeps those that are in-neighbours of it. Otherwise every transit draws for itself."""
    transit: Callable | None = None
    """transit(step, vertex, degree) -> bool: whether a vertex draws at `step`. None: every vertex found so far does."""

    def next(neighbours, number, size, drawn, word):
        """The next vertex: one of `neighbours`, or NONE.

        neighbours: int64[k], the in-neighbours' original ids, ascending; number: the draws made before, of `size`;
        drawn: int64, the vertices drawn so far; word: uint64, a random word of this draw.
        """
        raise NotImplementedError


@compiled
def below(word, n):
    """A random word as a number in [0, n), for 0 < n <= 2**32: int64."""
    return np.int64(bounded(word, n))


@compiled
def holds(drawn, vertex):
    """Whether `vertex` is among `drawn` (int64[k])."""
    found = False
    for each in drawn:
        found |= each == vertex
    return found
