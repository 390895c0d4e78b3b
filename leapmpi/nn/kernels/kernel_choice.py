"""The choice between kernels of the host and torch operations, as on a GPU; and products there.

`--device stand-in` tries the GPU's way on the CPU: same code, same choices, tensors in host memory. With `--dtype`
products of rows and weights off the host read both in fewer bits. Sums, gradients of weights, and the weights that the
optimizer moves stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_stands_in = False
_product_dtype: torch.dtype | None = None


def on_host(device: torch.device) -> bool:
    """Return whether host kernels serve `device`: the CPU, unless it stands in for a GPU."""
    return device.type == "cpu" and not _stands_in


def set_stand_in(setting: bool) -> None:
    """Set whether the CPU stands in for a GPU from now on."""
    global _stands_in
    _stands_in = setting


def autocast(dtype: str) -> None:
    """Set whether `matmul` reads its operands as bfloat16, if `dtype` says so, or unchanged."""
    global _product_dtype
    _product_dtype = torch.bfloat16 if dtype == "bfloat16" else None


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute a @ b of tensors off the host: float[n, k] @ float[k, m], in their dtype."""
    if _product_dtype is None:
        return a @ b
    return (a.to(_product_dtype) @ b.to(_product_dtype)).to(a.dtype)


def plus_matmul(total: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute total + a @ b for tensors off the host, in the place of `total` unless that is a bias of one row."""
    # With a bias of one row, addmm looks for an algorithm at each new shape: 0.7 ms of an H100's host, mm 0.1 ms.
    if total.dim() == 1:
        return matmul(a, b).add_(total)
    return total.addmm_(a, b) if _product_dtype is None else total.add_(matmul(a, b))


@contextmanager
def products_in_full() -> Iterator[None]:
    """Let torch multiply float32 in float32, and add up products of bfloat16 in float32, while the body runs.

    On a GPU it may be set, or built, to take fewer bits for both.
    """
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision(), matmul.allow_bf16_reduced_precision_reduction
    torch.set_float32_matmul_precision("highest")
    matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        matmul.allow_bf16_reduced_precision_reduction = before[1]


@contextmanager
def standing_in() -> Iterator[torch.device]:
    """Let the CPU, which is yielded, stand in for a GPU while the body runs."""
    before = _stands_in
    set_stand_in(True)
    try:
        yield torch.device("cpu")
    finally:
        set_stand_in(before)
