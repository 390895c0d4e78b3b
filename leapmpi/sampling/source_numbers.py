"""Random numbers of source vertices, shared by all destinations that may draw them (LABOR).

Numbers are 64-bit words, read as numbers in [0, 2**64). They may be the same at all hops, and may last for several
batches. See dependent batches in Balin, LaSalle, Catalyurek, "Cooperative minibatching in graph neural networks", 2023.
That paper changes all numbers a little from batch to batch, by sums of Gaussians. Here each source draws a new number
once in `kept_batches` batches, spread evenly over the sources. In both, the numbers of one batch are independent and
uniform, and consecutive batches share most of them; here integers suffice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from leapmpi.system.counter_rng import DrawKey, bounded, fold, key_hash
from leapmpi.system.jit import compiled

_ALL_HOPS = 1 << 32
"""Hop number for numbers shared by all hops; no hop has it."""


class Law(NamedTuple):
    """Law of the numbers at one hop of one iteration."""

    hashed: np.uint64
    iteration: int
    kept: int


@compiled
def source_number(law, original):
    """Return the number (uint64) of the source with the original id `original`."""
    if law.kept == 1:
        return fold(law.hashed, original)
    name = fold(law.hashed, original)
    turn = np.int64(bounded(fold(name, 0), law.kept))
    return fold(name, 1 + (law.iteration + turn) // law.kept)


def law_of(key: DrawKey, hop: int, same_in_layers: bool, kept_batches: int) -> Law:
    """Return the law of numbers at `hop` of the iteration of `key`. All numbers change with each epoch.

    same_in_layers: one number per source at all hops; kept_batches: batches that a number lasts.
    """
    epoch = key if kept_batches == 1 else key._replace(iteration=0)
    hashed = np.uint64(fold(key_hash(epoch), _ALL_HOPS if same_in_layers else hop))
    return Law(hashed, key.iteration, kept_batches)
