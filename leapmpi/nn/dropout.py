"""Dropout whose masks are hashes of vertex and column, so that merging or splitting batches changes nothing.

The mask of an element is a function of (stream, seed, epoch, iteration, layer, original vertex id, column); in
attention of (..., layer, destination, source, head). One 64-bit hash serves four neighbouring columns, 16 bits each:
an element is dropped when its 16 bits are below rate x 65536, and the kept ones are scaled by the exact inverse of
the keep probability. Masks are compiled for the CPU; their counterparts in torch operations, for other devices, agree
with them bit for bit.

In every function here `below` is the 16-bit threshold of the rate, and `base` the hash of key, kind and layer. `first`
is the global number of the first column of `x`, and `vertices` int64 are original ids.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.kernels.csr import run_compiled
from leapmpi.nn.kernels.kernel_choice import on_host
from leapmpi.nn.kernels.triton_choice import serves
from leapmpi.nn.rows import Rows, SparseMatrix, dense
from leapmpi.nn.tensors import Edges
from leapmpi.system.counter_rng import DrawKey, fold, key_hash
from leapmpi.system.jit import compiled

DropoutKey = DrawKey
"""The key of a batch's masks: stream, seed, epoch and iteration."""

# Numbers that keep masks apart from the sampler's draws, which fold small hop numbers into the same key.
_FEATURES, _ATTENTION = 0x66656174_00000000, 0x61747465_00000000
_STEPS = 1 << 16


def with_seed(key: DropoutKey | None, seed: int) -> DropoutKey | None:
    """Return `key` with the model's own `seed`, or as it is where the seed is negative."""
    return key if key is None or seed < 0 else key._replace(seed=seed)


def threshold(rate: float) -> int:
    """Return the number below which 16-bit values drop an element: `rate` to the nearest 1/65536."""
    return round(rate * _STEPS)


def _scale(below: int) -> float:
    """Return the inverse of the probability to keep an element; 0 where all are dropped."""
    return _STEPS / (_STEPS - below) if below < _STEPS else 0.0


@compiled
def _mask_row(row, hashed, below, scale, first, words, out):
    """Mask one row, in two loops that compile to vector code: hashes of four columns each, then 16-bit lanes."""
    group = np.uint64(first >> 2)
    for k in range(len(words)):
        words[k] = fold(hashed, group + np.uint64(k))
    lanes = words.view(np.uint16)[first & 3 :]  # little-endian: the lowest bits come first
    for f in range(len(row)):
        out[f] = row[f] * scale if lanes[f] >= below else row.dtype.type(0)


