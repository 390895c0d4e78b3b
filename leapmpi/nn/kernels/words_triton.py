"""Counter-based random words in Triton, bit-identical to system/counter_rng.py.

Imported only if Triton is available (triton_choice.py).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fold(base, word):
    """Return counter_rng.fold of uint64 `base` and integers `word`."""
    x = base + (word.to(tl.uint64) + 1) * 0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def column(table, number, columns):
    """Return column `number` of integers [rows, width], as [rows, 1]; columns: [1, width], their numbers."""
    return tl.sum(tl.where(columns == number, table, 0), axis=1)[:, None]
