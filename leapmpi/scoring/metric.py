"""The base of metrics: one figure for the quality of outputs, exact over all ranks.

A counted metric is a function of counts that add up over batches and ranks. Any other is computed on rank 0, which
receives the outputs and labels of all ranks.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from leapmpi.errors import ConfigError
from leapmpi.registry import Member, Registry

if TYPE_CHECKING:
    from leapmpi.nn.task import Task


class Metric(ABC):
    """One metric. A member of leapmpi/scoring/metrics; `name` is the name by which it was loaded."""

    name = ""

    scores: ClassVar[tuple[str, ...]] = ()
    """Kinds of answers that it scores (`Task.answers`)."""

    higher_is_better = True

    trivial: str | None = None
    """Name of the constant baseline under this metric, where it has one of its own."""

    def refusal(self, task: Task) -> str | None:
        """Return why it cannot score `task`, None if it can."""
        return None if task.answers in self.scores else f"{self.name} is not defined for {task.answers} data"

    @abstractmethod
    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Compute the figure of float[n, C] outputs; NaN where it is undefined, as without any label. Pure.

        Labels are int64[n] class numbers, or float[n, C]: zeros and ones of multi-label data, numbers of a regression.
        """

    def best_constant(self, answer: np.ndarray, task: Task) -> np.ndarray:
        """Return the outputs float64[C] that score best when given for every root; `task` proposes `answer`."""
        return answer

    def better(self, score: float | None, than: float | None) -> bool:
        """Return whether `score` is better; no score at all counts as worst."""
        if score is None or than is None:
            return than is None and score is not None
        return score > than if self.higher_is_better else score < than

    def best(self, scores: Sequence[float | None]) -> int:
        """Return the position of the best score, the first of equals."""
        best = 0
        for position, score in enumerate(scores):
            if self.better(score, scores[best]):
                best = position
        return best


class CountedMetric(Metric):
    """A metric that is a function of counts, or of moments, of all predictions."""

    @abstractmethod
    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Count the input of `value` for some predictions, int64[k] or float64[k]. Pure."""

    @abstractmethod
    def value(self, counts: np.ndarray) -> float:
        """Compute the figure from the counts of all; NaN when nothing was labelled. Pure."""

    def combined(self, rows: np.ndarray) -> np.ndarray:
        """Combine the counts of each batch or rank, (n, k). Pure."""
        return rows.sum(axis=0)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """Compute the figure through the counts."""
        return self.value(self.counts(outputs, labels))


@dataclass(frozen=True)
class MetricMember(Member):
    """A metric, or several by name, of a module listed in `SEVERAL`."""

    make: Callable[[], Metric] | Mapping[str, Callable[[], Metric]]


METRICS = Registry("metric", "leapmpi.scoring.metrics", MetricMember)


def metric_named(name: str) -> Metric:
    """Return the metric called `name`. Raises ConfigError for an unknown one."""
    make = METRICS.load(name).make
    found = make[name]() if isinstance(make, Mapping) else make()
    found.name = name
    return found


def choose_metric(name: str, task: Task) -> Metric:
    """Return the metric called `name`, or that of `task` for `auto`. Raises ConfigError for one that does not fit."""
    if name == "auto":
        return metric_named(task.metric)
    found = metric_named(name)
    if why := found.refusal(task):
        names = [each for each in METRICS.names() if not metric_named(each).refusal(task)]
        fitting = list(dict.fromkeys(re.sub(r"-\d+$", "-K", each) for each in names))
        raise ConfigError(
            f"evaluate.metric: {why}; use {' or '.join(filter(None, [', '.join(fitting[:-1]), fitting[-1]]))}"
        )
    return found
