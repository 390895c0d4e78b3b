"""Protocol of what an evaluation scores, and figures of outcomes, for vertices, links and classes of edges."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from leapmpi.comm.communicator import Communicator
from leapmpi.errors import ConfigError, counted
from leapmpi.evaluation.outputs import Outputs
from leapmpi.nn.model import Model
from leapmpi.scoring.class_report import Outcome, counts_of, report
from leapmpi.scoring.metric import CountedMetric, Metric

Scores = dict[str, float | None]
"""By split, the value of a metric; None where the split is empty or the metric undefined."""


class Scoring(Protocol):
    """Scores of the splits of a dataset by the current model. Methods are collective unless said otherwise."""

    outputs: Outputs
    whole_sizes: dict[str, int]
    """Number of roots of each split, scored or not."""
    details: dict[str, dict[str, float]]
    """Further figures of the last scores, by split, if there are any."""

    def size(self, split: str) -> int:
        """Return how many roots of `split` are scored. Local."""
        ...

    def dry_run(self) -> None:
        """Choose the mode of the first round and compute a few outputs, to compile kernels."""
        ...

    def scores(self, metric: Metric) -> Scores:
        """Score all splits, the same on all ranks."""
        ...

    def scores_of(self, models: Sequence[Model], remote: str, metric: Metric) -> list[Scores]:
        """Score all splits by each of `models`, one after the other, with inputs fetched by the mode `remote`."""
        found = []
        for model in models:
            with self.outputs.of(model, remote):
                found.append(self.scores(metric))
        return found

    def trivial_scores(self, metric: Metric) -> dict[str, float | str | None]:
        """Score a model that has learned nothing, and return its `answer` in words."""
        ...

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Score by all of `metrics`, and report further figures."""
        ...

    def take_breakdown(self) -> dict[str, dict]:
        """Take the last scores of one model apart by class, degree and part, by split; once. Empty for edges."""
        return {}


class OutcomeScoring(Scoring):
    """Scoring by metrics of answers and labels. Sub-classes compute these outcomes."""

    outputs: Outputs
    sizes: dict[str, int]
    """Number of roots of each split that are scored."""

    def __init__(self) -> None:
        self.details: dict[str, dict[str, float]] = {}
        self._scored: dict[str, list[Outcome]] = {}

    @abstractmethod
    def outcomes(self, split: str) -> list[Outcome]:
        """Return answers and labels of this rank's roots of a split, by rounds. Collective."""

    @abstractmethod
    def own_labels(self, split: str) -> np.ndarray:
        """Return the labels of those roots of `split` that this rank scores, a row for each. Local."""

    def size(self, split: str) -> int:
        """Return how many roots of `split` are scored. Local."""
        return self.sizes[split]

    def scores(self, metric: Metric) -> Scores:
        """Score all splits, the same on all ranks. Collective."""
        self._scored = {split: self.outcomes(split) for split, size in self.sizes.items() if size}
        return {split: self._value(metric, self._scored.get(split)) for split in self.sizes}

    def trivial_scores(self, metric: Metric) -> dict[str, float | str | None]:
        """Return the best score of a constant prediction on each split, and the `answer` in words. Collective.

        It is chosen on the split itself: no answer to all that a model falls back to scores more.
        """
        scores = {split: self._trivial_score(split, metric) for split in self.sizes}
        return {"answer": metric.trivial or self.outputs.ctx.task.trivial, **scores}

    def _trivial_score(self, split: str, metric: Metric) -> float | None:
        ctx, labels = self.outputs.ctx, self.own_labels(split)
        sums = ctx.communicator.all_gather_rows(ctx.task.label_sums(labels)).sum(axis=0)
        answer = metric.best_constant(ctx.task.constant_answer(sums), ctx.task)
        return self._value(metric, [(np.broadcast_to(answer, (len(labels), len(answer))), labels)])

    def full_report(self, metrics: Sequence[Metric], by_class: bool) -> dict[str, dict]:
        """Return `metrics`, the score of each on each split; and `classes`, if `by_class`, a report on each class.

        Splits without roots have None. The same on all ranks. Collective.
        """
        found: dict[str, dict] = {
            "metrics": {each.name: {} for each in metrics},
            **({"classes": {}} if by_class else {}),
        }
        for split, size in self.sizes.items():
            outcomes = self.outcomes(split) if size else None
            for metric in metrics:
                found["metrics"][metric.name][split] = self._value(metric, outcomes)
            if by_class:
                found["classes"][split] = self._by_class(outcomes) if outcomes else None
        return found

    def _by_class(self, outcomes: list[Outcome]) -> dict[str, list]:
        """Return the report on each class, label or target. Collective."""
        regression, communicator = self.outputs.ctx.task.answers == "regression", self.outputs.ctx.communicator
        figures, confused = counts_of(outcomes, regression)
        everywhere = np.concatenate(
            [np.array(each, np.int64).reshape(-1, 3) for each in communicator.all_gather_objects(confused.tolist())]
        )
        return report(communicator.all_gather_rows(np.ascontiguousarray(figures)), everywhere, regression)

    def _value(self, metric: Metric, outcomes: list[Outcome] | None) -> float | None:
        return value_of(metric, outcomes, self.outputs.ctx.communicator) if outcomes else None


