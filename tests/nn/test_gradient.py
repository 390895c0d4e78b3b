"""Backward from values whose gradient is given."""

import pytest
import torch

from leapmpi.nn.gradient import pass_back


def weight_gradient(back, gradient):
    weight = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
    values = torch.tanh(torch.arange(6.0).view(2, 3) @ weight)
    back(values, gradient)
    return weight.grad


def test_leaves_get_the_gradient_that_torch_gives_them():
    gradient = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(weight_gradient(pass_back, gradient), weight_gradient(torch.Tensor.backward, gradient))


def test_no_rows_give_no_gradient():
    weight = torch.ones(3, 4, requires_grad=True)
    pass_back(torch.ones(0, 3) @ weight, torch.ones(0, 4))
    assert torch.equal(weight.grad, torch.zeros(3, 4))


def test_another_shape_and_values_that_depend_on_nothing_are_refused():
    with pytest.raises(RuntimeError, match="shape"):
        weight_gradient(pass_back, torch.ones(2, 5))
    with pytest.raises(RuntimeError, match="does not require grad"):
        pass_back(torch.ones(2), torch.ones(2))
