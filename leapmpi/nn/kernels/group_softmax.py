"""Softmax over all relations of a destination, compiled for the CPU, of scores in the order of groups.

A group is the edges of one relation to one destination, as in group_tiles.py. Groups are walked through in their order,
with a row of each destination at hand, so no score moves to the order of destinations and back. Within a destination
groups have the order of its edges, so sums have the bits of csr.py. One thread runs each function.

For both: indptr int64[groups + 1], where the edges of each group start; destination int64[groups], below
`destinations`; all others float[edges, heads], C-contiguous.
"""

from __future__ import annotations

import numpy as np

from leapmpi.nn.kernels.exponential import exponentials
from leapmpi.system.jit import compiled
from leapmpi.system.worker_threads import share_rows

_AT_ONCE = 64
"""Groups whose exponentials are computed together, so that their edges are in cache."""


@compiled
def _raise(first, end, indptr, destination, score, top):
    for g in range(first, end):
        row = top[destination[g]]
        for e in range(indptr[g], indptr[g + 1]):
            for h in range(score.shape[1]):
                row[h] = max(row[h], score[e, h])


@compiled
def _add_exponentials(first, end, indptr, destination, score, top, total, out):
    for begin in range(first, end, _AT_ONCE):
        last = min(begin + _AT_ONCE, end)
        for g in range(begin, last):
            row = top[destination[g]]
            for e in range(indptr[g], indptr[g + 1]):
                for h in range(score.shape[1]):
                    out[e, h] = score[e, h] - row[h]

        # In one loop over groups of any length, many at a time.
        exponentials(out[indptr[begin] : indptr[last]])
        for g in range(begin, last):
            to = total[destination[g]]
            for e in range(indptr[g], indptr[g + 1]):
                for h in range(score.shape[1]):
                    to[h] += out[e, h]


@compiled
def _divide(first, end, indptr, destination, total, out):
    for g in range(first, end):
        row = total[destination[g]]
        for e in range(indptr[g], indptr[g + 1]):
            for h in range(out.shape[1]):
                out[e, h] /= row[h]


@compiled
def _add_products(first, end, indptr, destination, share, grad, mean):
    for g in range(first, end):
        to = mean[destination[g]]
        for e in range(indptr[g], indptr[g + 1]):
            for h in range(share.shape[1]):
                to[h] += share[e, h] * grad[e, h]


@compiled
def _set_changes(first, end, indptr, destination, share, grad, mean, out):
    for g in range(first, end):
        row = mean[destination[g]]
        for e in range(indptr[g], indptr[g + 1]):
            for h in range(share.shape[1]):
                out[e, h] = share[e, h] * (grad[e, h] - row[h])


def softmax(indptr: np.ndarray, destination: np.ndarray, destinations: int, score: np.ndarray) -> np.ndarray:
    """Compute the softmax of `score` over the edges of each destination; large scores do not overflow."""
    top = np.full((destinations, score.shape[1]), -np.inf, score.dtype)
    total, out = np.zeros_like(top), np.empty_like(score)
    groups = len(destination)
    share_rows(_raise, groups, indptr, destination, score, top)
    share_rows(_add_exponentials, groups, indptr, destination, score, top, total, out)
    share_rows(_divide, groups, indptr, destination, total, out)
    return out


def softmax_backward(
    indptr: np.ndarray, destination: np.ndarray, destinations: int, share: np.ndarray, grad: np.ndarray
) -> np.ndarray:
    """Compute the gradient of scores from `grad`, that of their softmax `share`."""
    mean, out = np.zeros((destinations, share.shape[1]), share.dtype), np.empty_like(share)
    share_rows(_add_products, len(destination), indptr, destination, share, grad, mean)
    share_rows(_set_changes, len(destination), indptr, destination, share, grad, mean, out)
    return out
