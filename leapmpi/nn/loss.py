"""The loss of a set of roots: a weighted sum, so that the losses of micro-batches add up to that of the mini-batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def weighted_loss(logits: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
    """Sum over roots of weight x loss(root), a scalar; 0 without roots, and backward still runs.

    `logits` is float[roots, classes], `weight` one number for all roots, or float[roots]. With labels int64[roots] in
    [0, classes) a root's loss is its cross-entropy; with labels float[roots, classes] of 0 and 1 it is the mean binary
    cross-entropy over the columns that are not NaN.
    """
    # One class per root.
    if labels.dim() == 1:
        if isinstance(weight, Tensor):
            return (weight * F.cross_entropy(logits, labels, reduction="none")).sum()
        return weight * F.cross_entropy(logits, labels, reduction="sum")

    # Several labels per root. Unknown ones have weight 0, and a target that is a number: NaN would spoil the gradient.
    known = ~labels.isnan()
    target = torch.where(known, labels, 0).to(logits.dtype)
    losses = F.binary_cross_entropy_with_logits(logits, target, weight=known.to(logits.dtype), reduction="none")
    means = losses.sum(1) / known.sum(1).clamp(min=1)
    return (weight * means).sum() if isinstance(weight, Tensor) else weight * means.sum()
