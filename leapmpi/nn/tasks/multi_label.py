"""Several labels per root, float[n, labels] of 0, 1 and NaN, unknown: the loss is the binary cross-entropy."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from leapmpi.nn.task import Task, TaskMember, weighted_total


class MultiLabel(Task):
    """The set of labels of a root: those whose output is positive."""

    reads = ("multi-label",)
    answers = "multi-label"
    metric = "f1-micro"
    trivial = "same labels for all"
    weighs_classes = True

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of the model, which has NaN."""
        return dtype

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Return the mean binary cross-entropy over the columns of a root that are not NaN; labels float[roots, width].

        The weight of a label multiplies the loss of the roots that have it.
        """
        # Unknown labels have weight 0, and a target that is a number: NaN would spoil the gradient.
        known = ~labels.isnan()
        target = torch.where(known, labels, 0).to(outputs.dtype)
        losses = F.binary_cross_entropy_with_logits(
            outputs, target, known.to(outputs.dtype), reduction="none", pos_weight=self.class_weights
        )
        return weighted_total(losses.sum(1) / known.sum(1).clamp(min=1), weight)

    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Count for each label the vertices that have it, and those where it is known: int64[2, labels]."""
        return np.stack([(labels > 0.5).sum(axis=0), (~np.isnan(labels)).sum(axis=0)])

    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Return outputs, float64[labels], for the set of labels with the best F1 (micro)."""
        positives, known = sums
        # The more frequent a label, the sooner it is worth its false positives.
        order = np.argsort(-positives / np.maximum(known, 1), kind="stable")
        scores = 2 * np.cumsum(positives[order]) / np.maximum(np.cumsum(known[order]) + positives.sum(), 1)
        answer = np.full(self.width, -1.0)
        answer[order[: int(scores.argmax()) + 1]] = 1.0
        return answer

    def balanced_weights(self, sums: np.ndarray) -> np.ndarray:
        """Return float64[labels]: training vertices without a label / those with it, so that both weigh alike."""
        positives, known = sums
        return np.where(positives > 0, (known - positives) / np.maximum(positives, 1), 1.0)


MEMBER = TaskMember(MultiLabel)
