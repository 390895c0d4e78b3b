"""Sums over the edges of a block, compiled for the CPU.

One thread sums each output row, in the order of its edges, so results do not depend on the thread count. Memory is
proportional to vertices x features and edges x heads, never to edges x features. The module csr_torch has the same
functions for other devices. Both take and return tensors; gradients are in aggregate.py.

Shapes: an edge list in CSR form is `indptr` int64[rows + 1] and `indices` int32 or int64[edges], the source of each
edge; row i has the edges indptr[i] to indptr[i + 1]. `z` is float[sources, width], `weight` float[edges, heads]. Head h
of a row of `z` is its h-th slice of width // heads columns. float is float32 or float64, the same for all arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.nn.kernels import head_rows, row_sums
from leapmpi.nn.kernels.exponential import exponentials
from leapmpi.system.jit import compiled, compiled_dot
from leapmpi.system.worker_threads import share_rows, threads

_WIDE_ROW = 128
"""Columns from which on rows are prefetched: rows of 300 then take half the time, narrower ones more than torch's."""

_COLUMNS = 16
"""Fewer columns are not worth another thread: a cache line."""

_AT_ONCE = 64
"""Rows of a softmax that are computed together, so that their edges are in cache."""

_U = np.uint64  # unsigned positions spare the kernels numba's test for negative ones


@compiled
def _sum_row(first, last, indices, weight, z, out, i, heads, width):
    """Compute row i of `_weighted_sum`, from edges `first` to `last` (exclusive)."""
    for f in range(heads * width):
        out[i, f] = 0
    # Four edges at a time: the output row is loaded and stored a quarter as often.
    e = _U(first)
    end = _U(last)
    while e + _U(4) <= end:
        e1, e2, e3 = e + _U(1), e + _U(2), e + _U(3)
        p, q, r, s = _U(indices[e]), _U(indices[e1]), _U(indices[e2]), _U(indices[e3])
        for h in range(heads):
            a, b, c, d = weight[e, h], weight[e1, h], weight[e2, h], weight[e3, h]
            for f in range(h * width, h * width + width):
                out[i, f] = out[i, f] + a * z[p, f] + b * z[q, f] + c * z[r, f] + d * z[s, f]
        e += _U(4)
    # The last edges, up to three, one by one.
    while e < end:
        p = _U(indices[e])
        for h in range(heads):
            a = weight[e, h]
            for f in range(h * width, h * width + width):
                out[i, f] += a * z[p, f]
        e += _U(1)


@compiled
def _weighted_sum(first, end, indptr, indices, weight, z, out):
    heads = _U(weight.shape[1])
    width = _U(z.shape[1]) // heads
    for i in range(first, end):
        _sum_row(indptr[i], indptr[i + 1], indices, weight, z, out, _U(i), heads, width)


@compiled_dot
def _dot(g, z):
    total = g.dtype.type(0)
    for f in range(len(g)):
        total += g[f] * z[f]
    return total


@compiled_dot
def _four_dots(g, p, q, r, s):
    a = b = c = d = g.dtype.type(0)
    for f in range(len(g)):
        a += g[f] * p[f]
        b += g[f] * q[f]
        c += g[f] * r[f]
        d += g[f] * s[f]
    return a, b, c, d


@compiled
def _products_row(first, last, indices, g, z, out, heads, width):
    """Compute edges `first` to `last` (exclusive) of `_edge_products`, whose row of g is `g`."""
    # Four edges at a time: four independent sums keep the processor's multipliers busy, and g is loaded once.
    e = first
    while e + 4 <= last:
        p, q, r, s = _U(indices[e]), _U(indices[e + 1]), _U(indices[e + 2]), _U(indices[e + 3])
        for h in range(heads):
            lo, hi = h * width, h * width + width
            products = _four_dots(g[lo:hi], z[p, lo:hi], z[q, lo:hi], z[r, lo:hi], z[s, lo:hi])
            out[e, h], out[e + 1, h], out[e + 2, h], out[e + 3, h] = products
        e += 4
    # The last edges, up to three, one by one.
    while e < last:
        p = _U(indices[e])
        for h in range(heads):
            lo, hi = h * width, h * width + width
            out[e, h] = _dot(g[lo:hi], z[p, lo:hi])
        e += 1


