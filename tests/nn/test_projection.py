"""Dense products with a fixed order of summation."""

import pytest
import torch
from torch.autograd import gradcheck

from leapmpi.compiled import set_threads
from leapmpi.nn.projection import product, sum_of_outer


@pytest.mark.parametrize("rows", [0, 1, 255, 256, 600])
@pytest.mark.parametrize(("width", "out"), [(5, 3), (6, 16), (12, 7), (23, 40), (300, 16)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-11)])
def test_sum_of_outer_is_the_product(rows, width, out, dtype, tolerance):
    g, x = torch.randn(rows, out, dtype=dtype), torch.randn(rows, width, dtype=dtype)
    torch.testing.assert_close(sum_of_outer(g, x), g.T @ x, rtol=tolerance, atol=tolerance)


def test_gradients_by_finite_differences():
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
        set_threads(threads)
        result = product(x, weight)
        return [result, *torch.autograd.grad(result, (x, weight), result.detach())]

    for one, two in zip(everything(1), everything(2), strict=True):
        assert torch.equal(one, two)
