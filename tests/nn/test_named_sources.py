"""A layer that says that it reads no names or degrees of its sources computes the same without them; others fail."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from leapmpi.nn.layer import reads_sources
from leapmpi.nn.model import MODELS, build_model
from leapmpi.nn.models.sage import SAGELayer
from leapmpi.nn.tensors import to_tensors
from leapmpi.sampling.node_wise import NodeWiseSampler
from leapmpi.system.counter_rng import TRAIN, DrawKey

pytestmark = pytest.mark.compiles

KEY = DrawKey(TRAIN, 5, 2, 7)
WIDTH = 5
AGGREGATES = {"sage": ("mean", "max"), "film": ("sum", "mean"), "deepgcn": ("softmax", "power", "max", "sum", "mean")}
PLAIN = [name for name in MODELS.names() if not MODELS.load(name).typed]
KINDS = [(name, aggregate) for name in PLAIN for aggregate in AGGREGATES.get(name, ("",))]


@pytest.fixture(scope="module")
def blocks(random_graph):
    """Two hops, and the same with the last hop's sources unknown."""
    upper, last = NodeWiseSampler(random_graph(), (3, 2)).sample(KEY, np.arange(9))
    n_dst = last.n_dst
    assert n_dst < last.n_src
    unknown = replace(last, src_original=last.src_original[:n_dst], src_degree=last.src_degree[:n_dst])
    return [to_tensors(upper), to_tensors(last)], [to_tensors(upper), to_tensors(unknown)]


def outcome(model, blocks):
    """Logits and gradients of training."""
    features = torch.linspace(-1, 1, blocks[-1].n_src * WIDTH, dtype=torch.float64).reshape(-1, WIDTH)
    model.zero_grad()
    logits = model(blocks, features, KEY)
    (logits * torch.arange(logits.numel()).reshape(logits.shape)).sum().backward()
    return [logits.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


@pytest.mark.parametrize(("name", "aggregate"), KINDS)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_layer_reads_what_it_says(name, aggregate, layers, blocks, model_config):
    config = model_config(name, aggregate=aggregate, dropout=0.4 * (layers == 2))
    model = build_model(config, layers, WIDTH, 4, 3, torch.float64)
    whole, unknown = (each[-layers:] for each in blocks)
    wanted = outcome(model, whole)
    if reads_sources(model.layers[0]):
        with pytest.raises(RuntimeError, match="reads_names"):
            outcome(model, unknown)
        return
    for got, expected in zip(outcome(model, unknown), wanted, strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "gcn"])
def test_only_what_is_read_is_asked_for(name, model_config):
    assert not reads_sources(build_model(model_config(name), 2, WIDTH, 4, 3).layers[0])
    assert reads_sources(build_model(model_config(name, input_dropout=0.1), 2, WIDTH, 4, 3).layers[0])


@pytest.mark.parametrize("name", [name for name in PLAIN if name != "gcn"])
def test_evaluation_drops_nothing_and_so_reads_no_names_for_masks(name, blocks, model_config):
    rates = {"dropout": 0.3, "input_dropout": 0.3, "attention_dropout": 0.3}
    whole, unknown = blocks
    features = torch.linspace(-1, 1, whole[-1].n_src * WIDTH, dtype=torch.float64).reshape(-1, WIDTH)
    model = build_model(model_config(name, **rates), 2, WIDTH, 4, 3, torch.float64)
    assert torch.equal(model(unknown, features), model(whole, features))


def test_attention_dropout_reads_names_and_so_may_a_class_of_ones_own(model_config):
    assert reads_sources(build_model(model_config("gat", attention_dropout=0.1), 2, WIDTH, 4, 3).layers[0])

    class Own(SAGELayer):
        pass

    assert reads_sources(Own(model_config("sage"), 1, WIDTH, 4, last=False))
