"""A layer that sums rows and adds own rows, as one step of autograd: its parts as steps of their own take longer.

The operations, and so the bits, are those of the parts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from leapmpi.nn.aggregate import at_sources
from leapmpi.nn.kernels.gemm import sum_of_outer, times_transposed
from leapmpi.nn.tensors import Edges, operations


def autograd_step(
    rows: Tensor,
    neighbour: Tensor,
    own: Tensor | None,
    bias: Tensor,
    edges: Edges,
    weight: Tensor,
    projects_first: bool,
    activates: bool,
) -> Tensor:
    """float[n_dst, out]: act(W_neighbour sum of weighted rows + W_own row of the destination + bias).

    `rows` is float[n_src, in], destinations first; `neighbour` and `own` float[out, in], no own rows where that is
    None; `bias` float[out]; `weight` float[edges]. The activation is the rectifier, or none. With `projects_first` rows
    are multiplied before they are summed. Differentiable in rows, weights of the layer, and bias.
    """
    return _AutogradStep.apply(rows, neighbour, own, bias, edges, weight.unsqueeze(1), projects_first, activates)


class _AutogradStep(Function):
    @staticmethod
    def forward(ctx, rows, neighbour, own, bias, edges, weight, projects_first, activates) -> Tensor:
        sums = operations(rows.device).weighted_sum
        if projects_first:
            summed = rows
            out = sums(edges.indptr, edges.indices, weight, times_transposed(rows, neighbour))
        else:
            summed = sums(edges.indptr, edges.indices, weight, rows)
            out = times_transposed(summed, neighbour)
        if own is not None:
            out.add_(times_transposed(rows[: out.shape[0]], own))
        out.add_(bias)
        if activates:
            out.relu_()
        ctx.edges, ctx.projects_first, ctx.activates = edges, projects_first, activates
        kept = rows if own is not None or projects_first else None
        ctx.save_for_backward(kept, summed, neighbour, own, weight, out if activates else None)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, summed, neighbour, own, weight, out = ctx.saved_tensors
        of_rows, of_neighbour, of_own, of_bias = ctx.needs_input_grad[:4]
        grad = (torch.ops.aten.threshold_backward(grad, out, 0) if ctx.activates else grad).contiguous()
        grad_bias = grad.sum(0) if of_bias else None

        # The weights of own rows, then those of neighbours; of what is summed first, the sums are read.
        grad_own = sum_of_outer(grad, rows[: grad.shape[0]]) if of_own else None
        at_rows = at_sources(ctx.edges, weight, grad) if ctx.projects_first else grad
        grad_neighbour = sum_of_outer(at_rows, summed) if of_neighbour else None
        if not of_rows:
            return None, grad_neighbour, grad_own, grad_bias, None, None, None, None

        grad_rows = times_transposed(at_rows, neighbour.t())
        if not ctx.projects_first:
            grad_rows = at_sources(ctx.edges, weight, grad_rows)
        if own is not None:
            grad_rows[: grad.shape[0]].add_(times_transposed(grad, own.t()))
        return grad_rows, grad_neighbour, grad_own, grad_bias, None, None, None, None