def value_of(metric: Metric, outcomes: list[Outcome], communicator: Communicator) -> float | None:
    """Return the metric of one model's answers and labels of all rounds; None where it is undefined. Collective."""
    if isinstance(metric, CountedMetric):
        own = metric.combined(np.stack([_checked_counts(metric, outputs, labels) for outputs, labels in outcomes]))
        value = _checked_value(metric, "value", metric.value(metric.combined(communicator.all_gather_rows(own))))
    else:
        value = _ranked(metric, outcomes, communicator)
    return None if math.isnan(value) else value


def _checked_counts(metric: CountedMetric, outputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the counts of some outputs. Raises ConfigError for what does not add up over batches and ranks."""
    found = metric.counts(outputs, labels)
    if not isinstance(found, np.ndarray) or found.ndim < 1 or found.dtype not in (np.int64, np.float64):
        kind = f"{found.dtype}{list(found.shape)}" if isinstance(found, np.ndarray) else type(found).__name__
        raise ConfigError(f"--metric {metric.name}: counts returned {kind} and not an array int64[k] or float64[k]")
    if found.shape != (none := np.shape(metric.counts(outputs[:0], labels[:0]))):
        raise ConfigError(
            f"--metric {metric.name}: counts returned an array of shape {list(found.shape)} for "
            f"{counted(len(outputs), 'root')} and {list(none)} for none; it must not depend on the roots"
        )
    return found


def _checked_value(metric: Metric, function: str, value: Any) -> float:
    """Return `value`, what `function` of `metric` returned, as a float. Raises ConfigError for another type."""
    if not isinstance(value, int | float | np.integer | np.floating):
        raise ConfigError(f"--metric {metric.name}: {function} returned {type(value).__name__} and not a real number")
    return float(value)


def _ranked(metric: Metric, outcomes: list[Outcome], communicator: Communicator) -> float:
    """Send all outputs to rank 0, which scores them exactly and broadcasts the value. Collective."""
    outputs, labels = (np.concatenate(each) for each in zip(*outcomes, strict=True))
    table = np.column_stack((outputs, labels)).astype(np.float64, order="C")

    # Rank 0 receives the tables of all.
    rows = communicator.all_gather_rows(np.array([len(table)]))[:, 0]
    send, receive = np.zeros(communicator.size, np.int64), np.zeros(communicator.size, np.int64)
    send[0] = len(table)
    if communicator.rank == 0:
        receive[:] = rows
    gathered = np.empty((int(receive.sum()), table.shape[1]))
    communicator.exchange(table, send, gathered, receive, "control")

    # The value is broadcast by its bits.
    answer = None
    if communicator.rank == 0:
        given, truth = np.split(gathered, [outputs.shape[1]], axis=1)
        value = metric.score(given, truth if labels.ndim == 2 else truth[:, 0].astype(np.int64))
        value = _checked_value(metric, "score", value)
        answer = np.array([value]).view(np.int64)
    return float(communicator.broadcast(answer, "control").view(np.float64)[0])
