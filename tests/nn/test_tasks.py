"""Tasks: weighted sums of losses over roots."""

import pytest
import torch
import torch.nn.functional as F

from tests.support.tasks import weighted_loss


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
