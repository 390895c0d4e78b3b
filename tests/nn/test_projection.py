"""Dense products with a fixed order of summation."""

import pytest
import torch
from torch.autograd import gradcheck

from leapmpi.nn import projection
from leapmpi.nn.projection import PIECE, product, sum_of_outer


@pytest.mark.parametrize("rows", [0, 1, PIECE - 1, PIECE, 3 * PIECE + 7, 17 * PIECE + 1])
def test_sum_of_outer_is_the_product(rows):
    g, x = torch.randn(rows, 3, dtype=torch.float64), torch.randn(rows, 5, dtype=torch.float64)
    torch.testing.assert_close(sum_of_outer(g, x), g.T @ x, rtol=1e-11, atol=1e-11)


def test_gradients_by_finite_differences(monkeypatch):
    monkeypatch.setattr(projection, "PIECE", 3)
    for rows in (0, 2, 10):
        x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
        assert gradcheck(product, (x, weight))
        assert gradcheck(product, (x.detach(), weight))
        assert gradcheck(product, (x, weight.detach()))


@pytest.mark.parametrize(("rows", "width", "out"), [(5000, 300, 16), (3000, 130, 128), (700, 1433, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_threads_do_not_change_bits(rows, width, out, dtype):
    x = torch.randn(rows, width, dtype=dtype).requires_grad_()
    weight = torch.randn(out, width, dtype=dtype).requires_grad_()

    def everything(threads):
        torch.set_num_threads(threads)
        result = product(x, weight)
        return [result, *torch.autograd.grad(result, (x, weight), result.detach())]

    for one, two in zip(everything(1), everything(2), strict=True):
        assert torch.equal(one, two)
