"""Backward from values whose gradient another rank, or another autograd graph, has computed.

torch's `backward(gradient)` does the same, but compares shapes in a way that loads a computer algebra system (sympy),
which takes half a second at every start.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function


class _WithGradient(Function):
    """A scalar whose gradient with respect to `values` is `gradient`."""

    @staticmethod
    def forward(ctx, values: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return values.new_zeros(())

    @staticmethod
    def backward(ctx, one: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None


class _ValueWithGradient(Function):
    """The same with a value that somebody else has computed."""

    @staticmethod
    def forward(ctx, values: Tensor, gradient: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx, one: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return one * gradient, None, None


def value_with_gradient(values: Tensor, gradient: Tensor, value: Tensor) -> Tensor:
    """Return the scalar `value` as a function of `values`, whose gradient has been computed elsewhere."""
    return _ValueWithGradient.apply(values, gradient, value)


def add_gradient(parameter: Tensor, gradient: Tensor) -> None:
    """Add `gradient` to that of `parameter`, if that is learned."""
    if parameter.requires_grad:
        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)


def pass_back(values: Tensor, gradient: Tensor) -> None:
    """Add to the `grad` of all leaves of `values` their gradient, given that of `values`.

    `gradient` has the shape and dtype of `values`. Raises RuntimeError for another shape, and for values that depend on
    no leaf that requires a gradient.
    """
    pass_all_back([(values, gradient)])


def pass_all_back(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Pass back several values, each with its gradient, which may be made of the same leaves in common steps."""
    with torch.enable_grad():
        first, *others = [_WithGradient.apply(*pair) for pair in pairs]
        for each in others:
            first = first + each
    first.backward()