@compiled
def _edge_products(first, end, indptr, indices, g, z, out):
    heads = out.shape[1]
    width = z.shape[1] // heads
    for i in range(first, end):
        _products_row(indptr[i], indptr[i + 1], indices, g[i], z, out, heads, width)


@compiled
def _maximum(first, end, indptr, indices, z, out, chosen):
    for i in range(first, end):
        if indptr[i] == indptr[i + 1]:  # no edges
            for f in range(z.shape[1]):
                out[i, f] = 0
                chosen[i, f] = -1
        else:
            _maximum_row(indptr[i], indptr[i + 1], indices, z, out[i], chosen[i])


@compiled
def _maximum_row(first, last, indices, z, out, chosen):
    # Without branches in the inner loop, so that the compiler turns it into vector code.
    source = _U(indices[first])
    for f in range(len(out)):
        out[f] = z[source, f]
        chosen[f] = np.int32(source)
    for e in range(first + 1, last):
        source = _U(indices[e])
        for f in range(len(out)):
            value, best, before = z[source, f], out[f], chosen[f]
            larger = (value > best) | (value != value)  # NaN is passed on
            out[f] = value if larger else best
            chosen[f] = np.int32(source) if larger else before


@compiled
def _maximum_backward(first, end, chosen, grad, out):
    # A thread takes some columns of all rows: no two threads add to the same element, and each sum has a fixed order.
    for i in range(len(chosen)):
        for f in range(first, end):
            if chosen[i, f] >= 0:
                out[chosen[i, f], f] += grad[i, f]


@compiled
def _edge_sums(first, end, indptr, edges, values, out):
    for i in range(first, end):
        for h in range(values.shape[1]):
            total = values.dtype.type(0)
            for k in range(indptr[i], indptr[i + 1]):
                total += values[edges[k], h]
            out[i, h] = total


@compiled
def _softmax(first, end, indptr, indices, source, target, slope, out):
    for begin in range(first, end, _AT_ONCE):
        last = min(begin + _AT_ONCE, end)
        for i in range(begin, last):
            for h in range(source.shape[1]):
                # Exponentials of differences to the largest score do not overflow.
                largest = source.dtype.type(-np.inf)
                for e in range(indptr[i], indptr[i + 1]):
                    score = source[indices[e], h] + target[i, h]
                    out[e, h] = score if score >= 0 else score * slope
                    largest = max(largest, out[e, h])
                for e in range(indptr[i], indptr[i + 1]):
                    out[e, h] -= largest

        # In one loop over rows of any length, many at a time.
        exponentials(out[indptr[begin] : indptr[last]])
        for i in range(begin, last):
            for h in range(source.shape[1]):
                total = source.dtype.type(0)
                for e in range(indptr[i], indptr[i + 1]):
                    total += out[e, h]
                for e in range(indptr[i], indptr[i + 1]):
                    out[e, h] /= total


@compiled
def _softmax_backward(first, end, indptr, indices, source, target, slope, share, grad, out):
    for i in range(first, end):
        for h in range(source.shape[1]):
            mean = source.dtype.type(0)
            for e in range(indptr[i], indptr[i + 1]):
                mean += share[e, h] * grad[e, h]
            # The softmax's gradient, and LeakyReLU's.
            for e in range(indptr[i], indptr[i + 1]):
                change = share[e, h] * (grad[e, h] - mean)
                if source[indices[e], h] + target[i, h] < 0:
                    change *= slope
                out[e, h] = change


