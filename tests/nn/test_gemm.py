"""Dense products with a fixed order of summation."""

import pytest
import torch
from torch.autograd import gradcheck

from leapmpi.nn.gemm import SumsAtSources, place_product, product, sum_of_outer
from leapmpi.nn.tensors import Edges
from leapmpi.system.worker_threads import set_threads

pytestmark = pytest.mark.compiles


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 600])
@pytest.mark.parametrize(("width", "out"), [(5, 3), (16, 16), (23, 7), (63, 40), (300, 16)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_sum_of_outer_is_the_product(rows, width, out, dtype, tolerance):
    g, x = torch.randn(rows, out, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    torch.testing.assert_close(sum_of_outer(g, x), g.T @ x, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 12, 700])
@pytest.mark.parametrize(("width", "out"), [(3, 5), (15, 3), (16, 33), (63, 64), (300, 16)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_products_of_numbered_rows_are_those_of_their_copies(rows, width, out, dtype, tolerance):
    x = torch.randn(400, width, dtype=dtype).requires_grad_()
    weight = torch.randn(out, width, dtype=dtype).requires_grad_()
    numbers = torch.randint(len(x), (rows,))
    actual = product(x, weight, numbers)
    expected = x[numbers] @ weight.t()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    gradient = torch.randn_like(expected)
    gradients = (torch.autograd.grad(each, (x, weight), gradient) for each in (actual, expected))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 12, 307])
@pytest.mark.parametrize(("width", "out"), [(64, 64), (63, 20), (16, 33), (5, 7)])
def test_products_are_placed_among_other_rows(rows, width, out, adds, threads):
    set_threads(threads)
    x, weight, numbers = torch.randn(400, width), torch.randn(out, width), torch.randint(400, (rows,))
    found, places = torch.randn(350, out), torch.randperm(350)[:rows]
    expected = found.clone()
    expected[places] = x[numbers] @ weight.t() + (expected[places] if adds else 0)
    place_product(found, places, x, weight, numbers, adds=adds)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    set_threads(1)


@pytest.mark.parametrize(("width", "out"), [(64, 64), (20, 63)])
def test_products_are_added_at_the_sources_of_some_destinations(width, out):
    x, weight, numbers = torch.randn(40, width), torch.randn(out, width), torch.randint(40, (50,))
    counts = torch.randint(4, (80,))
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    edges = Edges(indptr, torch.randint(30, (int(indptr[-1]),), dtype=torch.int32), 30)
    factors, sums, expected = torch.randn(len(edges.indices)), SumsAtSources(x, (40, out)), torch.zeros(40, out)
    # Twice: rows met before are added to. The last ten rows are those of no source.
    for first, end in ((20, 70), (10, 60)):
        chosen = slice(int(indptr[first]), int(indptr[end]))
        of_edges = (x[numbers] @ weight.t()).repeat_interleave(counts[first:end], 0) * factors[chosen, None]
        expected.index_add_(0, edges.indices[chosen], of_edges)
        sums.add(edges, slice(first, end), factors, x, weight, numbers)
    torch.testing.assert_close(sums.finish(), expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_strided_matrix_are_found():
    x, weight = torch.randn(20, 64)[:, 3:40], torch.randn(4, 80)[:, :37]
    numbers = torch.tensor([7, 7, 0, 19])
    torch.testing.assert_close(product(x, weight, numbers), x[numbers] @ weight.t(), rtol=1e-4, atol=1e-4)
    g = torch.randn(4, 9)[:, ::2]
    torch.testing.assert_close(sum_of_outer(g, x, numbers), g.t() @ x[numbers], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("out", [16, 17])
@pytest.mark.parametrize("rows", [12, 13])
def test_a_product_can_be_changed_in_place(rows, out):
    x, weight = torch.randn(rows, 9), torch.randn(out, 9, requires_grad=True)
    changed = product(x, weight).add_(1)
    torch.testing.assert_close(changed, x @ weight.t() + 1, rtol=1e-4, atol=1e-4)
    changed.sum().backward()


def test_operands_that_do_not_fit_are_refused():
    x = torch.ones(3, 8)
    refused = [
        lambda: product(x, torch.ones(16, 24)),
        lambda: product(x, torch.ones(16, 8, dtype=torch.float64)),
        lambda: product(x, torch.ones(16, 8), torch.tensor([0], dtype=torch.int32)),
        lambda: sum_of_outer(torch.ones(5, 2), x),
        lambda: sum_of_outer(torch.ones(3, 2), x, torch.tensor([0])),
    ]
    for each in refused:
        with pytest.raises(ValueError, match="do not multiply"):
            each()


def test_gradients_by_finite_differences():
    for rows in (0, 2, 10):
        x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
        assert gradcheck(product, (x, weight))
        assert gradcheck(product, (x.detach(), weight))
        assert gradcheck(product, (x, weight.detach()))
        if rows:
            assert gradcheck(product, (x, weight, torch.tensor([1, 0, 1])))


@pytest.mark.parametrize(("rows", "width", "out"), [(5000, 300, 16), (3000, 130, 128), (700, 1433, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_change_bits(rows, width, out, dtype):
    x = torch.randn(rows, width, dtype=dtype).requires_grad_()
    weight = torch.randn(out, width, dtype=dtype).requires_grad_()

    def result_and_gradients(threads):
        torch.set_num_threads(threads)
        set_threads(threads)
        result = product(x, weight)
        return [result, *torch.autograd.grad(result, (x, weight), result.detach())]

    for one, two in zip(result_and_gradients(1), result_and_gradients(2), strict=True):
        assert torch.equal(one, two)
