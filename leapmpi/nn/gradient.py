"""Backward from values that are no loss: what follows them was computed elsewhere, and their gradient came from there.

torch's `backward(gradient)` does the same, but first compares shapes in a way that loads a computer algebra system, and
that takes half a second of every start.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function


class _WithGradient(Function):
    """A number whose gradient with respect to `values` is `gradient`."""

    @staticmethod
    def forward(ctx, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return values.new_zeros(())

    @staticmethod
    def backward(ctx, one: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


def pass_back(values: Tensor, gradient: Tensor) -> None:
    """Add to all leaves that `values` were computed from what `gradient`, of the same shape and type, means for them.

    Raises RuntimeError for another shape, and for values that depend on no leaf that learns.
    """
    with torch.enable_grad():
        number = _WithGradient.apply(values, gradient)
    number.backward()
