"""All parameters and gradients in one buffer: views, copies by name, digests."""

import numpy as np
import pytest
import torch

from leapmpi.config.sections import ModelConfig
from leapmpi.errors import DataError
from leapmpi.nn.model import build_model
from leapmpi.nn.parameters import ParameterLayout, digest

pytestmark = pytest.mark.compiles


def layout_of(name="gat", seed=1, dtype=torch.float64):
    model = build_model(ModelConfig(name=name, hidden=8, norm="layer", residual=True), 2, 5, 3, seed, dtype)
    return model, ParameterLayout(model)


def test_parameters_and_gradients_are_views_of_one_buffer():
    model, layout = layout_of()
    plain = dict(layout_of()[0].named_parameters())
    assert layout.state.numel() == 2 * layout.count == 2 * sum(each.numel() for each in plain.values())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, plain[name])
    layout.values.fill_(2)
    layout.gradients.fill_(3)
    assert all((each == 2).all() and (each.grad == 3).all() for each in model.parameters())
    layout.gradients.zero_()
    sum(each.square().sum() for each in model.parameters()).backward()
    assert (layout.gradients == 4).all()
    assert (layout.state[layout.count :] == 4).all()


def test_by_name_copies_and_assign_restores():
    model, layout = layout_of()
    arrays = layout.by_name()
    assert list(arrays) == [name for name, _ in model.named_parameters()]
    before = layout.digest()
    layout.values.add_(1)
    assert layout.digest() != before
    layout.assign(arrays, "here")
    assert layout.digest() == before == digest(arrays)


def test_weights_of_another_model_are_refused():
    _, layout = layout_of()
    arrays = layout.by_name()
    with pytest.raises(DataError, match=r"runs/a: .*another model"):
        layout_of("sage")[1].assign(arrays, "runs/a")
    name = next(iter(arrays))
    arrays[name] = arrays[name][:-1]
    with pytest.raises(DataError, match=name):
        layout.assign(arrays, "runs/a")


def test_a_digest_depends_on_names_values_types_and_order():
    arrays = {"a": np.arange(4.0), "b": np.zeros(2)}
    others = [
        {"a": np.arange(4.0), "c": np.zeros(2)},
        {"a": np.arange(4.0), "b": np.array([0.0, -0.0])},
        {"a": np.arange(4.0, dtype=np.float32), "b": np.zeros(2)},
        {"b": np.zeros(2), "a": np.arange(4.0)},
    ]
    assert len({digest(each) for each in [arrays, *others]}) == 5
    assert digest({"a": np.arange(4.0, dtype=">f8"), "b": np.zeros(2)}) == digest(arrays)
