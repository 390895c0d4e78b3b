"""A task: the kind of answer for a root, its labels, and its loss.

The loss of a set of roots is a weighted sum, so that the losses of micro-batches add up to that of the mini-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from leapmpi.dataset.named_triples import read_triples
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
    """The kind of its outputs and labels, for metrics: multi-class, multi-label, ..."""

    metric = ""
    """The metric that scores it where the settings name none."""

    roots = "vertices"
    """The kind of its roots: vertices, or edges, whose ends are embedded; then `scorer` counts and labels do not."""

    trivial = ""
    """Name of the constant baseline: the best single answer for all roots."""

    reads_edge_labels = False
    """Whether labels of edges are read."""

    draws_negatives = False
    """Whether pairs that are not edges are scored too."""

    weighs_classes = False
    """Whether `class_weights` act on it."""

    columns = "classes"
    """Name of the columns of its labels."""

    class_weights: Tensor | None = None
    """float[classes], factors of losses; None for none. Set once the labels are loaded."""

    scale: Tensor | None = None
    """float[2, targets], mean and deviation of each in training; None where there are no targets. Set likewise."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Read the widths of `dataset`. Raises DataError without labels, ConfigError for unsuitable ones."""
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
        """Make the scorer of pairs of outputs, where roots are edges."""
        return None

    @abstractmethod
    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of fetched labels, given that of the model. Labels are float[n, columns], or int64[n]."""

    def dummy_labels(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Make dummy labels of `count` roots, to compile and to measure; `dtype` is as above."""
        shape = (count, self.width) if self.label_dtype(dtype).is_floating_point else (count,)
        return torch.zeros(shape, dtype=self.label_dtype(dtype), device=device)

    @abstractmethod
    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Sum over roots of weight x loss(root), a scalar; 0 without roots, and backward still runs. Local.

        `outputs` is float[roots, width], `weight` one number for all roots, or float[roots]; labels as above.
        """

    def checked(self, loss: Any) -> Tensor:
        """Return `loss`, the result of `loss`. Raises ConfigError where it is no real number that has a gradient."""
        where = f"--task {self.name}: loss"
        if not isinstance(loss, Tensor):
            raise ConfigError(f"{where} returned {type(loss).__name__} and not a tensor of one real number")
        if loss.numel() != 1 or not loss.is_floating_point():
            kind = str(loss.dtype).removeprefix("torch.")
            raise ConfigError(
                f"{where} returned a tensor of shape {list(loss.shape)} and type {kind} and not one real number; sum "
                "over the roots"
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise ConfigError(
                f"{where} returned a tensor through which no gradient flows; leave out no_grad and detach"
            )
        return loss

    def answer(self, outputs: Tensor) -> Tensor:
        """Convert the model's outputs float[n, width] to the input of metrics, by default unchanged. Local."""
        return outputs

    @abstractmethod
    def label_sums(self, labels: np.ndarray) -> np.ndarray:
        """Count the input of `constant_answer` in `labels`, as rows that add up over batches and ranks. Local."""

    @abstractmethod
    def constant_answer(self, sums: np.ndarray) -> np.ndarray:
        """Compute the constant outputs float64[width] that score best, from the `label_sums` of all. Pure."""

    def balanced_weights(self, sums: np.ndarray) -> np.ndarray:
        """Compute class weights float64[classes] for `balanced`, from `label_sums` of the training vertices. Pure."""
        raise NotImplementedError(f"{self.name} weighs no classes")


class EdgeTask(Task):
    """A task whose roots are edges: the model embeds their ends, a scorer reads pairs of embeddings.

    Outputs of the model are as wide as hidden rows. exchange/edge_loss.py computes the loss of pairs."""

    roots = "edges"
    known_are_negatives = False
    """Whether a vertex that many edges share as a negative is one, too, where it makes an edge to train."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        """Read the widths of `config` and `dataset`. Raises DataError for a dataset without edges."""
        if not dataset.edges:
            raise DataError(f"{dataset.folder} has no edges, which --task {self.name} trains on")
        self.width, self.classes = config.model.hidden, dataset.classes
        self.link, self._dataset = config.link, dataset
        self._hard_negatives: np.ndarray | None = None

    def hard_negatives(self, check: bool) -> np.ndarray:
        """Read the file of `--negatives hard:FILE`: int64[k, 3]; `check` and errors are those of `read_triples`."""
        if self._hard_negatives is None:
            path = Path(self.link.negatives_and_file[1])
            self._hard_negatives = read_triples(path, self._dataset, "--negatives hard:FILE,", check)
        return self._hard_negatives

    @abstractmethod
    def loss_of_edges(self, scores: Tensor, sources: int, labels: Tensor | None, batch: int) -> Tensor:
        """Return the share of some edges in the loss of a batch of `batch` edges, a scalar. Local.

        scores: float[edges, 1 + K], an edge before its negatives, where the last `sources` of them replace its source;
        or float[edges, classes], with `labels` int64[edges].
        """

    def leaves_out(self) -> bool:
        """Return whether message passing goes without the edges of the batch."""
        return self.link.target_edges != "keep"

    def label_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return a placeholder: labels of vertices are not read."""
        return torch.int64

    def loss(self, outputs: Tensor, labels: Tensor, weight: float | Tensor) -> Tensor:
        """Compute a dummy loss, to compile and time kernels: embeddings alone have none."""
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
