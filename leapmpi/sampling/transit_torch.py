"""Draws of pairs (transit, sample), grouped by transit, in torch operations for any device; see `transit`.

Numbers are those of the CPU, bit for bit: the 64-bit hash is computed in signed words, whose sums and products are the
same modulo 2**64; only shifts to the right must drop the sign.
"""

from __future__ import annotations

import torch
from torch import Tensor

_GOLDEN, _FIRST, _SECOND = (word - 2**64 for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
"""The constants of SplitMix64 in `keys`, as signed words."""


def _shifted(x: Tensor, bits: int) -> Tensor:
    """x >> bits of unsigned words."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def fold(base: Tensor, word: Tensor | int) -> Tensor:
    """`keys.fold` of int64 tensors that hold unsigned words."""
    x = base + (word + 1) * _GOLDEN
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def bounded(hashed: Tensor, n: Tensor) -> Tensor:
    """`keys.bounded` of int64 tensors: `hashed` holds unsigned words, 0 < n < 2**31."""
    low = (hashed & 0xFFFFFFFF) * n
    return _shifted(_shifted(hashed, 32) * n + _shifted(low, 32), 32)


def draw_pairs(
    indptr: Tensor, indices: Tensor, transits: Tensor, names: Tensor, draws: int, group: bool = True
) -> Tensor:
    """As `transit.draw_pairs`, with all tensors on one device: [p, draws], of the type of `indices`.

    indptr: int64[n + 1]; transits: int64[p]; names: int64[p], the unsigned words as they are in memory. The pairs are
    sorted, one program reads the bounds of each distinct transit once, and neighbouring pairs share its list.
    """
    if len(indices) == 0:
        return indices.new_full((len(transits), draws), -1)
    order = torch.argsort(transits) if group else torch.arange(len(transits), device=transits.device)
    distinct, pairs = torch.unique_consecutive(transits[order], return_counts=True)
    start = indptr[distinct].repeat_interleave(pairs)
    degree = indptr[distinct + 1].repeat_interleave(pairs) - start
    number = torch.arange(draws, device=transits.device)
    position = bounded(fold(names[order].unsqueeze(1), number), degree.clamp(min=1).unsqueeze(1))
    drawn = indices[(start.unsqueeze(1) + position).clamp(max=len(indices) - 1)]
    out = indices.new_empty(len(transits), draws)
    out[order] = torch.where(degree.unsqueeze(1) > 0, drawn, -1)
    return out
