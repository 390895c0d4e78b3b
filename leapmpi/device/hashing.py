"""Counter-based random words of system/counter_rng.py in torch operations, on any device.

A word is held as int64 with the same bits. Sums and products of int64 wrap around like those of words. Shifts to the
right are made logical, and words are compared with the highest bit flipped.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.dropout import fold_tensor

_LOW_HALF = (1 << 32) - 1
_HIGHEST_BIT = -(1 << 63)


def signed(word: int | np.integer) -> int:
    """Return the int64 with the bits of `word`, in [0, 2**64)."""
    return int(word) - (1 << 64) if int(word) >= 1 << 63 else int(word)


def fold(base: Tensor | int, word: Tensor) -> Tensor:
    """Return the bits of counter_rng.fold as int64; `base` is words, or one (bits of uint64, as int64)."""
    return fold_tensor(base, word)


def shifted(words: Tensor, bits: int) -> Tensor:
    """Shift `words`, int64 with the bits of uint64, to the right by `bits` (1 to 63), filled with zeros."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def bounded(words: Tensor, n: Tensor | int) -> Tensor:
    """Return counter_rng.bounded: int64 in [0, n), for 0 < n <= 2**32."""
    return shifted(shifted(words, 32) * n + shifted((words & _LOW_HALF) * n, 32), 32)


def bounded_wide(words: Tensor, n: Tensor) -> Tensor:
    """Return counter_rng.bounded: int64 in [0, n), for 0 < n < 2**63."""
    high, low, above, below = shifted(words, 32), words & _LOW_HALF, n >> 32, n & _LOW_HALF
    first, second = high * below, low * above
    middle = shifted(low * below, 32) + (first & _LOW_HALF) + (second & _LOW_HALF)
    return high * above + shifted(first, 32) + shifted(second, 32) + shifted(middle, 32)


def in_order(words: Tensor) -> Tensor:
    """Return int64 that compare as `words` do as numbers in [0, 2**64)."""
    return words ^ _HIGHEST_BIT


def multiple_of_share(parts: Tensor, count: Tensor) -> Tensor:
    """Return int64 bits of (2**64 - 1) // parts * count, for parts > 0 and 0 <= count <= parts."""
    # 2**64 - 1 is twice the largest int64 and one.
    most = torch.iinfo(torch.int64).max
    share = 2 * (most // parts) + (2 * (most % parts) + 1) // parts
    return share * count
