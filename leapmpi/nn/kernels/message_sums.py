"""Aggregation of messages that are not linear in rows, compiled for the CPU: softmax by channel, FiLM, GATv2's scores.

One thread computes each output row, in the order of its edges, so results do not depend on the thread count; no row is
copied per edge. message_sums_torch.py has the same functions for other devices. Shapes are those of csr.py: `indptr`
int64[rows + 1], `indices` int32 or int64[edges]. Gradients of sources are computed over the transposed edges, whose
rows are sources, and whose indices are the rows of the other list.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.kernels import head_rows
from leapmpi.nn.kernels.csr import arrays, run_compiled
from leapmpi.nn.kernels.exponential import exponential, logarithm
from leapmpi.system.jit import compiled, compiled_dividing


@compiled_dividing
def _softmax_row(first, last, indices, shift, z, t, logs, mean, total):
    """Compute one row of `_softmax_mean`, given its edges; `total` is space for its sums of exponentials."""
    # A single edge has the whole share.
    if last == first + 1:
        extra = shift[first] if len(shift) else z.dtype.type(0)
        _take_over(z[indices[first]], t, extra, logs, mean)
        return

    # The largest score of each channel: exponentials of differences to it do not overflow.
    for f in range(len(logs)):
        logs[f] = -np.inf
        mean[f] = 0
        total[f] = 0
    for e in range(first, last):
        extra = shift[e] if len(shift) else z.dtype.type(0)
        _raise_to_scores(z[indices[e]], t, extra, logs)

    # Exponentials, and values times them.
    for e in range(first, last):
        extra = shift[e] if len(shift) else z.dtype.type(0)
        _add_exponentials(z[indices[e]], t, extra, logs, total, mean)
    if last > first:
        for f in range(len(logs)):
            mean[f] /= total[f]
            logs[f] += logarithm(total[f])


@compiled_dividing
def _take_over(row, t, extra, logs, mean):
    for f in range(len(logs)):
        logs[f] = t * row[f] + extra
        mean[f] = row[f]


@compiled_dividing
def _raise_to_scores(row, t, extra, top):
    for f in range(len(top)):
        top[f] = max(top[f], t * row[f] + extra)


@compiled_dividing
def _add_exponentials(row, t, extra, top, total, weighted):
    for f in range(len(top)):
        share = exponential(t * row[f] + extra - top[f])
        total[f] += share
        weighted[f] += share * row[f]


@compiled
def _softmax_mean(first, end, indptr, indices, shift, z, t, logs, mean):
    total = np.empty(z.shape[1], z.dtype)
    for i in range(first, end):
        _softmax_row(indptr[i], indptr[i + 1], indices, shift, z, t, logs[i], mean[i], total)


@compiled_dividing
def _add_share(row, t, extra, logs, grad, out):
    for f in range(len(out)):
        out[f] += exponential(t * row[f] + extra - logs[f]) * grad[f]


@compiled
def _softmax_mean_backward(first, end, indptr, indices, shift, z, t, logs, grad, change, out, out_change):
    for j in range(first, end):
        for e in range(indptr[j], indptr[j + 1]):
            i, extra = indices[e], shift[e] if len(shift) else z.dtype.type(0)
            _add_share(z[j], t, extra, logs[i], grad[i], out[j])
            if len(change):
                _add_share(z[j], t, extra, logs[i], change[i], out_change[j])


@compiled
def _modulated_sum(first, end, indptr, indices, weight, z, gamma, beta, out):
    for i in range(first, end):
        for e in range(indptr[i], indptr[i + 1]):
            source = indices[e]
            for f in range(z.shape[1]):
                out[i, f] += weight[e] * max(gamma[i, f] * z[source, f] + beta[i, f], z.dtype.type(0))


@compiled
def _modulated_sum_backward(first, end, indptr, indices, weight, z, gamma, beta, grad, grad_gamma, grad_beta):
    for i in range(first, end):
        for e in range(indptr[i], indptr[i + 1]):
            # Unsigned, and without branches in the inner loop, so that the compiler turns it into vector code.
            source, each = np.uint64(indices[e]), weight[e]
            for f in range(z.shape[1]):
                value, share = z[source, f], each * grad[i, f]
                passed = share if gamma[i, f] * value + beta[i, f] > 0 else z.dtype.type(0)
                grad_gamma[i, f] += passed * value
                grad_beta[i, f] += passed


@compiled
def _modulated_sum_sources(first, end, indptr, indices, weight, z, gamma, beta, grad, out):
    for j in range(first, end):
        for e in range(indptr[j], indptr[j + 1]):
            i, each = np.uint64(indices[e]), weight[e]
            for f in range(z.shape[1]):
                scale, share = gamma[i, f], each * grad[i, f]
                passed = share if scale * z[j, f] + beta[i, f] > 0 else z.dtype.type(0)
                out[j, f] += passed * scale


@compiled
def _pair_scores(first, end, indptr, indices, source, target, attend, slope, out):
    heads, width = attend.shape
    for i in range(first, end):
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            for h in range(heads):
                score = source.dtype.type(0)
                for k in range(width):
                    f = h * width + k
                    value = source[j, f] + target[i, f]
                    score += attend[h, k] * (value if value > 0 else slope * value)
                out[e, h] = score


@compiled
def _pair_scores_backward(first, end, indptr, indices, edges, rows, others, attend, slope, grad, out, out_attend):
    """Compute gradients of `rows`, whose edges `edges` lead to `others`; with `out_attend`, each row's share of that of
    `attend`."""
    heads, width = attend.shape
    for i in range(first, end):
        for k in range(indptr[i], indptr[i + 1]):
            e, j = edges[k], indices[k]
            for h in range(heads):
                for c in range(width):
                    f = h * width + c
                    value = rows[i, f] + others[j, f]
                    out[i, f] += grad[e, h] * attend[h, c] * (slope if value <= 0 else rows.dtype.type(1))
                    if len(out_attend):
                        out_attend[i, f] += grad[e, h] * (value if value > 0 else slope * value)


def softmax_mean(indptr: Tensor, indices: Tensor, shift: Tensor | None, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the logarithm of the sum of exp(t z + shift), and their mean, by channel over the edges e of each row.

    With z float[sources, width] at indices[e], `t` a tensor of one number and `shift` float[edges] (None for zeros).
    The mean weighs z by these exponentials. Both float[rows, width]; rows without edges get -inf and 0.
    """
    logs, mean = (z.new_empty(len(indptr) - 1, z.shape[1]) for _ in range(2))
    run_compiled(_softmax_mean, len(mean), indptr, indices, _or_empty(shift, z), z, _number(t), logs, mean)
    return logs, mean


