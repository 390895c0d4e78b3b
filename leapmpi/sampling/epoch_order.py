"""The order in which an epoch visits the training vertices, and its batches.

The shuffle is global and uniform: vertices are sorted by a hash of (seed, epoch, original id), so every partition and
number of ranks trains the same batches. No root is dropped or repeated.
"""

from __future__ import annotations

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.system.counter_rng import ORDER, DrawKey, fold_all, key_hash


def epoch_order(train: np.ndarray, original_ids: np.ndarray, seed: int, epoch: int, stream: int = ORDER) -> np.ndarray:
    """The training vertices in the order of one epoch: int64[n], a permutation of `train`.

    train: int64[n], renumbered ids; original_ids: int64[n], their distinct original ids in the same order.
    The result, read in original ids, depends on (stream, seed, epoch) and the set of vertices only.

    Raises ConfigError when seed or epoch is not a whole number in [0, 2**63).
    """
    if len(train) != len(original_ids):
        raise ValueError(f"{len(train)} training vertices with {len(original_ids)} original ids")
    base = key_hash(DrawKey(stream, seed, epoch, 0))
    return train[np.argsort(fold_all(base, original_ids), kind="stable")]


def batches(order: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """`order` cut into consecutive batches (views) of `batch_size` roots; the last may be shorter.

    Raises ConfigError when batch_size is not positive.
    """
    if batch_size < 1:
        raise ConfigError(f"the batch size must be at least 1, not {batch_size}")
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