@compiled
def _transpose(indptr, indices, out_indptr, out_indices, out_edges):
    """Sort edges by source, by counting; `out_indptr` starts with zeros."""
    # Count the edges of each source, and sum the counts to the place of each source's first edge.
    for e in range(len(indices)):
        out_indptr[indices[e] + 1] += 1
    for j in range(len(out_indptr) - 1):
        out_indptr[j + 1] += out_indptr[j]

    # Fill, edge by edge in their order; out_indptr[j] runs from the first place of source j to the end of its edges.
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            place = out_indptr[indices[e]]
            out_indices[place] = i
            out_edges[place] = e
            out_indptr[indices[e]] = place + 1

    # It now holds the start of the next source: shift it back.
    for j in range(len(out_indptr) - 1, 0, -1):
        out_indptr[j] = out_indptr[j - 1]
    out_indptr[0] = 0


@compiled
def _add_to_sources(first, end, indptr, indices, weight, g, out):
    # Sources `first` to `end` (exclusive): a thread walks through all edges and adds to its own rows.
    width = g.shape[1] // weight.shape[1]
    for i in range(len(g)):
        for e in range(indptr[i], indptr[i + 1]):
            source = indices[e]
            if first <= source < end:
                for f in range(g.shape[1]):
                    out[source, f] += weight[e, f // width] * g[i, f]


@compiled
def _with_self(indptr, indices, out_indptr, out_indices):
    place = 0
    out_indptr[0] = 0
    for i in range(len(indptr) - 1):
        out_indices[place] = i
        place += 1
        for e in range(indptr[i], indptr[i + 1]):
            out_indices[place] = indices[e]
            place += 1
        out_indptr[i + 1] = place


def arrays(*arguments: Tensor | np.generic | float) -> Iterator[Any]:
    """Return the memory of tensors, copied where they are not contiguous. Numbers stay unchanged."""
    return (each.detach().contiguous().numpy() if isinstance(each, Tensor) else each for each in arguments)


def run_compiled(kernel: Callable[..., None], rows: int, *arguments: Tensor | np.generic | float) -> None:
    """Run a compiled kernel for all of `rows` on the memory of tensors; those that it fills are contiguous."""
    share_rows(kernel, rows, *arrays(*arguments))


def weighted_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """Return float[rows, width]: row i, head by head, is the sum over its edges e of weight[e] * z[indices[e]]."""
    # Each of these is faster than the compiled loop, and sums each row in the order of its edges to the same bits.
    if weight.shape[1] == 1 and z.dtype == torch.float32:
        if z.shape[1] >= _WIDE_ROW and len(indices):
            out = z.new_empty(len(indptr) - 1, z.shape[1])
            row_sums.weighted_sums_of_matrix(*arrays(indptr, indices, weight.view(-1), z, out))
            return out
        offsets = indptr[:-1].to(indices.dtype)
        return F.embedding_bag(indices, z.contiguous(), offsets, mode="sum", per_sample_weights=weight.reshape(-1))
    out = z.new_empty(len(indptr) - 1, z.shape[1])
    if head_rows.serves(z, weight.shape[1]):
        head_rows.head_sums(*arrays(indptr, indices, weight, z, out))
    else:
        run_compiled(_weighted_sum, len(out), indptr, indices, weight, z, out)
    return out


def edge_products(indptr: Tensor, indices: Tensor, g: Tensor, z: Tensor, heads: int) -> Tensor:
    """Return float[edges, heads]: for each edge e of row i, head by head, the dot product of g[i] and z[indices[e]].

    `g` is float[rows, width].
    """
    out = z.new_empty(len(indices), heads)
    if head_rows.serves(z, heads):
        head_rows.head_products(*arrays(indptr, indices, g, z, out))
    else:
        run_compiled(_edge_products, len(indptr) - 1, indptr, indices, g, z, out)
    return out


def maximum(indptr: Tensor, indices: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Find the largest z[indices[e]] over the edges e of each row, by element, and the first source that has it.

    Returns float[rows, width] and int32[rows, width]; rows without edges get 0, and -1 for the source.
    """
    out = z.new_empty(len(indptr) - 1, z.shape[1])
    chosen = torch.empty(out.shape, dtype=torch.int32)
    run_compiled(_maximum, len(out), indptr, indices, z, out, chosen)
    return out, chosen


def maximum_backward(chosen: Tensor, grad: Tensor, sources: int) -> Tensor:
    """Add each element of `grad` float[rows, width] to the source of its maximum, row after row: float[sources, width].

    `chosen` int32[rows, width] is the result of `maximum`.
    """
    out = grad.new_zeros(sources, grad.shape[1])
    share_rows(_maximum_backward, grad.shape[1], *arrays(chosen, grad, out), least=_COLUMNS)
    return out


def edge_sums(indptr: Tensor, edges: Tensor, values: Tensor) -> Tensor:
    """Return float[rows, heads]: row i is the sum of values[edges[k]] over k from indptr[i] to indptr[i + 1].

    `edges` int64[edges] are edge numbers, `values` float[edges, heads].
    """
    out = values.new_empty(len(indptr) - 1, values.shape[1])
    run_compiled(_edge_sums, len(out), indptr, edges, values, out)
    return out


def softmax(indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, slope: float) -> Tensor:
    """Compute the softmax of LeakyReLU(source[indices[e]] + target[i]) over the edges e of each row i.

    The result is float[edges, heads].

    `source` is float[sources, heads], `target` float[rows, heads], `slope` that of LeakyReLU's negative side. Large
    scores do not overflow.
    """
    out = source.new_empty(len(indices), source.shape[1])
    run_compiled(_softmax, len(target), indptr, indices, source, target, out.numpy().dtype.type(slope), out)
    return out


def softmax_backward(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, slope: float, share: Tensor, grad: Tensor
) -> Tensor:
    """Return float[edges, heads]: the gradient of each edge's score before LeakyReLU.

    `share` float[edges, heads] is the result of `softmax` for the same arguments, `grad` float[edges, heads] its
    gradient.
    """
    out = torch.empty_like(share)
    number = out.numpy().dtype.type(slope)
    run_compiled(_softmax_backward, len(target), indptr, indices, source, target, number, share, grad, out)
    return out


def transpose(indptr: Tensor, indices: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the edges by source, in their previous order: indptr int64[sources + 1], rows and numbers of the edges.

    The rows are of the dtype of `indices`, the numbers int64; both are [edges].
    """
    out_indptr = torch.zeros(sources + 1, dtype=torch.int64)
    out_indices = torch.empty(len(indices), dtype=indices.dtype)
    edges = torch.empty(len(indices), dtype=torch.int64)
    _transpose(*arrays(indptr, indices, out_indptr, out_indices, edges))
    return out_indptr, out_indices, edges


def add_rows(out: Tensor, positions: Tensor, rows: Tensor) -> None:
    """Add `rows` (float[k, width]) to rows `positions` (int64[k], which may repeat) of `out`, in their order.

    Not differentiable.
    """
    if out.is_contiguous():
        row_sums.add_rows(*arrays(out, positions, rows))
    else:
        # Autograd may give a user's layer a gradient of any strides.
        out.index_add_(0, positions, rows)


def add_to_sources(out: Tensor, indptr: Tensor, indices: Tensor, weight: Tensor, g: Tensor) -> None:
    """Add weight[e] * g[i], head by head, to row indices[e] of `out`, for each edge e of row i, in the order of edges.

    `weight` is float[edges] or float[edges, heads], `g` float[rows, width], `out` float[sources, width], contiguous.
    Not differentiable.
    """
    weight = weight if weight.dim() == 2 else weight.unsqueeze(1)
    by_vectors = out.dtype == torch.float32 and (weight.shape[1] == 1 or head_rows.serves(out, weight.shape[1]))
    kernel = head_rows.add_to_sources if by_vectors else _add_to_sources
    # As many ranges as threads: each walks through all edges.
    least = max(1, -(-len(out) // threads()))
    share_rows(kernel, len(out), *arrays(indptr, indices, weight, g, out), least=least)


def with_self(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Put an edge from i to i before the others of each row i: indptr and indices of the same dtypes."""
    rows = len(indptr) - 1
    out_indptr = torch.empty(rows + 1, dtype=torch.int64)
    out_indices = torch.empty(len(indices) + rows, dtype=indices.dtype)
    _with_self(*arrays(indptr, indices, out_indptr, out_indices))
    return out_indptr, out_indices
