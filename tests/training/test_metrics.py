"""Metrics: by hand, against scikit-learn where it is installed, and their corner cases."""

import itertools
import math

import numpy as np
import pytest

from leapmpi.errors import ConfigError
from leapmpi.training.scoring.metric import METRICS, CountedMetric, metric_named
from tests.support.tasks import task

COUNTED = [name for name in METRICS.names() if isinstance(metric_named(name), CountedMetric)]


def score(metric, logits, labels):
    return metric_named(metric).score(np.asarray(logits), np.asarray(labels))


def count(metric, logits, labels):
    return metric_named(metric).counts(logits, labels)


def roc_auc(scores, labels):
    return score("roc-auc", scores, labels)


def constant_answer(labels, width):
    found = task("multi-label" if labels.ndim == 2 else "multi-class", width)
    return found.constant_answer(found.label_sums(labels))


def single_label(seed, size=200, classes=5):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((size, classes)), rng.integers(0, classes, size)


def multi_label(seed, size=200, columns=6, missing=0.2):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, (size, columns)).astype(np.float32)
    labels[rng.random(labels.shape) < missing] = np.nan
    return np.round(rng.standard_normal((size, columns)), 1), labels


def test_accuracy_by_hand():
    logits = [[2.0, 1.0], [0.0, 3.0], [1.0, 1.0], [5.0, 0.0]]
    assert score("accuracy", logits, [0, 0, 0, -1]) == 2 / 3
    assert score("accuracy", logits, [1, 0, 1, 1]) == 0.0


def test_f1_micro_by_hand():
    logits = [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0]]
    labels = [[1.0, 0.0], [1.0, 1.0], [0.0, np.nan]]
    assert score("f1-micro", logits, labels) == 2 * 2 / (2 * 2 + 1 + 1)
    assert score("accuracy", logits, labels) == 3 / 5


@pytest.mark.parametrize("metric", COUNTED)
@pytest.mark.parametrize("make", [single_label, multi_label])
def test_counts_of_batches_add_up(metric, make):
    logits, labels = make(1)
    whole = count(metric, logits, labels)
    pieces = [count(metric, logits[i : i + 30], labels[i : i + 30]) for i in range(0, 230, 30)]
    assert whole.dtype == np.int64
    assert sum(pieces).tolist() == whole.tolist()


def test_f1_micro_of_single_labels_is_accuracy():
    logits, labels = single_label(2)
    labels[:20] = -1
    assert score("f1-micro", logits, labels) == pytest.approx(score("accuracy", logits, labels), abs=1e-15)


@pytest.mark.parametrize("metric", COUNTED)
def test_nothing_labelled_has_no_score(metric):
    assert math.isnan(score(metric, np.zeros((3, 2)), np.full(3, -1)))
    assert math.isnan(score(metric, np.zeros((0, 2)), np.zeros(0, np.int64)))
    assert math.isnan(score(metric, np.zeros((3, 2)), np.full((3, 2), np.nan)))


def test_f1_micro_without_positives_is_zero():
    assert score("f1-micro", -np.ones((3, 2)), np.zeros((3, 2))) == 0.0


def test_predictions_of_nan_are_wrong():
    labels = np.array([0, 1])
    assert score("accuracy", np.full((2, 2), np.nan), labels) == 0.0
    for truth in (0.0, 1.0):
        assert score("accuracy", np.full((2, 2), np.nan), np.full((2, 2), truth)) == 0.0
        assert score("f1-micro", np.full((2, 2), np.nan), np.full((2, 2), truth)) == 0.0


def test_an_unknown_metric_is_refused():
    with pytest.raises(ConfigError, match="accuracy"):
        metric_named("acuracy")


def test_roc_auc_by_hand():
    assert roc_auc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([0, 0, 1, 1])) == 0.75
    assert roc_auc(np.array([1.0, 1.0, 1.0]), np.array([0, 1, 1])) == 0.5
    assert roc_auc(np.array([0.0, 9.0, 1.0, 5.0]), np.array([0, 1, 1, -1])) == 1.0
    assert roc_auc(np.array([[3.0, 1.0], [1.0, 3.0]], np.float32), np.array([0, 1])) == 1.0


def test_roc_auc_equals_the_count_of_pairs():
    rng = np.random.default_rng(3)
    scores, labels = rng.integers(0, 12, 150).astype(float), rng.integers(0, 2, 150)
    gap = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    assert roc_auc(scores, labels) == ((gap > 0).sum() + (gap == 0).sum() / 2) / gap.size


def test_roc_auc_leaves_out_columns_with_one_class():
    scores = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
    labels = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, np.nan]])
    assert roc_auc(scores, labels) == 1.0
    assert math.isnan(roc_auc(scores[:, 1:], labels[:, 1:]))
    assert math.isnan(roc_auc(scores[:, 0], np.ones(3, np.int64)))
    assert math.isnan(roc_auc(np.zeros(0), np.zeros(0, np.int64)))


def test_roc_auc_of_nan_scores_is_nan():
    assert math.isnan(roc_auc(np.array([np.nan, 1.0]), np.array([0, 1])))


def test_roc_auc_needs_two_classes():
    with pytest.raises(ConfigError, match="two classes"):
        roc_auc(np.zeros((3, 3)), np.array([0, 1, 2]))
    with pytest.raises(ConfigError, match="two classes"):
        roc_auc(np.zeros(3), np.array([0, 1, 2]))


@pytest.mark.parametrize("seed", range(3))
def test_scores_equal_those_of_scikit_learn(seed):
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = single_label(seed)
    predicted = logits.argmax(axis=1)
    assert score("accuracy", logits, labels) == pytest.approx(metrics.accuracy_score(labels, predicted), abs=1e-12)
    assert score("f1-micro", logits, labels) == pytest.approx(
        metrics.f1_score(labels, predicted, average="micro"), abs=1e-12
    )
    rare, taken = np.where(labels == 2, 1, labels), np.where(predicted == 2, 1, predicted)
    outputs = np.eye(5)[taken]
    assert score("f1-macro", outputs, rare) == pytest.approx(metrics.f1_score(rare, taken, average="macro"), abs=1e-12)
    logits, labels = multi_label(seed, missing=0.0)
    assert score("f1-micro", logits, labels) == pytest.approx(
        metrics.f1_score(labels, logits > 0, average="micro"), abs=1e-12
    )
    assert roc_auc(logits, labels) == pytest.approx(metrics.roc_auc_score(labels, logits), abs=1e-12)
    assert score("f1-macro", logits, labels) == pytest.approx(
        metrics.f1_score(labels, logits > 0, average="macro"), abs=1e-12
    )
    assert score("average-precision", logits, labels) == pytest.approx(
        metrics.average_precision_score(labels, logits), abs=1e-12
    )


def test_the_constant_answer_is_the_best_one():
    assert constant_answer(np.repeat([0, 1, 2, -1], [2, 9, 4, 20]), 3).argmax() == 1
    rng = np.random.default_rng(3)
    labels = (rng.random((60, 4)) < [0.7, 0.1, 0.4, 0.02]).astype(np.float32)
    labels[rng.random((60, 4)) < 0.2] = np.nan
    answer = constant_answer(labels, 4)

    def of(logits):
        return score("f1-micro", np.broadcast_to(np.array(logits, float), labels.shape), labels)

    every = itertools.product((-1.0, 1.0), repeat=4)
    assert of(answer) == pytest.approx(max(map(of, every)))
