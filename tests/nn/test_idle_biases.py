"""No model has a bias that a batch normalisation takes out; weights saved with such biases keep their scores."""

import itertools

import numpy as np
import pytest
import torch

from leapmpi.dataset.graph_types import GraphTypes, Relation, VertexType, reached
from leapmpi.errors import DataError
from leapmpi.nn.model import build_model
from leapmpi.nn.norms import BatchRows, normalising
from leapmpi.nn.parameters import ParameterLayout
from leapmpi.nn.typed_schema import TypedSchema
from tests.support.typed_models import schema

pytestmark = pytest.mark.compiles

WIDTH, CLASSES, LAYERS = 5, 4, 3
KINDS = {
    "gin": {"name": "gin", "mlp_layers": 3},
    "gin of one product": {"name": "gin", "mlp_layers": 1},
    "gin max": {"name": "gin", "jumping": "max", "residual": True},
    "deepgcn": {"name": "deepgcn", "aggregate": "mean", "mlp_layers": 3},
    "deepgcn cat": {"name": "deepgcn", "aggregate": "softmax", "message_norm": True, "mlp_layers": 2, "jumping": "cat"},
    "deepgcn max": {"name": "deepgcn", "aggregate": "sum", "jumping": "max"},
    "film": {"name": "film"},
    "sage": {"name": "sage", "residual": True},
    "gatv2": {"name": "gatv2", "jumping": "cat"},
}


@pytest.fixture(scope="module")
def batch(random_graph, sampled):
    """The blocks of some roots on all their neighbours, and the features that they read."""
    graph = random_graph()
    blocks, src = sampled(graph, (-1,) * LAYERS, np.arange(0, graph.vertices, 3))
    features = np.random.default_rng(1).standard_normal((graph.vertices, WIDTH))
    return blocks, torch.from_numpy(features[src])


def build(model_config, kind, dtype=torch.float64):
    return build_model(model_config(**{"norm": "batch"} | KINDS[kind]), LAYERS, WIDTH, CLASSES, 3, dtype)


def in_training(model, blocks, features):
    """Outputs by the statistics of the batch, which are noted."""
    with normalising(model, BatchRows([None] * (LAYERS + 2), lambda numbers: numbers[None])):
        return model(blocks, features)


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_acts_in_training(kind, model_config, batch):
    model = build(model_config, kind)
    outputs = in_training(model, *batch)
    with normalising(model, BatchRows([None] * (LAYERS + 2), lambda numbers: numbers[None])):
        # Weighted, since a normalised last layer has outputs that add up to 0.
        (outputs.square() * torch.linspace(1, 2, outputs.numel()).view_as(outputs)).sum().backward()
    largest = {name: float(each.grad.abs().max()) for name, each in model.named_parameters()}
    idle = {name: each for name, each in largest.items() if each < 1e-10 * max(largest.values())}
    assert not idle


def with_idle_biases(model, kind):
    """The arrays of `model` as earlier versions saved them, with a bias before each batch normalisation."""
    rng = np.random.default_rng(4)
    arrays, missing = ParameterLayout(model).by_name(), {}
    deep = KINDS[kind]["name"] == "deepgcn"
    for name in [name for name in arrays if name.endswith("running_mean")]:
        before = name.removesuffix(".running_mean")
        if ".mlp.norms." in name:
            missing[before.replace("norms", "biases")] = bias = rng.standard_normal(arrays[name].shape)
            arrays[name] = arrays[name] + bias
    if deep:
        biases = [rng.standard_normal(KINDS[kind].get("hidden", 8)) for _ in range(LAYERS)]
        biases = [each * (f"layers.{n}.bias" not in arrays) for n, each in enumerate(biases)]
        missing |= {f"layers.{n}.bias": each for n, each in enumerate(biases) if f"layers.{n}.bias" not in arrays}
        sums = list(itertools.accumulate(biases))
        for n in range(1, LAYERS):
            arrays[f"layers.{n}.norm.running_mean"] = arrays[f"layers.{n}.norm.running_mean"] + sums[n - 1]
        of_head = np.concatenate(sums) if KINDS[kind].get("jumping") == "cat" else sums[-1]
        arrays["head.norm.running_mean"] = arrays["head.norm.running_mean"] + of_head
    return arrays | missing, missing


@pytest.mark.parametrize("kind", ["gin", "gin max", "deepgcn", "deepgcn cat", "deepgcn max"])
def test_weights_with_idle_biases_score_as_they_did(kind, model_config, batch):
    model, other = (build(model_config, kind) for _ in range(2))
    in_training(model, *batch)
    for norm in (each for each in model.modules() if hasattr(each, "move")):
        norm.move()
    saved, missing = with_idle_biases(model, kind)
    assert missing
    layout = ParameterLayout(other)
    layout.values.zero_()
    layout.assign(saved, "old.h5")
    torch.testing.assert_close(other(*batch), model(*batch), rtol=1e-12, atol=1e-12)

    # Moments of an optimizer have no share in the statistics.
    flat = torch.zeros_like(layout.values)
    layout.assign({name: each for name, each in saved.items() if "running" not in name}, "old.h5", flat)
    np.testing.assert_array_equal(layout.by_name(flat)["layers.1.norm.gain"], saved["layers.1.norm.gain"])


def test_a_bias_of_another_width_is_refused(model_config):
    model = build(model_config, "gin")
    saved, _ = with_idle_biases(model, "gin")
    saved["layers.0.mlp.biases.0"] = np.ones(3)
    with pytest.raises(DataError, match=r"old.h5: the weights belong to another model"):
        ParameterLayout(model).assign(saved, "old.h5")


def test_a_model_of_learned_rows_alone_has_a_dtype_and_no_parameters(model_config):
    types = GraphTypes((VertexType("item", 9),), (Relation("item", "likes", "item"),), "item")
    learned = TypedSchema.of(types, reached(types, [0], 1), np.array([8]))
    model = build_model(model_config("embedding"), 1, 8, 8, 3, torch.float64, schema=learned)
    layout = ParameterLayout(model)
    assert model.dtype == layout.state.dtype == torch.float64
    assert layout.count == 0
    assert layout.by_name() == {}
    layout.assign({"layers.0.bias": np.zeros((0, 8))}, "old.h5")
    layout.assign({}, "new.h5", torch.empty_like(layout.values))


def test_an_embedding_saved_with_a_bias_of_no_numbers_is_read(model_config):
    model = build_model(model_config("embedding"), 1, 8, 8, 3, torch.float64, schema=schema(1))
    layout = ParameterLayout(model)
    arrays = layout.by_name()
    assert model.dtype == torch.float64
    assert all(each.size for each in arrays.values())
    layout.values.zero_()
    layout.assign(arrays | {"layers.0.bias": np.zeros((0, 8))}, "old.h5")
    assert all(np.array_equal(each, arrays[name]) for name, each in layout.by_name().items())
    with pytest.raises(DataError, match=r"old.h5: the weights belong to another model"):
        layout.assign(arrays | {"layers.0.bias": np.zeros((1, 8))}, "old.h5")
