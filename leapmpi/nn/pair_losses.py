"""Losses of edges and their negatives in link prediction, from the scores of both.

Each takes scores float[edges, 1 + K], an edge before its negatives, and returns the sum over all pairs, a scalar. The
last `sources` of the negatives replace an edge's source, the others its destination.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

_MARGIN = 1.0


def binary(scores: Tensor, sources: int) -> Tensor:
    """Return the binary cross-entropy, with edges as ones and negatives as zeros."""
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")


def cross_entropy(scores: Tensor, sources: int) -> Tensor:
    """Return the cross-entropy of an edge among it and its negatives, for each end that is replaced.

    Lacroix et al., "Canonical Tensor Decomposition for Knowledge Base Completion" (ICML 2018), equation 7, with drawn
    candidates.
    """
    edge, negatives = scores[:, :1], scores[:, 1:]
    ends = negatives.split([negatives.shape[1] - sources, sources], dim=1) if sources else (negatives,)
    lost = sum(torch.logsumexp(torch.cat([edge, each], dim=1), dim=1) - edge[:, 0] for each in ends)
    assert isinstance(lost, Tensor), "one end at least is replaced"
    return lost.sum() * scores.shape[1]


def margin(scores: Tensor, sources: int) -> Tensor:
    """Return how much each negative scores above its edge minus 1; Bordes et al. (NIPS 2013), equation 1."""
    return F.relu(_MARGIN + scores[:, 1:] - scores[:, :1]).sum()


def self_adversarial(scores: Tensor, sources: int) -> Tensor:
    """Return the binary loss with negatives weighted by their softmax, which is not differentiated.

    Sun et al., "RotatE" (ICLR 2019), equation 6, with temperature 1.
    """
    negatives = scores[:, 1:]
    weights = torch.softmax(negatives.detach(), dim=1)
    lost = F.softplus(-scores[:, 0]) + (weights * F.softplus(negatives)).sum(dim=1)
    return lost.sum() * scores.shape[1] / 2


PAIR_LOSSES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "binary": binary,
    "cross-entropy": cross_entropy,
    "margin": margin,
    "self-adversarial": self_adversarial,
}
"""Losses by the names of `train.loss`."""
