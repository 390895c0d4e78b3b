"""One class per root, int64[n] in [0, classes): the loss is the cross-entropy."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.nn.task import Task, TaskMember, weighted_total


class MultiClass(Task):
    """The class of a root; the largest output is the answer."""

    reads = ("multi-class",)
    answers = "multi-class"
    metric = "accuracy"
    trivial = "most frequent class"
    weighs_classes = True

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return int64, the type of class numbers."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Return the cross-entropy, times the weight of the root's class; labels int64[roots]."""
        if isinstance(weight, Tensor) or self.class_weights is not None:
            return weighted_total(F.cross_entropy(outputs, labels, self.class_weights, reduction="none"), weight)
        return weight * F.cross_entropy(outputs, labels, reduction="sum")

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Count each class: int64[classes]; -1, no label, does not count."""
        return np.bincount(labels[labels >= 0], minlength=self.classes)

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Return outputs, float64[classes], for the most frequent class."""
        answer = np.full(self.classes, -1.0)
        answer[int(sums.argmax())] = 1.0
        return answer

    def balanced_weights(self, sums: np.ndarray) -> np.ndarray:
        """Return float64[classes]: training vertices / (classes x those of the class), 1 on average over vertices."""
        return np.where(sums > 0, sums.sum() / (np.count_nonzero(sums) * np.maximum(sums, 1)), 1.0)


MEMBER = TaskMember(MultiClass)
