"""Distances of all pairs of rows, and their gradients, on the host.

torch would hold the difference of each pair, and read it many times. Here a difference stays in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.kernels.csr import arrays
from leapmpi.system.jit import compiled_dividing, compiled_dot
from leapmpi.system.worker_threads import share_rows

LEAST = 1e-12
"""Added to squares of lengths, whose root has no gradient at 0."""

_AT_ONCE = 64
"""Rows that stay in cache while others are compared with them."""

_LEAST_ROWS = 8
"""Fewer rows are not worth another thread."""


@compiled_dot
def _magnitudes(first, end, a, b, out):
    for begin in range(0, len(b), _AT_ONCE):
        for i in range(first, end):
            for j in range(begin, min(begin + _AT_ONCE, len(b))):
                total = a.dtype.type(0)
                for c in range(a.shape[1]):
                    total += abs(a[i, c] - b[j, c])
                out[i, j] = total


@compiled_dividing
def _signs(first, end, a, b, weight, out):
    for begin in range(0, len(b), _AT_ONCE):
        for i in range(first, end):
            for j in range(begin, min(begin + _AT_ONCE, len(b))):
                each = weight[i, j]
                for c in range(a.shape[1]):
                    out[i, c] += each * np.sign(a[i, c] - b[j, c])


@compiled_dot
def _lengths(first, end, a, b, out):
    half, least = a.shape[1] // 2, a.dtype.type(LEAST)
    for begin in range(0, len(b), _AT_ONCE):
        for i in range(first, end):
            for j in range(begin, min(begin + _AT_ONCE, len(b))):
                total = a.dtype.type(0)
                for c in range(half):
                    x, y = a[i, c] - b[j, c], a[i, half + c] - b[j, half + c]
                    total += np.sqrt(x * x + y * y + least)
                out[i, j] = total


@compiled_dividing
def _directions(first, end, a, b, weight, out):
    half, least = a.shape[1] // 2, a.dtype.type(LEAST)
    for begin in range(0, len(b), _AT_ONCE):
        for i in range(first, end):
            for j in range(begin, min(begin + _AT_ONCE, len(b))):
                for c in range(half):
                    x, y = a[i, c] - b[j, c], a[i, half + c] - b[j, half + c]
                    each = weight[i, j] / np.sqrt(x * x + y * y + least)
                    out[i, c] += each * x
                    out[i, half + c] += each * y


class Distance(NamedTuple):
    """Kernels of a distance: of rows `first` to `end` (exclusive) of a to all of b, and gradients of a, to be added."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]


MAGNITUDES = Distance(_magnitudes, _signs)
"""The sum of magnitudes over columns."""

LENGTHS = Distance(_lengths, _directions)
"""The sum of lengths of complex numbers; the first half of the columns is the real part, the second the imaginary."""


class _Distances(Function):
    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, kind: Distance) -> Tensor:
        ctx.kind = kind
        ctx.save_for_backward(a, b)
        return _run(kind.forward, a.new_empty((len(a), len(b))), a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        a, b = ctx.saved_tensors
        run = ctx.kind.backward
        # Both distances are symmetric: the gradient of b is that of a with the rows exchanged.
        of_a = _run(run, a.new_zeros(a.shape), a, b, grad)
        return of_a, _run(run, b.new_zeros(b.shape), b, a, grad.T), None


def distances(a: Tensor, b: Tensor, kind: Distance) -> Tensor:
    """Return the distances of float[k, D] and float[n, D] on the host -> float[k, n]. Differentiable.

    Each is a function of its two rows alone, to the same bits by any number of threads.
    """
    return _Distances.apply(a, b, kind)


def _run(kernel: Callable[..., Any], out: Tensor, *arguments: Tensor) -> Tensor:
    share_rows(kernel, len(out), *arrays(*arguments, out), least=_LEAST_ROWS)
    return out
