"""Choice of Triton's kernels on a device, where the package is installed and results equal torch's; and their launch.

Triton comes with a torch for CUDA. With TRITON_INTERPRET=1 its interpreter runs kernels on the CPU, for tests.
LEAPMPI_TRITON=off disables them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

log = logging.getLogger("leapmpi")

_proven: dict[tuple[str, torch.device], bool] = {}
"""By kernel and device, whether its trial went well."""


def offered(device: torch.device) -> bool:
    """Return whether Triton can be tried on `device`."""
    if os.environ.get("LEAPMPI_TRITON", "") == "off":
        return False
    runs_there = device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"
    return runs_there and find_spec("triton") is not None


def tried() -> dict[str, bool]:
    """Return by name the kernels that this process has tried, and whether they serve."""
    return {kernel: proven for (kernel, _), proven in _proven.items()}


def serves(kernel: str, device: torch.device, trial: Callable[[], bool]) -> bool:
    """Return whether the kernel of that name serves `device`: its `trial`, made once, agrees with torch.

    A kernel that cannot be compiled, or differs, is left aside with a warning.
    """
    if not offered(device):
        return False
    key = kernel, device
    if key not in _proven:
        why = ""
        try:
            _proven[key] = trial()
        except Exception as error:  # whatever a compiler, a driver or a missing tool may raise
            _proven[key], why = False, f" ({type(error).__name__})"
        if not _proven[key]:
            log.warning("warning: Triton's %s differ from torch's or do not run%s; torch serves", kernel, why)
    return _proven[key]


def launch(kernel: Any, grid: tuple[int, ...], *operands: torch.Tensor | int, **constants: float) -> None:
    """Queue `kernel` on the device of the first tensor among `operands`.

    Products and sums are rounded one by one, as torch rounds them. Triton's default for this differs between versions.
    """
    placed = next(each for each in operands if isinstance(each, torch.Tensor))
    # Kernels go to the device that is selected.
    with torch.cuda.device_of(placed):
        kernel[grid](*operands, **constants, enable_fp_fusion=False)
