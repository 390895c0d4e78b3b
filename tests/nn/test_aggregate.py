"""Sums over edges against dense matrices, their gradients, and the two implementations against each other."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from leapmpi.nn.aggregate import edge_softmax, maximum, mean, total, weighted_sum
from leapmpi.nn.kernels import csr
from leapmpi.nn.tensors import BlockTensors, Edges
from leapmpi.system.worker_threads import set_threads

pytestmark = pytest.mark.compiles


def make_edges(counts, sources, seed=0):
    rng = np.random.default_rng(seed)
    indices = [np.sort(rng.choice(sources, count, replace=False)) for count in counts]
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    flat = np.concatenate([*indices, np.empty(0, np.int64)]).astype(np.int32)
    return Edges(torch.from_numpy(indptr), torch.from_numpy(flat), sources)


def random(*shape, dtype=torch.float64, grad=True, seed=1):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_(grad)


def dense(edges, weight):
    matrix = torch.zeros(len(edges.indptr) - 1, edges.sources, dtype=weight.dtype)
    for i in range(len(matrix)):
        for e in range(edges.indptr[i], edges.indptr[i + 1]):
            matrix[i, edges.indices[e]] = weight[e]
    return matrix


CASES = {
    "uneven": make_edges([3, 0, 1, 9, 4, 5, 12], 14),
    "no edges": make_edges([0, 0, 0], 5),
    "no destinations": make_edges([], 4),
    "nothing": make_edges([], 0),
}


@pytest.fixture(params=CASES)
def edges(request):
    given = CASES[request.param]
    return Edges(given.indptr, given.indices, given.sources)


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 7), (3, 6), (4, 32), (2, 130)])
def test_weighted_sum_is_the_dense_product(edges, heads, width, either_operations):
    z, weight = random(edges.sources, width), random(len(edges.indices), heads)
    slices = [dense(edges, w) @ part for w, part in zip(weight.T, z.chunk(heads, 1), strict=True)]
    expected = torch.cat(slices, 1)
    result = weighted_sum(edges, z, weight)
    torch.testing.assert_close(result, expected, rtol=1e-13, atol=1e-13)
    grad = random(*expected.shape, grad=False)
    for actual, reference in zip(
        torch.autograd.grad(result, (z, weight), grad),
        torch.autograd.grad(expected, (z, weight), grad, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(actual, reference, rtol=1e-12, atol=1e-12)


def test_gradients_by_finite_differences(edges, either_operations):
    z, weight = random(edges.sources, 6), random(len(edges.indices), 2)
    target = random(len(edges.indptr) - 1, 2)
    assert gradcheck(lambda z, w: weighted_sum(edges, z, w), (z, weight))
    assert gradcheck(lambda z, w: weighted_sum(edges, z, w), (z, weight[:, 0].detach().requires_grad_()))
    assert gradcheck(lambda s, t: edge_softmax(edges, s, t, 0.2), (random(edges.sources, 2), target))


def test_softmax_is_stable_and_sums_to_one(either_operations):
    edges = make_edges([3, 1, 9, 4], 14)
    source, target = random(14, 3, grad=False) * 1e4, random(4, 3, grad=False) * 1e4
    share = edge_softmax(edges, source, target, 0.2)
    for i in range(4):
        row = slice(int(edges.indptr[i]), int(edges.indptr[i + 1]))
        score = torch.nn.functional.leaky_relu(source[edges.indices[row].long()] + target[i], 0.2)
        torch.testing.assert_close(share[row], score.softmax(0))
    assert torch.isfinite(share).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_mean_and_its_weighted_estimate(weighted, either_operations):
    edges = make_edges([3, 0, 4], 9)
    weight = torch.tensor([2.0, 1, 3, 1, 1, 2, 6]) if weighted else None
    block = BlockTensors(0, 3, edges, torch.arange(9), torch.full((9,), 6), weight)
    z = random(9, 4)
    result = mean(block, z)
    for i in range(3):
        row = slice(int(edges.indptr[i]), int(edges.indptr[i + 1]))
        rows = z[edges.indices[row].long()]
        expected = (weight[row, None] * rows).sum(0) / 6 if weighted else rows.sum(0) / max(1, len(rows))
        torch.testing.assert_close(result[i], expected)


def block_of(edges, weight=None):
    ids = torch.arange(edges.sources)
    return BlockTensors(0, len(edges.indptr) - 1, edges, ids, torch.full_like(ids, 6), weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maximum_is_that_of_each_destination_and_its_gradient_goes_to_the_first(edges, dtype, either_operations):
    z = random(edges.sources, 5, dtype=dtype, grad=False).mul(2).round().requires_grad_()  # with ties
    result = maximum(edges, z)
    assert result.dtype == dtype
    grad = random(*result.shape, dtype=dtype, grad=False)
    expected, expected_grad = torch.zeros_like(result), torch.zeros_like(z)
    for i in range(len(result)):
        sources = edges.indices[edges.indptr[i] : edges.indptr[i + 1]].tolist()
        for f in range(5 if sources else 0):
            first = max(sources, key=lambda j, f=f: z[j, f].item())  # Python's max gives the first of equals
            expected[i, f] = z[first, f]
            expected_grad[first, f] += grad[i, f]
    assert torch.equal(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result, z, grad)[0], expected_grad)


def test_total_and_maximum_have_the_gradients_of_finite_differences(edges, either_operations):
    z, weight = random(edges.sources, 5), random(len(edges.indices), grad=False)
    assert gradcheck(lambda z: maximum(edges, z), (z,))
    assert gradcheck(lambda z: total(block_of(edges), z), (z,))
    assert gradcheck(lambda z: total(block_of(edges, weight), z), (z,))
    expected = dense(edges, weight) @ z
    torch.testing.assert_close(total(block_of(edges, weight), z), expected)


def test_maximum_passes_nan_on(either_operations):
    edges, z = make_edges([3, 2], 5), random(5, 2, grad=False)
    z[edges.indices[1], 0] = torch.nan
    assert maximum(edges, z)[0, 0].isnan()
    assert not maximum(edges, z)[0, 1].isnan()


def test_gradients_of_a_maximum_do_not_depend_on_threads():
    edges, z = make_edges([9] * 50, 20), random(20, 33, dtype=torch.float32)
    grad, seen = random(50, 33, dtype=torch.float32, grad=False), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        seen.append(torch.autograd.grad(maximum(edges, z), z, grad)[0])
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


@pytest.mark.parametrize(("heads", "width"), [(1, 5), (5, 5), (1, 128), (1, 203)])
def test_sums_run_in_edge_order_exactly(heads, width):
    edges = make_edges([3, 0, 1, 9, 4, 6, 12], 14)
    z = random(14, width, dtype=torch.float32, grad=False)
    weight = random(len(edges.indices), heads, dtype=torch.float32).detach()
    expected = torch.zeros(7, width)
    for i in range(7):
        for e in range(edges.indptr[i], edges.indptr[i + 1]):
            term = z[edges.indices[e]].double() * weight[e]
            # One head is summed by fused multiply-adds, which round once.
            added = expected[i] + (term.float() if heads > 1 else term)
            expected[i] = added.float()
    assert torch.equal(weighted_sum(edges, z, weight), expected)


def test_float32_follows_float64(either_operations):
    edges = make_edges([9] * 50, 80)
    z, weight, target = random(80, 16), random(450, 4), random(50, 4)
    for function, inputs in (
        (lambda z, w: weighted_sum(edges, z, w), (z, weight)),
        (lambda s, t: edge_softmax(edges, s, t, 0.2), (random(80, 4), target)),
    ):
        exact = function(*inputs)
        grad = random(*exact.shape, grad=False)
        single = [x.detach().float().requires_grad_() for x in inputs]
        result = function(*single)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), exact, rtol=1e-4, atol=1e-5)
        expected = torch.autograd.grad(exact, inputs, grad)
        for a, b in zip(torch.autograd.grad(result, single, grad.float()), expected, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_no_work_for_inputs_without_gradient(monkeypatch):
    edges = make_edges([3, 4], 9)
    weight = random(7, 2)
    result = weighted_sum(edges, random(9, 4, grad=False), weight)
    monkeypatch.setattr(csr, "weighted_sum", None)  # would fail if called
    result.sum().backward()
    assert weight.grad is not None
    assert "transposed" not in edges.__dict__


def test_threads_do_not_change_bits():
    edges = make_edges([7] * 300, 500)
    z, weight, target = random(500, 24), random(2100, 4), random(300, 4)

    def result_and_gradients():
        share = edge_softmax(edges, z[:, :4] * 1, target, 0.2) * weight
        out = weighted_sum(edges, z, share)
        return [out, *torch.autograd.grad(out, (z, weight, target), torch.ones_like(out))]

    set_threads(1)
    one = result_and_gradients()
    set_threads(2)
    two = result_and_gradients()
    set_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
