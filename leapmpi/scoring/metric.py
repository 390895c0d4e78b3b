"""What a metric is: one figure that says how good outputs are, exact over all ranks.

A counted metric is a function of what adds up over batches and ranks. Any other is computed on rank 0, to which the
outputs and labels of all ranks go.
"""

from __future__ import annotations

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
    """What it scores, as tasks say what they answer (`Task.answers`)."""

    higher_is_better = True

    trivial: str | None = None
    """What one answer for all roots is called, where it has a name of its own with this metric."""

    def refusal(self, task: Task) -> str | None:
        """Why it cannot score `task`, None if it can."""
        return None if task.answers in self.scores else f"{self.name} is not defined for {task.answers} data"

    @abstractmethod
    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """The figure of float[n, C] outputs; NaN where it is undefined, as without any label. Pure.

        Labels are int64[n] class numbers, or float[n, C]: zeros and ones of multi-label data, numbers of a regression.
        """

    def best_constant(self, answer: np.ndarray, task: Task) -> np.ndarray:
        """The outputs float64[C] that score best when given for every root; `answer` is what `task` proposes."""
        return answer

    def better(self, score: float | None, than: float | None) -> bool:
        """Whether `score` is better; no score at all counts as worst."""
        if score is None or than is None:
            return than is None and score is not None
        return score > than if self.higher_is_better else score < than

    def best(self, scores: Sequence[float | None]) -> int:
        """The position of the best score, of equals the first."""
        best = 0
        for position, score in enumerate(scores):
            if self.better(score, scores[best]):
                best = position
        return best


class CountedMetric(Metric):
    """A metric that is a function of counts, or of moments, of all predictions."""

    @abstractmethod
    def counts(self, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """What `value` needs to know of some predictions, int64[k] or float64[k]. Pure."""

    @abstractmethod
    def value(self, counts: np.ndarray) -> float:
        """The figure, from the counts of all; NaN when nothing was labelled. Pure."""

    def combined(self, rows: np.ndarray) -> np.ndarray:
        """The counts of all, from those of each batch or rank, (n, k). Pure."""
        return rows.sum(axis=0)

    def score(self, outputs: np.ndarray, labels: np.ndarray) -> float:
        """From the counts."""
        return self.value(self.counts(outputs, labels))


@dataclass(frozen=True)
class MetricMember(Member):
    """A metric, or several by name, of a module listed in `SEVERAL`."""

    make: Callable[[], Metric] | Mapping[str, Callable[[], Metric]]


METRICS = Registry("metric", "leapmpi.scoring.metrics", MetricMember)


def metric_named(name: str) -> Metric:
    """The metric called `name`. Raises ConfigError for an unknown one."""
    make = METRICS.load(name).make
    found = make[name]() if isinstance(make, Mapping) else make()
    found.name = name
    return found


def choose_metric(name: str, task: Task) -> Metric:
    """The metric called `name`, or that of `task` for `auto`. Raises ConfigError for one that does not fit."""
    if name == "auto":
        return metric_named(task.metric)
    found = metric_named(name)
    if why := found.refusal(task):
        fitting = [each for each in METRICS.names() if not metric_named(each).refusal(task)]
        raise ConfigError(
            f"evaluate.metric: {why}; use {' or '.join(filter(None, [', '.join(fitting[:-1]), fitting[-1]]))}"
        )
    return found