def softmax_mean_backward(
    indptr: Tensor,
    indices: Tensor,
    shift: Tensor | None,
    z: Tensor,
    t: Tensor,
    logs: Tensor,
    grad: Tensor,
    change: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Sum share x `grad` and, if given, share x `change` of their rows, over the edges of each source.

    The list is transposed; the share of an edge is exp(t z + shift - logs), as in `softmax_mean`. Both float[sources,
    width].
    """
    out = torch.zeros_like(z)
    out_change = z.new_zeros(0, 0) if change is None else torch.zeros_like(z)
    given = z.new_zeros(0, 0) if change is None else change
    run_compiled(
        _softmax_mean_backward,
        len(z),
        *(indptr, indices, _or_empty(shift, z), z, _number(t), logs, grad, given, out, out_change),
    )
    return out, None if change is None else out_change


def modulated_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Return float[rows, width]: row i is the sum over its edges of weight[e] max(0, gamma[i] z[indices[e]] + beta[i]).

    `weight` float[edges], `z` float[sources, width], `gamma` and `beta` float[rows, width].
    """
    out = torch.zeros_like(gamma)
    run_compiled(_modulated_sum, len(out), indptr, indices, weight, z, gamma, beta, out)
    return out


def modulated_sum_backward(
    indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of `gamma` and `beta`, from that of `modulated_sum`'s result: float[rows, width] each."""
    grad_gamma, grad_beta = torch.zeros_like(gamma), torch.zeros_like(beta)
    run_compiled(
        _modulated_sum_backward, len(grad), indptr, indices, weight, z, gamma, beta, grad, grad_gamma, grad_beta
    )
    return grad_gamma, grad_beta


def modulated_sum_sources(
    indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, grad: Tensor
) -> Tensor:
    """Return the gradient of `z`, by the transposed list: float[sources, width]; `weight` is in its order of edges."""
    out = torch.zeros_like(z)
    run_compiled(_modulated_sum_sources, len(out), indptr, indices, weight, z, gamma, beta, grad, out)
    return out


def pair_scores(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, attend: Tensor, slope: float
) -> Tensor:
    """Compute attend[h] . LeakyReLU(source[indices[e]] + target[i]), head h on its slice of columns.

    The result is float[edges, heads].

    `source` float[sources, heads x width], `target` float[rows, heads x width], `attend` float[heads, width].
    """
    out = source.new_empty(len(indices), len(attend))
    given = indptr, indices, source, target, attend, out.numpy().dtype.type(slope), out
    if head_rows.serves(source, len(attend)):
        head_rows.head_scores(*arrays(*given))
    else:
        run_compiled(_pair_scores, len(target), *given)
    return out


def pair_scores_backward(
    indptr: Tensor,
    indices: Tensor,
    edges: Tensor,
    rows: Tensor,
    others: Tensor,
    attend: Tensor,
    slope: float,
    grad: Tensor,
    with_attend: bool,
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of `rows` float[rows, heads x width], and of `attend` if `with_attend`.

    `grad` float[edges, heads] is that of the scores.

    `rows` are targets, or, over the transposed list, sources; `edges` int64[edges] are the numbers of its edges.
    """
    out = torch.zeros_like(rows)
    shares = torch.zeros_like(rows) if with_attend else rows.new_zeros(0, 0)
    number = out.numpy().dtype.type(slope)
    run_compiled(
        _pair_scores_backward, len(rows), indptr, indices, edges, rows, others, attend, number, grad, out, shares
    )
    return out, shares.sum(0).view(attend.shape) if with_attend else None


def _or_empty(shift: Tensor | None, z: Tensor) -> Tensor:
    return z.new_empty(0) if shift is None else shift


def _number(t: Tensor) -> np.generic:
    return t.detach().reshape(-1).numpy()[0]
