"""Initial weights depend on seed and parameter name alone."""

import hashlib

import numpy as np
import pytest
import torch

from leapmpi.nn.model import build_model, uniform

pytestmark = pytest.mark.compiles

MODELS = ("gcn", "sage", "gat")


def weights(model):
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", MODELS)
def test_float32_is_rounded_float64(name, model_config):
    config = model_config(name, norm="layer", residual=True)
    exact = weights(build_model(config, 3, 10, 4, 1, torch.float64))
    for key, value in weights(build_model(config, 3, 10, 4, 1)).items():
        assert value.dtype == torch.float32
        assert torch.equal(value, exact[key].float())


@pytest.mark.parametrize("name", MODELS)
def test_weights_depend_on_name_and_seed_not_on_the_rest_of_the_model(name, model_config):
    small = weights(build_model(model_config(name), 2, 10, 4, 1))
    torch.manual_seed(99)
    large = weights(build_model(model_config(name, residual=True), 3, 10, 4, 1))
    for key in small:
        if key.startswith("layers.0."):
            assert torch.equal(small[key], large[key])
    other = weights(build_model(model_config(name), 2, 10, 4, 2))
    assert not torch.equal(other["layers.0.neighbour.weight"], small["layers.0.neighbour.weight"])
    assert len({tuple(w.flatten()[:4].tolist()) for k, w in small.items() if "bias" not in k}) == sum(
        "bias" not in k for k in small
    )


@pytest.mark.parametrize("name", MODELS)
def test_all_parameters_are_set_and_in_range(name, model_config):
    model = build_model(model_config(name, hidden=64, norm="layer", residual=True), 2, 100, 7, 1)
    for key, value in weights(model).items():
        if key.endswith("bias"):
            assert not value.any(), key
        elif key.endswith("gain"):
            assert (value == 1).all(), key
        else:
            assert torch.isfinite(value).all()
            assert 0 < value.abs().max() < 1.8, key
            assert value.std() > 0
    limit = np.sqrt(6 / (100 + (32 if name == "gat" else 64)))
    first = weights(model)["layers.0.neighbour.weight"]
    assert 0.98 * limit < first.abs().max() < limit
    assert abs(first.mean()) < 0.03 * limit
    assert first.std().item() == pytest.approx(limit / np.sqrt(3), rel=0.03)


def fold(base, word):
    """The hash in plain Python integers."""
    x = (base + (word + 1) * 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def test_numbers_are_hashes_of_seed_name_and_position():
    """The weights of a seed must stay the same from version to version."""
    name = "layers.0.neighbour.weight"
    digest = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    base = fold(fold(fold(0, 2**63 - 1), 0x77656967_00000000), digest)
    expected = [((fold(base, i) >> 11) / 2**52 - 1) * 0.5 for i in range(50)]
    assert uniform(2**63 - 1, name, 50, 0.5).tolist() == expected
