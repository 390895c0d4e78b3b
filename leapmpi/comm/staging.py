"""Memory through which messages pass, kept between calls: each lane has its own."""

from __future__ import annotations

from typing import Any

from leapmpi.comm import mpi_buffers
from leapmpi.system import channels


class StagingBuffers:
    """Buffers by what they are used for."""

    def __init__(self) -> None:
        self._kept: tuple[dict[str, Any], ...] = tuple({} for _ in channels.LANES)

    def scratch(self, use: str, like: Any, *shape: int) -> Any:
        """A buffer of the kind and type of `like`, kept between calls of the same shape."""
        of_lane = self._kept[channels.current()]
        kept = of_lane.get(use)
        if kept is None or tuple(kept.shape) != shape or kept.dtype != like.dtype:
            kept = of_lane[use] = mpi_buffers.empty_like(like, *shape)
        return kept

    def pinned(self, use: str, like: Any) -> Any:
        """A pinned host tensor of the shape and type of device tensor `like`; its memory is kept and grows."""
        import torch

        key, wanted = f"pinned-{use}", like.numel() * like.element_size()
        of_lane = self._kept[channels.current()]
        kept = of_lane.get(key)
        if kept is None or kept.numel() < wanted:
            kept = torch.empty(max(wanted, 1), dtype=torch.uint8, pin_memory=torch.cuda.is_available())
            of_lane[key] = kept
        return kept[:wanted].view(like.dtype).view(like.shape)
