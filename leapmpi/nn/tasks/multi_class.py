"""One class per root, int64[n] in [0, classes): the loss is the cross-entropy."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.nn.task import Task, weighted_total


class MultiClass(Task):
    """The class of a root; the largest output is the answer."""

    reads = ("multi-class",)
    answers = "multi-class"
    metric = "accuracy"
    trivial = "most frequent class"

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Class numbers are whole."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Cross-entropy, labels int64[roots]."""
        if isinstance(weight, Tensor):
            return weighted_total(F.cross_entropy(outputs, labels, reduction="none"), weight)
        return weight * F.cross_entropy(outputs, labels, reduction="sum")

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """int64[classes]: how often each occurs; -1, no label, does not count."""
        return np.bincount(labels[labels >= 0], minlength=self.width)

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """The most frequent class."""
        answer = np.full(self.width, -1.0)
        answer[int(sums.argmax())] = 1.0
        return answer


TASK = MultiClass
