"""Initial weights of a user's module: functions of seed and parameter name, drawn as the module says."""

import math

import pytest
import torch

from leapmpi.config.sections import ModelConfig
from leapmpi.nn.model import build_model

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        {extra}
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)
        self.lazy = nn.LazyLinear(out_channels)
        self.scaled = nn.Parameter(0.01 * torch.randn(hidden_channels, hidden_channels))
        self.cut = nn.Parameter(torch.empty(hidden_channels, hidden_channels))
        self.square = nn.Parameter(torch.empty(hidden_channels, hidden_channels))
        self.padded = nn.Parameter(torch.empty(hidden_channels, hidden_channels))
        self.list = nn.ModuleList(nn.Linear(hidden_channels, hidden_channels) for _ in range(2))
        nn.init.xavier_uniform_(self.second.weight)
        nn.init.constant_(self.second.bias, 0.5)
        nn.init.trunc_normal_(self.cut, std=0.02)
        nn.init.orthogonal_(self.square)
        nn.init.normal_(self.padded)
        with torch.no_grad():
            self.padded[0] = 0

    def forward(self, x, adjs):
        for edge_index, _, (_, n_dst) in adjs:
            x = torch.relu(self.first(x))[:n_dst]
        for layer in self.list:
            x = layer(x)
        x = x @ (self.scaled + self.cut + self.square + self.padded)
        return self.second(x) + self.lazy(x)
"""
NAMED = ("first", "second", "lazy", "scaled", "list")
"""What is drawn by itself; the others are left as the constructor leaves them."""


def weights(folder, extra="", seed=1, dtype=torch.float32):
    """Those of the module with a line more in its constructor, before all others."""
    path = folder / f"net{len(extra)}.py"
    path.write_text(NET.format(extra=extra))
    model = build_model(ModelConfig(name=f"{path}:Net", hidden=16), 1, 40, 7, seed, dtype)
    return {name: each.detach() for name, each in model.named_parameters()}


def test_another_layer_leaves_the_weights_of_the_others_alone(tmp_path):
    alone = weights(tmp_path)
    torch.manual_seed(5)
    beside = weights(tmp_path, extra="self.more = nn.Linear(3, 3)")
    for name, each in alone.items():
        if name.startswith(NAMED):
            assert torch.equal(beside[name], each), name
    assert not torch.equal(beside["padded"], alone["padded"]), "the order of the constructor counts here"


def test_weights_depend_on_the_seed_and_on_nothing_before(tmp_path):
    first, state = weights(tmp_path), torch.random.get_rng_state()
    torch.rand(7)
    again = weights(tmp_path)
    assert all(torch.equal(each, again[name]) for name, each in first.items())
    other = weights(tmp_path, seed=2)
    assert not any(torch.equal(each, other[name]) for name, each in first.items() if name != "second.bias")
    assert len({tuple(each.flatten()[:4].tolist()) for each in first.values()}) == len(first)
    torch.random.set_rng_state(state)
    weights(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state), "the generator of others stays as it is"


def test_each_parameter_is_drawn_as_its_constructor_says(tmp_path):
    found = weights(tmp_path)
    assert (found["second.bias"] == 0.5).all()
    assert 0.9 < found["second.weight"].abs().max() / math.sqrt(6 / (16 + 7)) <= 1
    assert found["first.weight"].abs().max() <= 1 / math.sqrt(40)
    assert found["scaled"].std().item() == pytest.approx(0.01, rel=0.2)
    assert found["cut"].std().item() == pytest.approx(0.02, rel=0.2)
    torch.testing.assert_close(found["square"] @ found["square"].T, torch.eye(16))
    assert not found["padded"][0].any()
    assert found["padded"][1:].all()


COPIES = """
import copy
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Net(nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.first = nn.Linear(in_channels, out_channels)
        self.second = copy.deepcopy(self.first)
        self.third = nn.Linear(in_channels, out_channels)
        self.third.load_state_dict(self.first.state_dict())
        self.scaled = weight_norm(nn.Linear(in_channels, out_channels))
        self.register_buffer("before", self.first.weight.detach().clone())

    def forward(self, x, adjs):
        x = x[: adjs[-1][2][1]]
        return self.first(x) + self.second(x) + self.third(x) + self.scaled(x) + (x @ self.before.T)
"""


def test_what_is_made_of_a_parameter_still_fits_it(tmp_path):
    path = tmp_path / "copies.py"
    path.write_text(COPIES)
    module = build_model(ModelConfig(name=f"{path}:Net", hidden=4), 1, 5, 3, seed=1).module
    for each in (module.second.weight, module.third.weight, module.before):
        assert torch.equal(each, module.first.weight)
    assert torch.equal(module.second.bias, module.first.bias)
    norm, of_rows = module.scaled.parametrizations.weight.original0, module.scaled.weight.norm(dim=1, keepdim=True)
    torch.testing.assert_close(norm, module.scaled.parametrizations.weight.original1.norm(dim=1, keepdim=True))
    torch.testing.assert_close(norm, of_rows)


LAYER = """
import torch
from leapmpi.nn.aggregate import mean
from leapmpi.nn.layer import Layer


class Own(Layer):
    def __init__(self, config, number, in_dim, out_dim, last):
        super().__init__(config, number, in_dim, out_dim, last)
        self.product = torch.nn.Linear(in_dim, out_dim)

    def project(self, x):
        return self.product(x)

    def aggregate(self, block, z, key):
        return mean(block, z)
"""


def test_a_layer_of_ones_own_is_drawn_from_the_seed_too(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(LAYER)
    found = {}
    for layers, seed in ((1, 1), (2, 1), (2, 2)):
        torch.manual_seed(layers)
        model = build_model(ModelConfig(name=f"{path}:Own", hidden=4), layers, 5, 4, seed)
        found[layers, seed] = model.layers[0].product.weight.detach()
    assert torch.equal(found[1, 1], found[2, 1])
    assert not torch.equal(found[2, 1], found[2, 2])
