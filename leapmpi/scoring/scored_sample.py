"""The vertices or edges of a split that are scored where settings bound their number: a uniform sample, by hashes.

The sample depends on the seed, the split and original ids alone: it is the same on any ranks and partition, and in
every epoch.
"""

from __future__ import annotations

import numpy as np

from leapmpi.system.counter_rng import DrawKey, fold, fold_all, key_hash

_SCORED = 0x73636F72_65640000  # keeps these hashes apart from those of draws


def scored_sample(stream: int, seed: int, original_ids: np.ndarray, limit: int) -> np.ndarray:
    """Choose the scored ones, `limit` or all: positions int64[k], ascending; 0 for no limit. Pure.

    original_ids: int64[n] of vertices, or int64[n, 2] of the ends of edges; `stream` is that of the split's draws.
    """
    if not 0 < limit < len(original_ids):
        return np.arange(len(original_ids))
    base = np.uint64(fold(key_hash(DrawKey(stream, seed, 0, 0)), np.uint64(_SCORED)))
    words = original_ids.reshape(len(original_ids), -1)
    hashes = fold_all(base, words[:, 0])
    for column in words.T[1:]:
        # Mixed once more, ends in the other order, and equal ends, have hashes of their own.
        hashes = fold_all(base, hashes.view(np.int64))
        hashes = fold_all(base, (hashes ^ fold_all(base, column)).view(np.int64))
    return np.sort(np.argsort(hashes, kind="stable")[:limit])
