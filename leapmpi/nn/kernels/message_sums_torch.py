"""The functions of message_sums.py, which documents them, in torch operations for other devices.

Rows are gathered by edge, for some columns at a time, so that at most MOST_GATHERED elements are gathered at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from leapmpi.nn.kernels.csr_torch import MOST_GATHERED, segment_sums


def _columns(edges: int, width: int, multiple: int = 1) -> Iterator[slice]:
    """Cut `width` columns into slices as wide as may be gathered for `edges` edges, each a `multiple`."""
    step = max(1, MOST_GATHERED // max(1, edges * multiple)) * multiple
    return (slice(first, min(first + step, width)) for first in range(0, width, step))


def _rows(indptr: Tensor) -> Tensor:
    """Return int64[edges]: the row of each edge."""
    return torch.arange(len(indptr) - 1, device=indptr.device).repeat_interleave(indptr.diff())


def _scores(z: Tensor, t: Tensor, shift: Tensor | None) -> Tensor:
    return t * z if shift is None else t * z + shift.unsqueeze(1)


def softmax_mean(indptr: Tensor, indices: Tensor, shift: Tensor | None, z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """Compute as message_sums.py; exponentials are of differences to the largest score, so that none overflows."""
    row, index = _rows(indptr), indices.long()
    logs, mean = (z.new_zeros(len(indptr) - 1, z.shape[1]) for _ in range(2))
    for part in _columns(len(indices), z.shape[1]):
        values = z[:, part][index]
        scores = _scores(values, t, shift)
        largest = segment_sums(indptr, scores, "max", -torch.inf)
        share = (scores - largest[row]).exp_()
        total = segment_sums(indptr, share)
        logs[:, part] = largest + total.log()
        mean[:, part] = torch.where(total > 0, segment_sums(indptr, share * values) / total, 0)
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
    """Sum as message_sums.py; shares are recomputed from `logs`, as keeping them takes float[edges, width]."""
    source, index = _rows(indptr), indices.long()
    out, out_change = torch.zeros_like(z), None if change is None else torch.zeros_like(z)
    for part in _columns(len(indices), z.shape[1]):
        share = (_scores(z[:, part][source], t, shift) - logs[:, part][index]).exp_()
        out[:, part] = segment_sums(indptr, share * grad[:, part][index])
        if change is not None and out_change is not None:
            out_change[:, part] = segment_sums(indptr, share * change[:, part][index])
    return out, out_change


def modulated_sum(indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Sum as message_sums.py."""
    row, index, out = _rows(indptr), indices.long(), torch.zeros_like(gamma)
    for part in _columns(len(indices), z.shape[1]):
        message = (gamma[:, part][row] * z[:, part][index] + beta[:, part][row]).relu_()
        out[:, part] = segment_sums(indptr, message * weight.unsqueeze(1))
    return out


def modulated_sum_backward(
    indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute gradients as message_sums.py; messages are recomputed, not kept."""
    row, index = _rows(indptr), indices.long()
    grad_gamma, grad_beta = torch.zeros_like(gamma), torch.zeros_like(beta)
    for part in _columns(len(indices), z.shape[1]):
        values = z[:, part][index]
        passes = gamma[:, part][row] * values + beta[:, part][row] > 0
        each = weight.unsqueeze(1) * grad[:, part][row] * passes
        grad_gamma[:, part], grad_beta[:, part] = segment_sums(indptr, each * values), segment_sums(indptr, each)
    return grad_gamma, grad_beta


def modulated_sum_sources(
    indptr: Tensor, indices: Tensor, weight: Tensor, z: Tensor, gamma: Tensor, beta: Tensor, grad: Tensor
) -> Tensor:
    """Compute the gradient as message_sums.py, over the transposed list."""
    source, index, out = _rows(indptr), indices.long(), torch.zeros_like(z)
    for part in _columns(len(indices), z.shape[1]):
        factor = gamma[:, part][index]
        passes = factor * z[:, part][source] + beta[:, part][index] > 0
        out[:, part] = segment_sums(indptr, weight.unsqueeze(1) * grad[:, part][index] * factor * passes)
    return out


def pair_scores(
    indptr: Tensor, indices: Tensor, source: Tensor, target: Tensor, attend: Tensor, slope: float
) -> Tensor:
    """Score as message_sums.py; columns are cut between heads, as a score adds up all columns of one."""
    row, index, (heads, width) = _rows(indptr), indices.long(), attend.shape
    out = source.new_zeros(len(indices), heads)
    for part in _columns(len(indices), heads * width, width):
        own = slice(part.start // width, part.stop // width)
        values = torch.nn.functional.leaky_relu(source[:, part][index] + target[:, part][row], slope)
        out[:, own] = (values.unflatten(1, (-1, width)) * attend[own]).sum(2)
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
    """Compute gradients as message_sums.py; columns are cut between heads."""
    row, index, width = _rows(indptr), indices.long(), attend.shape[1]
    out, shares = torch.zeros_like(rows), attend.new_zeros(attend.numel())
    for part in _columns(len(indices), rows.shape[1], width):
        own = slice(part.start // width, part.stop // width)
        values = rows[:, part][row] + others[:, part][index]
        each = grad[edges][:, own].repeat_interleave(width, dim=1)
        change = each * attend[own].reshape(-1)
        out[:, part] = segment_sums(indptr, torch.where(values > 0, change, slope * change))
        if with_attend:
            shares[part] = (each * torch.nn.functional.leaky_relu(values, slope)).sum(0)
    return out, shares.view(attend.shape) if with_attend else None
