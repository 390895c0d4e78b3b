"""Whether tensors are served by the kernels of the host, or by torch operations, as on a GPU.

`--device stand-in` tries the GPU's way on the CPU: same code, same choices, tensors in host memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_stands_in = False


def on_host(device: torch.device) -> bool:
    """Whether what lies on `device` is the host's: on the CPU, unless it stands in for a GPU."""
    return device.type == "cpu" and not _stands_in


def stand_in(setting: bool) -> None:
    """From now on the CPU stands in for a GPU, or no longer."""
    global _stands_in
    _stands_in = setting


@contextmanager
def standing_in() -> Iterator[torch.device]:
    """While the body runs the CPU, which is given, stands in for a GPU."""
    before = _stands_in
    stand_in(True)
    try:
        yield torch.device("cpu")
    finally:
        stand_in(before)
