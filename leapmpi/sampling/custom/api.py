"""A sampler of your own, in about ten lines: which in-neighbour comes next is up to you, the rest is done for you.

The abstraction is that of Jangda, Polisetty, Guha and Serafini, "Accelerating graph sampling for graph machine learning
using GPUs" (NextDoor, EuroSys 2021): samples grow step by step, from the neighbours of their transit vertices.

    from leapmpi.sampling.custom.api import OwnSampler, below, holds

    class GraphSage(OwnSampler):
        sizes = (25, 10)

        def next(neighbours, number, size, drawn, word):
            last = len(neighbours) - size + number
            vertex = neighbours[below(word, last + 1)]
            return neighbours[last] if holds(drawn, vertex) else vertex

A step is a hop. Vertices are named by their original ids, so that draws depend on no partition; `word` is all that may
be random, so that they depend on no rank, thread or order. `next` and `transit` are compiled by numba.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leapmpi.system.counter_rng import bounded
from leapmpi.system.jit import compiled

NONE = -1
"""What `next` returns to draw nothing this time."""


class OwnSampler:
    """Base of your sampler. It is a declaration: no instance is made."""

    sizes: tuple[int, ...] = ()
    """Vertices to draw at each step, from the root outward: one number per layer of the model. Empty: --fanout."""
    unique = True
    """Whether a transit's draws are distinct; one drawn before is drawn again. A transit with no more in-neighbours
    than it has draws then takes them all, and `next` is not asked."""
    collective = False
    """Whether all transits of a step over the whole batch draw together, from the union of their in-neighbours; each
    then keeps those drawn that are its own in-neighbours. Else every transit draws by itself."""
    transit: Callable | None = None
    """transit(step, vertex, degree) -> bool: whether a vertex draws at `step`. None: every vertex found so far does."""

    def next(neighbours, number, size, drawn, word):
        """The next vertex: one of `neighbours`, or NONE.

        neighbours: int64[k], the in-neighbours' original ids, ascending; number: the draws made before, of `size`;
        drawn: int64, the vertices drawn so far; word: uint64, a random word of this draw alone.
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
