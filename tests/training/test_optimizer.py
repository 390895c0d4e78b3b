"""The optimizer on flat parameters: the same steps as torch's on separate tensors; rates over time; clipping."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from leapmpi.config.sections import TrainConfig
from leapmpi.nn.kernels.kernel_choice import standing_in
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.training.optimizer import Optimizer, learning_rate


def model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2)).double()


TORCH = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.02, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, weight_decay=0.1, momentum=0.8),
}


@pytest.mark.parametrize("place", [nullcontext, standing_in], ids=["host", "device"])
@pytest.mark.parametrize("name", TORCH)
def test_flat_steps_are_those_of_torch_on_separate_tensors(name, place):
    with place():
        take_steps(name)


def take_steps(name):
    """Take some, and compare the parameters with those that torch's optimizer of that name moves."""
    flat, plain = model(), model()
    layout = ParameterLayout(flat)
    optimizer = Optimizer(TrainConfig(optimizer=name, lr=0.02, weight_decay=0.1, momentum=0.8), layout, 5)
    reference = TORCH[name](plain.parameters())
    inputs = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for iteration in range(12):
        layout.gradients.zero_()
        reference.zero_grad()
        for each in (flat, plain):
            each(inputs * (iteration + 1)).square().sum().backward()
        optimizer.step(iteration)
        reference.step()
    for mine, theirs in zip(flat.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-14)
        assert not torch.equal(mine, next(iter(model().parameters())))


@pytest.mark.parametrize(("limit", "expected"), [(0.0, 5.0), (10.0, 5.0), (2.0, 2.0)])
def test_gradients_are_clipped_by_the_norm_of_all(limit, expected):
    layout = ParameterLayout(model())
    before = layout.values.clone()
    layout.gradients.zero_()
    layout.gradients[[0, 20]] = torch.tensor([3.0, -4.0], dtype=torch.float64)
    optimizer = Optimizer(TrainConfig(optimizer="sgd", lr=1.0, clip_norm=limit), layout, 1)
    assert layout.gradient_norm() == pytest.approx(5.0)
    optimizer.step(0)
    step = before - layout.values
    assert torch.linalg.vector_norm(step) == pytest.approx(expected)
    assert step[0] / step[20] == pytest.approx(-0.75)


def rates(**settings):
    config = TrainConfig(lr=0.5, **settings)
    return np.array([learning_rate(config, iteration, 10) for iteration in range(config.epochs * 10)])


def test_a_constant_rate():
    assert (rates(epochs=2) == 0.5).all()


def test_warm_up_rises_evenly_to_the_rate_and_stays():
    found = rates(epochs=3, warmup_epochs=1.5)
    np.testing.assert_allclose(np.diff(found[:16]), 0.5 / 16)
    assert found[0] > 0
    assert (found[15:] == 0.5).all()


def test_a_cosine_falls_from_the_rate_to_almost_zero():
    found = rates(epochs=3, lr_schedule="cosine")
    np.testing.assert_allclose(found, [0.25 * (1 + math.cos(math.pi * i / 30)) for i in range(30)])
    assert found[0] == 0.5
    assert 0 < found[-1] < 0.01


def test_a_cosine_starts_where_the_warm_up_ends():
    found = rates(epochs=4, lr_schedule="cosine", warmup_epochs=1)
    assert found.argmax() == 10
    assert found[10] == 0.5
    assert (np.diff(found[:11]) > 0).all()
    assert (np.diff(found[10:]) < 0).all()


def test_a_warm_up_longer_than_the_run_never_reaches_the_rate():
    found = rates(epochs=1, lr_schedule="cosine", warmup_epochs=3)
    assert (np.diff(found) > 0).all()
    assert found[-1] < 0.5


def test_the_last_rate_is_kept_for_the_record():
    optimizer = Optimizer(TrainConfig(lr=0.5, warmup_epochs=1), ParameterLayout(model()), 4)
    optimizer.step(1)
    assert optimizer.last_rate == learning_rate(optimizer.config, 1, 4)
