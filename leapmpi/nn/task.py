"""A task: what a model answers for a root, how its labels are read, and how wrong an answer is.

The loss of a set of roots is a weighted sum, so that the losses of micro-batches add up to that of the mini-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from leapmpi.errors import ConfigError, DataError
from leapmpi.nn.scorer import Scorer
from leapmpi.registry import Member, Registry

if TYPE_CHECKING:
    from leapmpi.config.schema import Config
    from leapmpi.dataset.partitioned import Dataset


class Task(ABC):
    """One kind of answer. A member of leapmpi/nn/tasks; `name` is that of its file."""

    name = ""

    reads: ClassVar[tuple[str, ...]] = ()
    """Kinds of labels (`Dataset.label_kind`) that it can be trained on."""

    answers = ""
    """What its outputs and labels look like to a metric: multi-class, multi-label, ..."""

    metric = ""
    """The metric that scores it where the settings name none."""

    roots = "vertices"
    """What a root is: a vertex, or an edge, whose ends are embedded; then `scorer` counts and labels do not."""

    trivial = ""
    """The best one answer for all roots, in words."""

    reads_edge_labels = False
    """Whether labels of edges are read."""

    weighs_classes = False
    """Whether `class_weights` act on it."""

    columns = "classes"
    """What the columns of its labels are called."""

    class_weights: Tensor | None = None
    """float[classes], by which losses are multiplied; None: by nothing. Set once the labels are in place."""

    scale: Tensor | None = None
    """float[2, targets], mean and deviation of each in training; None where there are no targets. Set likewise."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raises DataError for a dataset without the labels that it reads, ConfigError for unsuitable ones."""
        if not dataset.classes:
            raise DataError(f"{dataset.folder} has no labels, which training needs; import the graph again with labels")
        if dataset.label_kind not in self.reads:
            raise ConfigError(
                f"train.task: {self.name} cannot read the labels of {dataset.folder}, which are {dataset.label_kind}; "
                f"leave it out, or give --task {dataset.label_kind}"
            )
        self.width = dataset.classes
        """Columns of the model's output."""
        self.classes = dataset.classes
        """Classes or columns of the labels."""

    def scorer(self) -> Scorer | None:
        """What scores pairs of outputs, a new one, where roots are edges."""
        return None

    @abstractmethod
    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The type in which labels are fetched, given that of the model. Labels float[n, columns], or int64[n]."""

    def stand_in_labels(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Labels of `count` roots that stand for any others, to compile and to measure; `dtype` is as above."""
        shape = (count, self.width) if self.label_dtype(dtype).is_floating_point else (count,)
        return torch.zeros(shape, dtype=self.label_dtype(dtype), device=device)

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Sum over roots of weight x loss(root), a scalar; 0 without roots, and backward still runs. Local.

        `outputs` is float[roots, width], `weight` one number for all roots, or float[roots]; labels as above.
        """

    def answer(self, outputs: Tensor) -> Tensor:
        """What a metric scores, from the model's outputs float[n, width]: by default they themselves. Local."""
        return outputs

    @abstractmethod
    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """What `constant_answer` needs to know of `labels`, as rows that add up over batches and ranks. Local."""

    @abstractmethod
    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Outputs float64[width] that, given for every root, score best, from the `label_sums` of all. Pure."""

    def balanced_weights(self, sums: np.ndarray) -> np.ndarray:
        """The class weights float64[classes] for `balanced`, from the `label_sums` of the training vertices. Pure."""
        raise NotImplementedError(f"{self.name} weighs no classes")


class EdgeTask(Task):
    """A task whose roots are edges: the model embeds their ends, a scorer reads pairs of embeddings.

    Outputs of the model are as wide as hidden rows. The loss of pairs is computed by exchange/edge_loss.py."""

    roots = "edges"

    draws_negatives = False
    """Whether pairs that are no edges are scored too."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Raises DataError for a dataset without edges."""
        if not dataset.edges:
            raise DataError(f"{dataset.folder} has no edges, which --task {self.name} trains on")
        self.width, self.classes = config.model.hidden, dataset.classes
        self.link = config.link

    @abstractmethod
    def pair_loss(self, scores: Tensor, targets: Tensor, weight: float) -> Tensor:
        """Sum over pairs of weight x loss(pair), a scalar; `scores` are the scorer's. Local.

        targets: whether each pair is an edge, bool[pairs], or the class of each, int64[pairs].
        """

    def leaves_out(self) -> bool:
        """Return whether message passing goes without the edges of the batch."""
        return self.link.target_edges != "keep"

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Labels of vertices are not read."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """A stand-in by which kernels are compiled and timed: embeddings alone have no loss."""
        return (outputs * outputs).sum() * (weight if isinstance(weight, float) else weight.mean())


@dataclass(frozen=True)
class TaskMember(Member):
    """A task."""

    task: type[Task]


TASKS = Registry("task", "leapmpi.nn.tasks", TaskMember)


def task_of(config: Config, dataset: Dataset) -> Task:
    """Return the task that `config` names, by default that of the labels of `dataset`.

    Raises DataError without labels, ConfigError for an unknown task, or one that does not fit the labels.
    """
    name = dataset.label_kind if config.train.task == "auto" else config.train.task
    kind = TASKS.load(name).task
    if config.train.class_weights and not kind.weighs_classes:
        raise ConfigError(f"train.class_weights: the task {name} has no classes; leave them out")
    task = object.__new__(kind)
    # Errors of the constructor name it.
    task.name = name
    task.__init__(config, dataset)  # type: ignore[misc]
    return task


def weighted_total(losses: Tensor, weight: float | Tensor) -> Tensor:
    """Return the sum of weight x loss over roots: `losses` float[roots], `weight` one for all, or float[roots]."""
    return (weight * losses).sum() if isinstance(weight, Tensor) else weight * losses.sum()
