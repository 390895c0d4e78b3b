"""Counter-based random numbers: every draw is a hash of what it is for, never of when or where it is made.

A `DrawKey` names the occasion (stream, seed, epoch, iteration). Kernels fold further words into its hash
(hop, original vertex id, number of the draw), so any rank, thread or partition computes the same numbers.

The hash is SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014):
`fold(base, word)` is output number `word` of the generator with state `base`. Everything is integer arithmetic
modulo 2**64, so every processor agrees. `fold` is a bijection of `word` for a given `base`: no ties.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.system.intrinsics import high_product
from leapmpi.system.jit import compiled

TRAIN, VAL, TEST, PRESAMPLE, ORDER, PLAN = 1, 2, 3, 4, 5, 6
"""Stream codes. ORDER shuffles the roots of an epoch, PLAN is the planner's; the others draw neighbours and dropout
masks."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_ONE = np.uint64(1)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)


class DrawKey(NamedTuple):
    """Occasion of a draw. Each word is in [0, 2**63)."""

    stream: int
    seed: int
    epoch: int
    iteration: int


@compiled
def mix(x):
    """Mix by the finaliser of SplitMix64, a bijection of 64-bit words that scatters every input bit.

    uint64 -> uint64.
    """
    x = np.uint64(x)
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@compiled
def fold(base, word):
    """Extend the hash `base` (uint64) by one more word (any integer, taken modulo 2**64). Returns uint64."""
    return mix(np.uint64(base) + (np.uint64(word) + _ONE) * _GOLDEN)


@compiled
def bounded(hashed, n):
    """Map a hash (uint64) to a number in [0, n): the high word of hashed * n, exact in integers.

    Needs 0 < n < 2**63. No value is more likely than another by more than 2**-64. Returns uint64.
    """
    return high_product(np.uint64(hashed), np.uint64(n))


@compiled
def fold_all(base, words):
    """Return `fold(base, word)` for each of `words` (int64[k]): uint64[k]."""
    out = np.empty(len(words), np.uint64)
    for i in range(len(words)):
        out[i] = fold(base, words[i])
    return out


def key_hash(key: DrawKey) -> np.uint64:
    """Return the hash of a key, from which kernels fold on.

    Raises ConfigError when a word is not an integer in [0, 2**63).
    """
    hashed = np.uint64(0)
    for name, value in zip(DrawKey._fields, key, strict=True):
        try:
            # numpy's integers too, but no floats: rounding would repeat draws.
            word = operator.index(value)
        except TypeError:
            raise ConfigError(f"{name} must be a whole number, not {value!r}") from None
        if not 0 <= word < 2**63:
            raise ConfigError(f"{name} must be between 0 and 2**63 - 1, not {word}")
        hashed = np.uint64(fold(hashed, np.uint64(word)))
    return hashed
