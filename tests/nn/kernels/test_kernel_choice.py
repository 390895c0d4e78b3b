"""How products are made off the host."""

import torch

from leapmpi.nn.kernels.kernel_choice import products_in_full


def test_products_are_made_in_full_whatever_is_set():
    matmul = torch.backends.cuda.matmul
    torch.set_float32_matmul_precision("medium")
    try:
        with products_in_full():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not matmul.allow_bf16_reduced_precision_reduction
        assert torch.get_float32_matmul_precision() == "medium"
        assert matmul.allow_bf16_reduced_precision_reduction
    finally:
        torch.set_float32_matmul_precision("highest")
