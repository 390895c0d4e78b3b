"""Tasks: weighted sums of losses over roots."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from leapmpi.errors import ConfigError
from leapmpi.nn.task import TASKS
from tests.support.tasks import task, weighted_loss


def test_cross_entropy_adds_up():
    logits = torch.randn(7, 4, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 3, 0, 1])
    whole = weighted_loss(logits, labels, 1 / 7)
    torch.testing.assert_close(whole, F.cross_entropy(logits, labels))
    parts = [weighted_loss(logits[a:b], labels[a:b], 1 / 7) for a, b in ((0, 2), (2, 2), (2, 7))]
    torch.testing.assert_close(sum(parts), whole)


@pytest.mark.parametrize("labels", [torch.tensor([0, 1, 2, 3, 3]), torch.tensor([[0.0, 1, 1, float("nan")]] * 5)])
def test_each_root_may_have_a_weight(labels):
    logits, weight = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    whole = weighted_loss(logits, labels, weight)
    each = [weighted_loss(logits[i : i + 1], labels[i : i + 1], float(weight[i])) for i in range(5)]
    torch.testing.assert_close(whole, sum(each))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multi_label_takes_the_mean_over_known_columns(dtype):
    logits = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    nan = float("nan")
    labels = torch.tensor([[1, 0, nan, 1], [0, 0, 1, 1], [nan, nan, nan, 1]])
    loss = weighted_loss(logits, labels, 0.5)
    expected = 0
    for row, label in zip(logits, labels, strict=True):
        known = ~label.isnan()
        expected = expected + 0.5 * F.binary_cross_entropy_with_logits(row[known], label[known].to(dtype))
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[labels.isnan()].any()


@pytest.mark.parametrize("labels", [torch.empty(0, dtype=torch.int64), torch.empty(0, 4)])
def test_no_roots_give_zero_and_backward_runs(labels):
    logits = torch.empty(0, 4, requires_grad=True)
    loss = weighted_loss(logits, labels, 0.1)
    assert loss.shape == ()
    assert loss.item() == 0
    loss.backward()
    assert logits.grad.shape == (0, 4)


def test_class_weights_multiply_the_loss_of_a_root():
    outputs, labels = torch.randn(6, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 2, 1, 0])
    weights, roots = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    found = task("multi-class", 3)
    found.class_weights = weights
    each = F.cross_entropy(outputs, labels, reduction="none")
    torch.testing.assert_close(found.loss(outputs, labels, roots), (roots * weights[labels] * each).sum())
    torch.testing.assert_close(found.loss(outputs, labels, 0.1), 0.1 * (weights[labels] * each).sum())


def test_class_weights_of_labels_multiply_the_loss_of_those_that_have_them():
    outputs, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([[0.0, 1, 1]] * 5, dtype=torch.float64)
    found = task("multi-label", 3)
    found.class_weights = torch.tensor([4.0, 3.0, 1.0], dtype=torch.float64)
    each = F.binary_cross_entropy_with_logits(outputs, labels, reduction="none") * torch.tensor([1.0, 3.0, 1.0])
    torch.testing.assert_close(found.loss(outputs, labels, 1.0), each.mean(1).sum())


def test_a_list_of_entities_shares_the_probability_of_all():
    outputs, roots = torch.randn(3, 5, dtype=torch.float64, requires_grad=True), torch.tensor([0.2, 0.3, 0.5]).double()
    labels = torch.tensor([[0.0, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, float("nan"), 0, 0, 0]], dtype=torch.float64)
    found, logs = task("multi-label", 5, task="recommend"), torch.log_softmax(outputs, 1)
    total = found.loss(outputs, labels, roots)
    torch.testing.assert_close(total, -(0.2 * (logs[0, 1] + logs[0, 3]) / 2 + 0.5 * logs[2, 0]))
    total.backward()
    assert torch.isfinite(outputs.grad).all()
    assert not outputs.grad[1].any()
    assert found.constant_answer(found.label_sums(labels.numpy())).tolist() == [1, 1, 0, 1, 0]


def test_balanced_weights_let_classes_weigh_alike():
    found = task("multi-class", 4)
    weights = found.balanced_weights(found.label_sums(np.repeat([0, 1, 3, -1], [6, 3, 1, 5])))
    np.testing.assert_allclose(weights * [6, 3, 1, 1], [10 / 3, 10 / 3, 1.0, 10 / 3])
    found = task("multi-label", 2)
    sums = found.label_sums(np.array([[1, 0], [0, 0], [0, 0], [np.nan, 0]]))
    assert found.balanced_weights(sums).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_a_regression_takes_the_mean_over_known_targets_in_deviations(loss):
    nan = float("nan")
    outputs = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1990.0, 5e6], [2000, nan], [nan, nan]], dtype=torch.float64)
    found = task("regression", 2, loss=loss)
    found.scale = torch.tensor([[1995.0, 4e6], [5.0, 1e6]], dtype=torch.float64)
    errors = outputs - torch.tensor([[-1.0, 1], [1, 0], [0, 0]])
    errors = errors.abs() if loss == "mae" else errors.square()
    total = found.loss(outputs, labels, 0.5)
    torch.testing.assert_close(total, 0.5 * (errors[0].mean() + errors[1, 0]))
    total.backward()
    assert torch.isfinite(outputs.grad).all()
    assert not outputs.grad[labels.isnan()].any()
    torch.testing.assert_close(found.answer(torch.tensor([[0.0, -1.0]])), torch.tensor([[1995.0, 3e6]]).double())


def test_a_task_refuses_labels_that_it_does_not_read():
    with pytest.raises(ConfigError, match="multi-class cannot read the labels of data, which are regression"):
        task("regression", 2, task="multi-class")
    with pytest.raises(ConfigError, match="regression has no classes"):
        task("regression", 2, class_weights="balanced")


def test_two_tasks_of_one_class_keep_their_names(monkeypatch):
    genuine = TASKS.load
    monkeypatch.setattr(TASKS, "load", lambda _: genuine("multi-class"))
    first, second = task("multi-class"), task("multi-class", task="multi-label")
    assert (first.name, second.name) == ("multi-class", "multi-label")


@pytest.mark.parametrize(
    ("loss", "sentence"),
    [
        (None, "loss returned NoneType and not a tensor"),
        (1.0, "loss returned float and not a tensor"),
        (
            torch.ones(3, requires_grad=True),
            r"shape \[3\] and type float32 and not one real number; sum over the roots",
        ),
        (torch.tensor(3), r"shape \[\] and type int64 and not one real number"),
        (torch.tensor(1j, requires_grad=True), "type complex64 and not one real number"),
        (torch.tensor(1.0), "through which no gradient flows"),
    ],
)
def test_a_loss_that_is_no_real_number_with_a_gradient_gets_a_sentence(loss, sentence):
    with pytest.raises(ConfigError, match=f"--task multi-class: .*{sentence}"):
        task("multi-class").checked(loss)


def test_a_loss_without_a_gradient_will_do_where_none_is_wanted():
    loss = torch.tensor(1.0)
    with torch.no_grad():
        assert task("multi-class").checked(loss) is loss
