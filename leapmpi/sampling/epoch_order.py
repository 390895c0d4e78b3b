"""Order of the training vertices in an epoch, and its batches.

The shuffle is global and uniform: vertices are sorted by a hash of (seed, epoch, original id). So every partition and
number of ranks trains the same batches. No root is dropped or repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.system.counter_rng import ORDER, DrawKey, fold, fold_all, key_hash

_BATCHES = 0x62617463_68657321  # keeps the order of batches apart from that of roots


def epoch_order(train: np.ndarray, original_ids: np.ndarray, seed: int, epoch: int, stream: int = ORDER) -> np.ndarray:
    """Return the training vertices in the order of one epoch: int64[n], a permutation of `train`.

    train: int64[n], renumbered ids; original_ids: int64[n], their distinct original ids in the same order. In original
    ids, the result depends only on (stream, seed, epoch) and the set of vertices.

    Raises ConfigError unless seed and epoch are whole numbers in [0, 2**63).
    """
    if len(train) != len(original_ids):
        raise ValueError(f"{len(train)} training vertices with {len(original_ids)} original ids")
    base = key_hash(DrawKey(stream, seed, epoch, 0))
    return train[np.argsort(fold_all(base, original_ids), kind="stable")]


def batches(order: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Cut `order` (int64[n]) into consecutive batches (views) of `batch_size` roots; the last may be shorter.

    Raises ConfigError unless batch_size is positive.
    """
    if batch_size < 1:
        raise ConfigError(f"the batch size must be at least 1, not {batch_size}")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def by_time(order: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Sort `order` (integers[n]) by ascending `time` (numbers[n]); equal times keep their order."""
    return order[np.argsort(time, kind="stable")]


class _InOrder(Sequence):
    """Same batches in another order."""

    def __init__(self, batches: Sequence[np.ndarray], order: np.ndarray) -> None:
        self._batches, self._order = batches, order

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self._batches[each] for each in self._order[number]]
        return self._batches[self._order[number]]


def shuffled(batches: Sequence[np.ndarray], seed: int, epoch: int, stream: int = ORDER) -> Sequence[np.ndarray]:
    """Shuffle `batches` by a hash of (stream, seed, epoch); the last one, which may be shorter, stays last."""
    whole = np.arange(max(0, len(batches) - 1))
    base = np.uint64(fold(key_hash(DrawKey(stream, seed, epoch, 0)), _BATCHES))
    return _InOrder(batches, np.append(np.argsort(fold_all(base, whole), kind="stable"), whole.size)[: len(batches)])
