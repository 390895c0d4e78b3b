"""A layer as one step of autograd, in the light of its parts: the same bits."""

import pytest
import torch

from leapmpi.nn.layer import Layer
from leapmpi.nn.layer_forms import LayerTraits
from leapmpi.nn.models import gcn, sage
from leapmpi.nn.sum_layer import SumLayer
from leapmpi.nn.tensors import BlockTensors, Edges

WIDTH = 20


def layer_of(name, model_config, dtype, last):
    torch.manual_seed(3)
    model = {"sage": sage, "gcn": gcn}[name].build(model_config(name, hidden=24), 3, WIDTH, 6)
    layer = model.layers[2 if last else 1].to(dtype)
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter)
    return layer


def block():
    """Five destinations, one without edges; 30 sources, of which some are read by no edge and one by two."""
    counts = torch.tensor([3, 0, 5, 1, 7])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    indices = torch.randint(25, (16,)).int()
    indices[0] = indices[-1]
    return BlockTensors(1, 5, Edges(indptr, indices, 30), torch.arange(30), torch.randint(1, 9, (30,)), None)


def learned(layer, block, rows, gradient):
    """The output, and the gradients of the rows and of all weights."""
    rows = rows.clone().requires_grad_()
    layer.zero_grad()
    out = layer(block, rows)
    (out * gradient).sum().backward()
    return [out.detach(), rows.grad, *(each.grad for each in layer.parameters())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", [False, True], ids=["summed first", "projected first"])
@pytest.mark.parametrize("last", [False, True], ids=["hidden", "last"])
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_one_step_gives_the_bits_of_the_parts(name, last, first, dtype, model_config, monkeypatch, set_order):
    layer = layer_of(name, model_config, dtype, last)
    set_order(lambda layer, block, x: first)
    edges, rows = block(), torch.randn(30, layer.in_dim, dtype=dtype)
    gradient = torch.randn(5, layer.out_dim, dtype=dtype)
    assert type(layer(edges, rows).grad_fn).__name__ == "_AutogradStepBackward"
    found = learned(layer, edges, rows, gradient)

    monkeypatch.setattr(SumLayer, "forward", Layer.forward)
    for ours, parts in zip(found, learned(layer, edges, rows, gradient), strict=True):
        assert torch.equal(ours, parts)


@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_gradients_are_those_of_finite_differences(name, model_config):
    layer = layer_of(name, model_config, torch.float64, False)
    edges, rows = block(), torch.randn(30, layer.in_dim, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(edges, x), (rows,))


def test_rows_that_learn_nothing_get_no_gradient(model_config):
    layer = layer_of("sage", model_config, torch.float32, False)
    rows = torch.randn(30, layer.in_dim)
    layer(block(), rows).sum().backward()
    assert rows.grad is None
    assert all(each.grad is not None for each in layer.parameters())


class Doubled(sage.SAGELayer, traits=LayerTraits(sums_ahead=True)):
    """Keeps the contract of sums ahead with other parts."""

    def self_part(self, x_dst):
        return 2 * self.own(x_dst)


class Negative(sage.SAGELayer, traits=LayerTraits(sums_ahead=True)):
    def activation(self, h):
        return -h.relu()


class Projected(sage.SAGELayer, traits=LayerTraits(sums_ahead=True)):
    def project(self, x):
        return 3 * self.neighbour(x)


def test_a_class_that_promises_plain_sums_keeps_the_parts_of_the_base():
    with pytest.raises(TypeError, match="Other promises plain sums, but has its own activation"):

        class Other(sage.SAGELayer, traits=LayerTraits(plain_sums=True)):
            def activation(self, h):
                return -h.relu()


def test_a_sub_class_inherits_no_promise():
    class Own(sage.SAGELayer):
        pass

    assert sage.SAGELayer.traits == LayerTraits(reads_names=False, sums_ahead=True, plain_sums=True)
    assert Own.traits == LayerTraits(reads_names=True, sums_ahead=False, plain_sums=False)


@pytest.mark.parametrize("changed", [Doubled, Negative, Projected])
def test_a_layer_whose_parts_were_changed_is_made_of_its_parts(changed, model_config):
    layer = changed(model_config("sage"), 2, 24, 6, False)
    for parameter in layer.parameters():
        parameter.data = torch.rand_like(parameter)
    edges, rows = block(), torch.rand(30, 24)
    assert torch.equal(layer(edges, rows), Layer.forward(layer, edges, rows))
    plain = sage.SAGELayer(model_config("sage"), 2, 24, 6, False)
    plain.load_state_dict(layer.state_dict())
    assert not torch.equal(layer(edges, rows), plain(edges, rows))
