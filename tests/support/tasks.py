"""Tasks without a dataset file."""

from types import SimpleNamespace

import torch

from leapmpi.config.schema import Config
from leapmpi.nn.task import Task, task_of


def task(name: str = "multi-class", width: int = 4, **settings: object) -> Task:
    """The task called `name` of a dataset with `width` columns of its labels; `settings` of section train."""
    dataset = SimpleNamespace(folder="data", classes=width, label_kind=name)
    return task_of(Config().replaced({f"train.{key}": value for key, value in settings.items()}), dataset)


def weighted_loss(outputs: torch.Tensor, labels: torch.Tensor, weight: float | torch.Tensor) -> torch.Tensor:
    """The loss of classes int64[n], or of several labels float[n, labels]."""
    return task("multi-class" if labels.dim() == 1 else "multi-label").loss(outputs, labels, weight)
