"""A list of entities per root: each is a column of the labels, and the model ranks all of them.

The loss is the cross-entropy of a softmax over all entities, in which those of the list share the probability alike.
Every other entity is a negative, so none is drawn. (The multinomial likelihood of Liang et al., "Variational
Autoencoders for Collaborative Filtering", WWW 2018.)
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from leapmpi.nn.task import TaskMember, weighted_total
from leapmpi.nn.tasks.multi_label import MultiLabel


class Recommend(MultiLabel):
    """The entities of the largest outputs."""

    metric = "map-10"
    trivial = "the most frequent for all"
    weighs_classes = False

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Return the cross-entropy of each root's list, 0 for an empty one; labels float[roots, width]."""
        listed = labels.nan_to_num().to(outputs.dtype)
        share = listed / listed.sum(1, keepdim=True).clamp(min=1)
        return weighted_total(-(share * torch.log_softmax(outputs, dim=1)).sum(1), weight)

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Return how often each entity is listed, float64[entities]: the most popular ones come first."""
        return sums[0].astype(np.float64)


MEMBER = TaskMember(Recommend)
