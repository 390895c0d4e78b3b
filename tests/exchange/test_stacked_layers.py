"""First layers of several models over the same sums: one product gives what each would compute by itself."""

from types import SimpleNamespace

import pytest
import torch

from leapmpi.config.schema import Config
from leapmpi.config.sections import ModelConfig
from leapmpi.errors import ConfigError
from leapmpi.exchange.modes.raw import Raw
from leapmpi.exchange.modes.sums import Sums
from leapmpi.exchange.raw_sums import read_the_same_sums, stacked_from_sums, stacks
from leapmpi.exchange.selection import leading_model, modes_for
from leapmpi.nn.model import build_model
from leapmpi.nn.tensors import BlockTensors, Edges

ROWS = SimpleNamespace(sparse=False, returned_row_bytes=0)


def models(*settings, hops=2):
    return [
        build_model(ModelConfig(**{"dropout": 0.0, **each}), hops, 20, 3, seed=n, dtype=torch.float64)
        for n, each in enumerate(settings)
    ]


def layers(*settings, hops=2):
    return [model.layers[0] for model in models(*settings, hops=hops)]


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize(
    ("hops", "special"),
    [(2, {}), (2, {"residual": True}), (1, {}), (1, {"jumping": "cat"})],
    ids=["hidden", "residual", "last", "some last"],
)
def test_outputs_and_gradients_are_those_of_each_layer(name, hops, special):
    settings = [{"name": name, "hidden": hidden} for hidden in (4, 20, 7)]
    chosen = layers(*settings[:2], settings[2] | special, hops=hops)
    random = torch.Generator().manual_seed(0)
    sums, own = (torch.randn(30, 20, generator=random, dtype=torch.float64) for _ in range(2))
    found = {}
    for how in ("apart", "stacked"):
        for layer in chosen:
            layer.zero_grad()
        given = [layer.sums.output(sums, own) for layer in chosen]
        outputs = given if how == "apart" else stacked_from_sums(chosen, sums, own)
        torch.autograd.backward([output.square().sum() for output in outputs])
        found[how] = [*outputs, *(each.grad for layer in chosen for each in layer.parameters())]
    for got, wanted in zip(found["stacked"], found["apart"], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_sums_are_shared_by_layers_that_add_up_alike():
    assert read_the_same_sums(layers({"hidden": 4}, {"hidden": 9, "residual": True}))
    assert not read_the_same_sums(layers({"name": "gcn"}, {"name": "sage"}))
    assert not read_the_same_sums(layers({}, {"input_dropout": 0.5}))
    assert not read_the_same_sums(layers({"name": "gin"}, {"name": "gin", "options": ("learn-scalars=yes",)}))
    assert read_the_same_sums(layers({"name": "gin"}, {"name": "gin", "hidden": 7}))
    assert not stacks(layers({"name": "gin"}, {"name": "gin", "hidden": 7}))


def test_what_is_fetched_is_what_the_most_needy_model_reads():
    assert leading_model(models({"name": "gcn", "hidden": 64}, {"name": "gcn", "residual": True})) == 1
    assert leading_model(models({"hidden": 4}, {"hidden": 64}, {"hidden": 16})) == 1


def test_sums_that_do_not_serve_all_models_are_refused_in_a_sentence():
    varied, asked = models({"name": "gcn"}, {"name": "sage"}), Config.from_values({"strategy.remote": "sums"})
    assert modes_for(varied, ROWS, Config()) == ["raw"]
    with pytest.raises(ConfigError, match="sums cannot serve these models together"):
        modes_for(varied, ROWS, asked)
    assert modes_for(models({}, {"hidden": 5}), ROWS, Config()) == ["sums", "raw"]


@pytest.mark.parametrize(("mode", "kept"), [(Raw, [None, {}]), (Sums, [None])])
def test_only_the_first_layers_block_keeps_sums_for_all_models(mode, kept):
    edges, names = Edges(torch.tensor([0, 1]), torch.tensor([0], dtype=torch.int32), 1), torch.arange(1)
    blocks = [BlockTensors(hop, 1, edges, names, names, None) for hop in range(2)]
    ctx = SimpleNamespace(device=torch.device("cpu"), model=SimpleNamespace(layers=[None, None]))
    micro_batch = SimpleNamespace(on_device=lambda device, count: blocks[:count])
    mode(ctx).share_among_models(micro_batch)
    assert [each.sums for each in micro_batch.tensors] == kept