@compiled
def _words(first, width):
    """Allocate space for the hashes of columns `first` to `first + width`, one for four columns."""
    return np.empty((first + width + 3) // 4 - first // 4, np.uint64)


@compiled
def _mask_vertices(first, end, x, vertices, base, below, scale, first_column, out):
    words = _words(first_column, x.shape[1])
    for i in range(first, end):
        _mask_row(x[i], fold(base, vertices[i]), below, scale, first_column, words, out[i])


@compiled
def _kept_columns(vertices, base, below, kept):
    """Mark the columns that `_mask_vertices` keeps."""
    width = kept.shape[1]
    words = np.empty((width + 3) // 4, np.uint64)
    for i in range(len(vertices)):
        hashed = fold(base, vertices[i])
        # Two loops that compile to vector code.
        for group in range(len(words)):
            words[group] = fold(hashed, group)
        lanes = words.view(np.uint16)
        for column in range(width):
            kept[i, column] = lanes[column] >= below


@compiled
def _mask_edges(first, end, x, indptr, indices, vertices, base, below, scale, out):
    words = _words(0, x.shape[1])
    for i in range(first, end):
        hashed = fold(base, vertices[i])
        for e in range(indptr[i], indptr[i + 1]):
            _mask_row(x[e], fold(hashed, vertices[indices[e]]), below, scale, 0, words, out[e])


def _signed(word: int) -> int:
    """Return the int64 with the bits of a uint64: torch has no arithmetic on the latter."""
    return word - (1 << 64) if word >> 63 else word


# The constants of `counter_rng.fold`.
_GOLDEN, _FIRST, _SECOND = map(_signed, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shift x right by `bits` like unsigned numbers: zeros enter from the left."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def fold_tensor(base: Tensor | int, words: Tensor) -> Tensor:
    """Compute `counter_rng.fold` of int64 tensors, whose products wrap as unsigned ones do."""
    x = base + (words + 1) * _GOLDEN
    x = (x ^ _shifted(x, 30)) * _FIRST
    x = (x ^ _shifted(x, 27)) * _SECOND
    return x ^ _shifted(x, 31)


def _mask_tensor(x: Tensor, hashed: Tensor, below: int, scale: float, first: int) -> Tensor:
    """Mask `x` float[n, width] by the row hashes int64[n]."""
    last = first + x.shape[1]
    groups = torch.arange(first >> 2, (last + 3) >> 2, device=x.device)
    words = fold_tensor(hashed.unsqueeze(1), groups)
    lanes = torch.stack([(words >> shift) & 0xFFFF for shift in (0, 16, 32, 48)], dim=2).flatten(1)
    keep = lanes[:, first & 3 : (first & 3) + x.shape[1]] >= below
    return torch.where(keep, x * torch.tensor(scale, dtype=x.dtype, device=x.device), x.new_zeros(()))


def mask_vertices_tensor(x: Tensor, vertices: Tensor, base: int, below: int, first: int) -> Tensor:
    """Do `mask_vertices` in torch operations, with the same bits: x float[n, width], vertices int64[n]."""
    return _mask_tensor(x, fold_tensor(_signed(base), vertices), below, _scale(below), first)


def mask_edges_tensor(x: Tensor, edges: Edges, vertices: Tensor, base: int, below: int) -> Tensor:
    """Do `mask_edges` in torch operations, with the same bits: x float[edges, width], vertices int64[sources]."""
    target = vertices[: len(edges.counts)].repeat_interleave(edges.counts)
    hashed = fold_tensor(fold_tensor(_signed(base), target), vertices[edges.indices.long()])
    return _mask_tensor(x, hashed, below, _scale(below), 0)


def mask_vertices(x: Tensor, vertices: Tensor, base: int, below: int, first: int) -> Tensor:
    """Drop elements of `x` (float[n, width]) and scale the others; row i is that of vertices[i] (int64[n])."""
    if not on_host(x.device):
        if x.dtype in (torch.float32, torch.float64) and serves("dropout", x.device, partial(_tried, x.device)):
            return _in_triton()(x, vertices, _signed(base), below, first)
        return mask_vertices_tensor(x, vertices, base, below, first)
    out = x.new_empty(x.shape)
    scale = out.numpy().dtype.type(_scale(below))
    run_compiled(_mask_vertices, len(x), x, vertices, np.uint64(base), np.uint32(below), scale, np.int64(first), out)
    return out


def _in_triton() -> Callable[[Tensor, Tensor, int, int, int], Tensor]:
    # Here and not above: it loads Triton.
    from leapmpi.nn.kernels.dropout_triton import mask_vertices as found

    return found


def _tried(device: torch.device) -> bool:
    """Return whether Triton masks some rows as torch does: from any first column, at any rate."""
    vertices = torch.arange(40, device=device) * 77_777_777_777
    rows = torch.arange(1, 40 * 71 + 1, device=device).view(40, 71).double().sqrt()
    for dtype, below, first in ((torch.float32, 1, 0), (torch.float64, 40_000, 3), (torch.float32, _STEPS, 6)):
        x, base = rows.to(dtype), _STEPS**3 + below
        found = _in_triton()(x, vertices, _signed(base), below, first)
        if not torch.equal(found, mask_vertices_tensor(x, vertices, base, below, first)):
            return False
    return True


def mask_edges(x: Tensor, edges: Edges, vertices: Tensor, base: int, below: int) -> Tensor:
    """Drop elements of `x` (float[edges, heads]) and scale the others; `vertices` int64[sources]."""
    if not on_host(x.device):
        return mask_edges_tensor(x, edges, vertices, base, below)
    out = x.new_empty(x.shape)
    scale = out.numpy().dtype.type(_scale(below))
    hashed = (vertices, np.uint64(base), np.uint32(below), scale)
    run_compiled(_mask_edges, len(edges.indptr) - 1, x, edges.indptr, edges.indices, *hashed, out)
    return out


@compiled
def _mask_entries(first, end, values, indptr, columns, vertices, base, below, scale, first_column, out):
    for i in range(first, end):
        hashed = fold(base, vertices[i])
        for e in range(indptr[i], indptr[i + 1]):
            column = np.uint64(first_column) + np.uint64(columns[e])
            word = fold(hashed, column >> np.uint64(2))
            lane = (word >> (np.uint64(16) * (column & np.uint64(3)))) & np.uint64(0xFFFF)
            out[e] = values[e] * scale if lane >= below else values.dtype.type(0)


def mask_entries_tensor(x: SparseMatrix, vertices: Tensor, base: int, below: int, first: int) -> Tensor:
    """Do `mask_entries` in torch operations, with the same bits: float[entries], vertices int64[rows]."""
    row = fold_tensor(_signed(base), vertices).repeat_interleave(x.entries.counts)
    column = x.entries.indices.long() + first
    lane = (fold_tensor(row, column >> 2) >> (16 * (column & 3))) & 0xFFFF
    scale = torch.tensor(_scale(below), dtype=x.dtype, device=x.device)
    return torch.where(lane >= below, x.values * scale, x.values.new_zeros(()))


def mask_entries(x: SparseMatrix, vertices: Tensor, base: int, below: int, first: int) -> Tensor:
    """Return float[entries]: the values of `x` as `mask_vertices` returns them in the dense matrix."""
    if not on_host(x.device):
        return mask_entries_tensor(x, vertices, base, below, first)
    out = x.values.new_empty(x.values.shape)
    scale = out.numpy().dtype.type(_scale(below))
    hashed = (vertices, np.uint64(base), np.uint64(below), scale, np.int64(first))
    run_compiled(_mask_entries, len(x), x.values, x.entries.indptr, x.entries.indices, *hashed, out)
    return out


class _Masked(Function):
    """A mask on the input, and on the gradient: it is recomputed rather than stored."""

    @staticmethod
    def forward(ctx, x: Tensor, mask: Callable[..., Tensor], arguments: tuple) -> Tensor:
        ctx.mask, ctx.arguments = mask, arguments
        return mask(x, *arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.mask(grad, *ctx.arguments), None, None


def _base(key: DropoutKey, kind: int, layer: int) -> int:
    """Return the hash from which the masks of one layer and kind are drawn."""
    return int(fold(np.uint64(fold(key_hash(key), kind)), layer))


def drop_features(
    x: Rows, vertices: Tensor, key: DropoutKey | None, layer: int, rate: float, first_column: int = 0
) -> Rows:
    """Apply dropout to the input of layer number `layer`; return `x` if `key` is None (evaluation) or the rate is 0.

    `x` is float[n, width], `vertices` int64[n] original ids. The entries of a sparse `x` are dropped or kept as in the
    dense matrix. Where `x` has only some of a vertex's columns, `first_column` is the global number of the first one.
    Differentiable, but not in a sparse or scattered `x`.
    """
    below = threshold(rate)
    if key is None or below == 0:
        return x
    base = _base(key, _FEATURES, layer)
    if isinstance(x, SparseMatrix):
        return replace(x, values=mask_entries(x, vertices, base, below, first_column))
    return _Masked.apply(dense(x), mask_vertices, (vertices, base, below, first_column))


def kept_columns(vertices: np.ndarray, key: DropoutKey, layer: int, rate: float, width: int) -> np.ndarray:
    """Mark the numbers that `drop_features` keeps of rows of `vertices` (int64[n]): uint8[n, width], on the host."""
    kept = np.empty((len(vertices), width), np.uint8)
    _kept_columns(vertices, np.uint64(_base(key, _FEATURES, layer)), np.uint32(threshold(rate)), kept)
    return kept


def drop_attention(
    share: Tensor, edges: Edges, vertices: Tensor, key: DropoutKey | None, layer: int, rate: float
) -> Tensor:
    """Apply dropout to attention shares float[edges, heads]; return them unchanged without `key`, or at rate 0.

    `vertices` int64[sources] are original ids, those of destinations first. Differentiable.
    """
    below = threshold(rate)
    if key is None or below == 0:
        return share
    return _Masked.apply(share, mask_edges, (edges, vertices, _base(key, _ATTENTION, layer), below))


def _mask_ends(x: Tensor, source: Tensor, target: Tensor, relation: Tensor | None, base: int, below: int) -> Tensor:
    start = _signed(base) if relation is None else fold_tensor(_signed(base), relation)
    return _mask_tensor(x, fold_tensor(fold_tensor(start, target), source), below, _scale(below), 0)


def drop_edges(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    key: DropoutKey | None,
    layer: int,
    rate: float,
    relation: Tensor | None = None,
) -> Tensor:
    """Apply dropout to rows of edges, float[edges, width]; return them unchanged without `key`, or at rate 0.

    `source` and `target` int64[edges] are the original ids of each edge's ends; edges between the same ends have the
    same mask, in any order of edges, unless their `relation` (int64[edges]) differs. For attention without relations it
    is that of `drop_attention`. Differentiable.
    """
    below = threshold(rate)
    if key is None or below == 0:
        return x
    return _Masked.apply(x, _mask_ends, (source, target, relation, _base(key, _ATTENTION, layer), below))
