"""Shares computed by hand, in one step or in two, in the light of autograd."""

import pytest
import torch

from leapmpi.nn.gradient import pass_back
from leapmpi.nn.layer import Layer, finish_step, share_step, share_steps
from leapmpi.nn.models import gcn, sage
from leapmpi.nn.tensors import Edges, PartialBlock
from leapmpi.system.worker_threads import set_threads


def layer_of(name, model_config, dtype):
    torch.manual_seed(4)
    module = {"sage": sage, "gcn": gcn}[name]
    layer = module.build(model_config(name), 1, 32, 8).to(dtype).layers[0]
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter)
    return layer


def block_and_rows(dtype):
    """Four destinations, three of them at home here, one twice; 12 rows, of which not all are read."""
    counts, destinations = torch.tensor([3, 0, 5, 1]), torch.tensor([0, 2, 3])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    edges, whole = Edges(indptr, torch.randint(9, (9,)).int(), 12), torch.arange(12)
    block = PartialBlock(edges, counts + 2, counts + 4, whole, whole, (destinations, torch.tensor([7, 1, 7])))
    return block, torch.randn(12, 32, dtype=dtype)


def by_autograd(layer, block, rows, gradient):
    """Shares and the gradients of weights."""
    shares = layer.partial(block, rows, None)
    pass_back(shares, gradient)
    found = {name: each.grad.clone() for name, each in layer.named_parameters() if each.grad is not None}
    layer.zero_grad()
    return shares.detach(), found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", [False, True], ids=["summed first", "projected first"])
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_shares_of_requested_destinations_and_then_of_local_ones_are_those_of_autograd(
    name, first, dtype, model_config, set_order
):
    layer = layer_of(name, model_config, dtype)
    block, rows = block_and_rows(dtype)
    set_order(lambda layer, block, x: first)
    gradient = torch.randn(4, 8, dtype=dtype)
    expected, gradients = by_autograd(layer, block, rows, gradient)

    (requested, learn_requested), compute = share_steps(layer, block, 3, rows, None)
    local, learn_local = compute()
    learn_local(gradient[:3])
    learn_requested(gradient[3:])
    assert not requested.requires_grad
    assert not local.requires_grad
    torch.testing.assert_close(torch.cat([local, requested]), expected)
    found = {name: each.grad for name, each in layer.named_parameters() if each.grad is not None}
    assert found.keys() == gradients.keys()
    for each, gradient in gradients.items():
        torch.testing.assert_close(found[each], gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_of_summed_rows_gives_the_bits_of_autograd(dtype, model_config, set_order):
    layer = layer_of("sage", model_config, dtype)
    block, rows = block_and_rows(dtype)
    set_order(lambda layer, block, x: False)
    gradient = torch.randn(4, 8, dtype=dtype)
    expected, gradients = by_autograd(layer, block, rows, gradient)
    found, learn = share_step(layer, block, rows, None)
    learn(gradient)
    assert torch.equal(found, expected)
    for name, each in gradients.items():
        assert torch.equal(layer.get_parameter(name).grad, each)
    assert gradients.keys() >= {"own.weight", "neighbour.weight"}


def test_threads_change_no_bit_of_shares_that_are_projected_first(model_config, set_order):
    set_order(lambda layer, block, x: True)
    layer = layer_of("sage", model_config, torch.float32)
    torch.manual_seed(5)
    indptr, indices = torch.arange(0, 4001, 4), torch.randint(500, (4000,)).int()
    whole, places = torch.arange(500), torch.arange(500)
    counts = torch.full((1000,), 4)
    block = PartialBlock(Edges(indptr, indices, 500), counts, counts, whole, whole, (places, places))
    rows, gradient = torch.randn(500, 32), torch.randn(1000, 8)
    results = []
    for threads in (1, 3):
        set_threads(threads)
        (requested, learn_requested), compute = share_steps(layer, block, 600, rows, None)
        local, learn_local = compute()
        learn_local(gradient[:600])
        learn_requested(gradient[600:])
        results.append([requested, local, layer.own.weight.grad.clone(), layer.neighbour.weight.grad.clone()])
        layer.zero_grad()
    set_threads(1)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_layers_finish_in_place_with_the_bits_of_autograd(dtype, last, model_config):
    layer = layer_of("sage", model_config, dtype)
    layer.last = last
    sums, gradient = torch.randn(9, 8, dtype=dtype, requires_grad=True), torch.randn(9, 8, dtype=dtype)
    expected = layer.finish(None, sums, None)
    pass_back(expected, gradient)
    of_bias, of_sums = layer.bias.grad.clone(), sums.grad
    layer.zero_grad()

    matrix = sums.detach().clone()
    found, backward = finish_step(layer, matrix)
    assert found.data_ptr() == matrix.data_ptr()
    assert torch.equal(found, expected)
    assert torch.equal(backward(gradient), of_sums)
    assert torch.equal(layer.bias.grad, of_bias)


def test_layers_that_finish_in_their_own_way_are_left_to_autograd(model_config):
    class Doubling(Layer):
        def activation(self, h):
            return 2 * h

    matrix = torch.ones(2, 3)
    assert finish_step(Doubling(model_config("sage"), 1, 4, 3, False), matrix) is None
    assert torch.equal(matrix, torch.ones(2, 3))
