"""First layers of several models over the same sums of raw rows, as one step of autograd, forward and backward.

Rows are read once for all models: their weights are one matrix. The output of each model is a matrix of its own, which
its next layer reads. Bias and rectifier are part of the step, since autograd copies gradients once more for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.gemm import sum_of_outer, times_transposed
from leapmpi.nn.rows import ScatteredRows


def stacked_step(
    sums: Tensor,
    own: Tensor | ScatteredRows | None,
    of_sums: Sequence[Tensor],
    of_own: Sequence[Tensor],
    biases: Sequence[Tensor],
    activates: bool,
) -> tuple[Tensor, ...]:
    """Return act(W_sums sums + W_own own + bias) of each model, float[n, its width].

    `sums` and `own` are float[n, in] without gradients, `own` None where `of_own` is empty; weights float[out, in] and
    biases float[out] of each model. The activation is the rectifier, or none. Differentiable in weights and biases.
    """
    own_weight = torch.cat(list(of_own)) if of_own else None
    return _Stacked.apply(sums, own, torch.cat(list(of_sums)), own_weight, activates, *biases)


class _Stacked(Function):
    @staticmethod
    def forward(ctx, sums, own, of_sums, of_own, activates, *biases) -> tuple[Tensor, ...]:
        products = times_transposed(sums, of_sums)
        if of_own is not None:
            products.add_(times_transposed(own, of_own))
        ctx.widths = [len(each) for each in biases]
        outputs = [part + bias for part, bias in zip(products.split(ctx.widths, dim=1), biases, strict=True)]
        if activates:
            outputs = [each.relu_() for each in outputs]
        # Autograd saves tensors only: scattered rows are kept, and freed, beside them.
        ctx.own = None if of_own is None else own
        ctx.save_for_backward(sums, *(outputs if activates else ()))
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        sums, *outputs = ctx.saved_tensors
        own, ctx.own = ctx.own, None

        # Gradients of all models are one matrix, so that rows are read once here too.
        grad = sums.new_empty(len(sums), sum(ctx.widths))
        parts = grad.split(ctx.widths, dim=1)
        for number, (part, each) in enumerate(zip(parts, grads, strict=True)):
            if outputs:
                torch.ops.aten.threshold_backward.grad_input(each, outputs[number], 0, grad_input=part)
            else:
                part.copy_(each)
        of_own = None if own is None else sum_of_outer(grad, own)
        return None, None, sum_of_outer(grad, sums), of_own, None, *(part.sum(0) for part in parts)
