"""Weights of pairs of clusters, added up in bounded memory: where pairs become too many, all weights are halved.

Halving rounds odd weights up or down by a hash, so that every weight keeps its expectation and light pairs
go first. What the table holds is then a sample of the edges between clusters by weight.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.counter_rng import fold
from leapmpi.system.jit import compiled

_FULL = 0.7
_EMPTY = -1


@compiled
def _add(keys, weights, table_keys, table_weights, start, count, most):
    """Add pairs from `start` on, but no more than `most` in all; returns (where it stopped, pairs in the table)."""
    mask = len(table_keys) - 1
    for i in range(start, len(keys)):
        key = keys[i]
        # Multiplicative hashing, then linear probing.
        slot = (key * -7046029254386353131 >> 20) & mask
        while table_keys[slot] != key and table_keys[slot] != -1:
            slot = (slot + 1) & mask
        if table_keys[slot] == -1:
            if count == most:
                return i, count
            table_keys[slot] = key
            count += 1
        table_weights[slot] += weights[i] if len(weights) else 1
    return len(keys), count


@compiled
def _halve(keys, weights, seed):
    """Halve the weights of pairs in place and drop those that become 0; returns how many are left."""
    left = 0
    for i in range(len(keys)):
        w = weights[i]
        half = w >> 1
        if w & 1:
            # Round odd weights by a fair hash: light pairs drop out, but sums stay unbiased.
            half += np.int64(fold(seed, i) >> np.uint64(63))
        if half:
            keys[left] = keys[i]
            weights[left] = half
            left += 1
    return left


@compiled
def _pairs(table_keys, table_weights, keys, weights):
    """Copy the pairs of the table, in the order of their slots."""
    count = 0
    for slot in range(len(table_keys)):
        if table_keys[slot] != -1:
            keys[count] = table_keys[slot]
            weights[count] = table_weights[slot]
            count += 1


class PairTable:
    """At most `most` pairs with their weights; the table begins with room for `expected`.

    halvings: how often the weights were halved.
    """

    def __init__(self, most: int, expected: int, seed: int) -> None:
        self.most = max(16, most)
        self.halvings = 0
        self._seed = seed
        self._count = 0
        self._keys, self._weights = np.empty(0, np.int64), np.empty(0, np.int32)
        self._resize(min(self._slots(self.most), self._slots(expected)))

    def _slots(self, pairs: int) -> int:
        return 1 << int(np.ceil(np.log2(pairs / _FULL + 1)))

    def _resize(self, slots: int) -> None:
        if slots != len(self._keys):
            self._keys, self._weights = np.empty(slots, np.int64), np.empty(slots, np.int32)
        self._keys[:] = _EMPTY
        self._weights[:] = 0

    def add(self, keys: np.ndarray, weights: np.ndarray) -> None:
        """Add weights int32[p] (int32[0]: 1 each) of pairs with keys int64[p]."""
        done = 0
        while done < len(keys):
            most = min(self.most, int(_FULL * len(self._keys)))
            done, self._count = _add(keys, weights, self._keys, self._weights, done, self._count, most)
            if done < len(keys):
                halvings = self.halvings
                self._grow_or_halve()
                if self.halvings > halvings:
                    # What has not been added yet was not halved with the rest.
                    keys = keys[done:].copy()
                    weights = weights[done:].copy() if len(weights) else np.ones(len(keys), np.int32)
                    left = _halve(keys, weights, np.uint64(fold(np.uint64(self._seed), -self.halvings)))
                    keys, weights, done = keys[:left], weights[:left], 0

    def _grow_or_halve(self) -> None:
        """Make the table larger, or halve the weights where it is as large as it may be."""
        keys, weights = self.pairs()
        if len(keys) >= self.most:
            # Full: forget light pairs rather than exceed the budget.
            seed = np.uint64(fold(np.uint64(self._seed), self.halvings))
            left = _halve(keys, weights, seed)
            keys, weights = keys[:left], weights[:left]
            self.halvings += 1
            self._resize(len(self._keys))
        else:
            self._resize(min(2 * len(self._keys), self._slots(self.most)))
        self._count = 0
        done, self._count = _add(keys, weights, self._keys, self._weights, 0, 0, len(self._keys) - 1)
        assert done == len(keys)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return keys int64[p] and weights int32[p] of all pairs, in an order that follows from what was added."""
        assert self._count <= self.most
        keys, weights = np.empty(self._count, np.int64), np.empty(self._count, np.int32)
        _pairs(self._keys, self._weights, keys, weights)
        return keys, weights
