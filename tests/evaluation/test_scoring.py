"""Metrics of users: what they return is a figure, and counts add up over batches and ranks."""

from types import SimpleNamespace

import numpy as np
import pytest

from leapmpi.errors import ConfigError
from leapmpi.evaluation.scoring import value_of
from leapmpi.scoring.metric import METRICS, CountedMetric, Metric, metric_named
from leapmpi.scoring.metrics.accuracy import Accuracy

OUTCOMES = [(np.eye(3)[[0, 1, 2, 2]], np.array([0, 1, 1, 2])), (np.eye(3)[[0]], np.array([2]))]


def alone():
    """The communicator of one rank, as far as metrics use it."""

    def exchange(table, send, gathered, receive, kind):
        gathered[:] = table

    return SimpleNamespace(
        size=1, rank=0, all_gather_rows=lambda row: row[None], exchange=exchange, broadcast=lambda array, kind: array
    )


def scored(function, returned, base=Accuracy):
    """The value of a metric whose `function` returns what `returned` makes of its arguments."""
    metric = type("Mine", (base,), {function: lambda self, *arguments: returned(*arguments)})()
    metric.name = "mine"
    return value_of(metric, OUTCOMES, alone())


@pytest.mark.parametrize("base", [Accuracy, Metric])
@pytest.mark.parametrize("value", [None, "good", np.zeros(2), 1j])
def test_a_value_that_is_no_number_gets_a_sentence(base, value):
    function = "value" if base is Accuracy else "score"
    with pytest.raises(ConfigError, match=f"--metric mine: {function} returned {type(value).__name__} and not a real"):
        scored(function, lambda *_: value, base)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(3), float("nan")])
def test_numbers_of_any_type_will_do(value):
    assert scored("value", lambda *_: value) == (None if value != value else value)


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        (lambda *_: None, "counts returned NoneType and not an array"),
        (lambda *_: 3.0, "counts returned float and not an array"),
        (lambda *_: np.zeros(2, np.float32), r"counts returned float32\[2\] and not an array"),
        (lambda *_: np.zeros(()), r"counts returned float64\[\] and not an array"),
        (lambda outputs, _: np.arange(len(outputs)), r"an array of shape \[4\] for 4 roots and \[0\] for none"),
    ],
)
def test_counts_that_do_not_add_up_get_a_sentence(counts, sentence):
    with pytest.raises(ConfigError, match=f"--metric mine: .*{sentence}"):
        scored("counts", counts)


def test_counts_of_all_metrics_have_one_shape():
    labels = {"multi-class": np.array([0, 1]), "multi-label": np.eye(3)[:2], "regression": np.ones((2, 3))}
    for metric in map(metric_named, METRICS.names()):
        for answers in set(metric.scores) & set(labels) if isinstance(metric, CountedMetric) else ():
            value_of(metric, [(np.eye(3)[:2], labels[answers])], alone())
