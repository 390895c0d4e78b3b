"""The way of arrays on a device: handed to MPI as they are (CUDA-aware MPI), or staged through pinned host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, cast

from leapmpi.comm import mpi_buffers
from leapmpi.system import channels

if TYPE_CHECKING:
    import torch

    from leapmpi.comm.mpi_buffers import Array


class StagingBuffers:
    """Buffers of one communicator, by channel and by what they are used for, kept between calls."""

    def __init__(self, direct: bool) -> None:
        """Prepare staging; `direct`: MPI takes device memory as it is."""
        self.direct = direct
        self._kept: tuple[dict[str, Array], ...] = tuple({} for _ in channels.CHANNELS)
        self._kept_pinned: tuple[dict[str, torch.Tensor], ...] = tuple({} for _ in channels.CHANNELS)

    def stages(self, array: Array) -> TypeGuard[torch.Tensor]:
        """Return whether `array` travels through host memory: it is on a device and MPI is not CUDA-aware."""
        return mpi_buffers.on_device(array) and not self.direct

    def outgoing(self, use: str, array: Array) -> Array:
        """Return the buffer to send for `array`, once its computation is done: `array`, or a copy in host memory."""
        place = self.incoming(use, array)
        if self.stages(array):
            # `incoming` gave a pinned tensor for it.
            cast("torch.Tensor", place).copy_(array)
        return place

    def incoming(self, use: str, array: Array) -> Array:
        """Return the buffer to receive for `array`: `array`, or host memory, from which `deliver` copies."""
        if self.stages(array):
            return self._pinned(use, array)
        mpi_buffers.synchronise(array)
        return array

    def deliver(self, arrived: Array, array: Array) -> None:
        """Fill `array` with what `incoming` gave for it, now that MPI has received."""
        if self.stages(array):
            array.copy_(cast("torch.Tensor", arrived))

    def scratch(self, use: str, like: Array, *shape: int) -> Array:
        """Return a buffer of `shape`, of the kind and type of `like`, kept between calls of the same shape."""
        buffers = self._kept[channels.current()]
        kept = buffers.get(use)
        if kept is None or tuple(kept.shape) != shape or kept.dtype != like.dtype:
            kept = buffers[use] = mpi_buffers.empty_like(like, *shape)
        return kept

    def _pinned(self, use: str, like: torch.Tensor) -> torch.Tensor:
        """Return a pinned host tensor of the shape and type of device tensor `like`; its memory is kept and grows."""
        import torch

        size = like.numel() * like.element_size()
        # Pinning takes long, so memory is kept, by channel, as channels send at the same time.
        buffers = self._kept_pinned[channels.current()]
        kept = buffers.get(use)
        if kept is None or kept.numel() < size:
            kept = torch.empty(max(size, 1), dtype=torch.uint8, pin_memory=torch.cuda.is_available())
            buffers[use] = kept
        return kept[:size].view(like.dtype).view(like.shape)
