"""Metrics: by hand, against scikit-learn where it is installed, and their corner cases."""

import itertools
import math

import numpy as np
import pytest

from leapmpi.errors import ConfigError
from leapmpi.runs.text_tables import class_table
from leapmpi.scoring.class_report import counts_of, report
from leapmpi.scoring.metric import METRICS, CountedMetric, metric_named
from tests.support.tasks import task

OF_NUMBERS = ("mse", "mae", "rmse", "r2")
COUNTED = [
    name
    for name in METRICS.names()
    if isinstance(metric_named(name), CountedMetric) and "multi-class" in metric_named(name).scores
]


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


def targets(seed, shift=0.0, size=300):
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((size, 3)) * [1, 100, 0.01] + shift
    answers = truth + rng.standard_normal((size, 3)) * [0.5, 20, 0.1]
    truth[rng.random(truth.shape) < 0.2] = np.nan
    return answers, truth


@pytest.mark.parametrize("shift", [0.0, 1e7])
def test_errors_of_numbers_equal_those_of_scikit_learn(shift):
    metrics = pytest.importorskip("sklearn.metrics")
    answers, truth = targets(1, shift)
    columns = [(truth[known, c], answers[known, c]) for c, known in enumerate(~np.isnan(truth).T)]
    for name, function in (
        ("mse", metrics.mean_squared_error),
        ("mae", metrics.mean_absolute_error),
        ("rmse", metrics.root_mean_squared_error),
        ("r2", metrics.r2_score),
    ):
        assert score(name, answers, truth) == pytest.approx(np.mean([function(*each) for each in columns]), rel=1e-9)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_errors_of_batches_combine(name):
    metric, (answers, truth) = metric_named(name), targets(2, 1e6)
    truth[:30] = np.nan
    pieces = [metric.counts(answers[i : i + 30], truth[i : i + 30]) for i in range(0, 330, 30)]
    twice = metric.combined(np.stack([metric.combined(np.stack(part)) for part in (pieces[:4], pieces[4:])]))
    assert metric.value(twice) == pytest.approx(metric.score(answers, truth), rel=1e-7)
    assert math.isnan(metric.score(answers[:30], truth[:30]))
    assert metric.better(0.9, 0.5) == (name == "r2")


def test_the_report_of_classes_equals_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = single_label(4)
    labels[:9] = -1
    halves = [counts_of([(logits[a:b], labels[a:b])], False) for a, b in ((0, 90), (90, 90), (90, 200))]
    found = report(np.stack([each[0] for each in halves]), np.concatenate([each[1] for each in halves]), False)
    known, predicted = labels >= 0, logits.argmax(axis=1)
    expected = metrics.precision_recall_fscore_support(labels[known], predicted[known])
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        np.testing.assert_allclose(found[name], values, rtol=1e-12)
    matrix = np.zeros((5, 5), int)
    for truth, taken, count in found["confusion"]:
        matrix[truth, taken] = count
    assert matrix.tolist() == metrics.confusion_matrix(labels[known], predicted[known]).tolist()
    assert "(" in class_table(found, list("abcde")).splitlines()[1]


def test_the_report_of_labels_and_of_targets():
    metrics = pytest.importorskip("sklearn.metrics")
    logits, labels = multi_label(5, missing=0.0)
    found = report(counts_of([(logits, labels)], False)[0][None], np.zeros((0, 3), int), False)
    np.testing.assert_allclose(found["f1"], metrics.f1_score(labels, logits > 0, average=None), rtol=1e-12)
    assert found["known"] == [200] * 6
    answers, truth = targets(3)
    truth[:, 1] = np.nan
    found = report(counts_of([(answers, truth)], True)[0][None], np.zeros((0, 3), int), True)
    assert found["known"][1] == 0
    assert found["r2"][1] is None
    assert class_table(found).splitlines()[2].split() == ["1", "0", "-", "-", "-", "-"]


def test_the_mean_as_an_answer_has_an_r2_of_exactly_0():
    rng = np.random.default_rng(2)
    for size in (3, 7, 50, 1000):
        labels = rng.normal(3.7, 2.0, (size, 1))
        assert metric_named("r2").score(np.full((size, 1), labels.mean()), labels) == 0


def test_best_labels_by_hand():
    outputs = np.array([[4, 3, 2, 1], [1, 1, 1, 1], [0, np.nan, 2, 1], [9, 9, 9, 9]], np.float32)
    labels = np.array([[0, 1, 0, 1], [1, 0, 0, 0], [0, 1, 1, np.nan], [0, 0, 0, 0]], np.float32)
    # Right at places 2 and 4; at 1, the first of equals; at 1 and last. The row without labels does not count.
    wanted = {
        "map-5": [(1 / 2 + 2 / 4) / 2, 1, (1 + 2 / 4) / 2], "map-1": [0, 1, 1],
        "precision-1": [0, 1, 1], "precision-5": [2 / 5, 1 / 5, 2 / 5], "recall-1": [0, 1, 1 / 2],
    }  # fmt: skip
    for name, rows in wanted.items():
        metric = metric_named(name)
        assert metric.score(outputs, labels) == pytest.approx(np.mean(rows))
        halves = np.stack([metric.counts(outputs[part], labels[part]) for part in (slice(2), slice(2, None))])
        assert metric.value(metric.combined(halves)) == pytest.approx(np.mean(rows))
