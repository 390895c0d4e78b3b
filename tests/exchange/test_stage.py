"""Gradients that other ranks return for rows."""

import numpy as np
import pytest
import torch

from leapmpi.exchange.stage import add_by_rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_they_are_added_to_a_gradient_of_any_strides(transposed, dtype):
    torch.manual_seed(2)
    target = torch.randn(4, 9, dtype=dtype).t() if transposed else torch.randn(9, 4, dtype=dtype)
    rows, counts = torch.tensor([0, 3, 8, 0, 8]), np.array([3, 0, 2])
    values = torch.randn(5, 4, dtype=dtype)
    wanted = target.clone().index_add_(0, rows, values)
    add_by_rank(target, rows, counts, values)
    assert torch.allclose(target, wanted)
