"""Lossy compression of feature rows that are sent: float16, bfloat16, or int8 with a scale per row.

The errors of the rows that are sent are measured while they are encoded. Finite values beyond the range of float16 or
bfloat16 become the largest one of their sign. A row with a value that is not finite arrives as NaN from int8. The
compiled forms gather and encode, or decode and place, in one pass; the torch forms, for GPUs, give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from leapmpi.features import compression_kernels as kernels

if TYPE_CHECKING:
    import torch


class RowSource(Protocol):
    """Rows in host memory, by global vertex id: a HostShard."""

    @property
    def width(self) -> int:
        """Values of a row."""
        ...

    def split(self, ids: np.ndarray) -> Iterator[tuple[np.ndarray, int, np.ndarray, np.ndarray]]:
        """The array, its first id, the ids in it and their positions in `ids`, for each array that `ids` touch."""


@dataclass
class RowErrors:
    """Relative errors of rows that were sent: the norm of the difference over the norm of the row."""

    rows: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, rows: int, total: float, largest: float) -> None:
        """Count `rows` more, with the sum and the largest of their errors."""
        self.rows += rows
        self.total += total
        self.largest = max(self.largest, largest)

    def take(self) -> RowErrors:
        """What was counted so far; counting starts again at zero."""
        counted = RowErrors(self.rows, self.total, self.largest)
        self.rows = 0
        self.total = self.largest = 0.0
        return counted


@dataclass(frozen=True)
class RowEncoding:
    """One way to write float32 rows as bytes. `head` bytes precede the values of a row, which take `each` bytes.

    Encoded rows are uint8[rows, row_bytes(width)].
    """

    name: str
    head: int
    each: int
    _encode: Callable
    _decode: Callable
    _encode_tensor: Callable
    _decode_tensor: Callable

    def row_bytes(self, width: int) -> int:
        """Bytes of an encoded row of `width` values."""
        return self.head + self.each * width

    def encode(self, shard: RowSource, ids: np.ndarray, out: np.ndarray, errors: RowErrors) -> np.ndarray:
        """The rows of `ids` (int64, all in `shard`), encoded in `out` (uint8[len(ids), row_bytes]); counts errors."""
        values = np.empty(shard.width, np.float32)
        for part, first, chosen, positions in shard.split(ids):
            # The kernels read float32: copy rows of other types first.
            if part.dtype != np.float32:
                part = part[chosen - first].astype(np.float32)
                chosen, first = np.arange(len(chosen)), 0
            errors.add(len(chosen), *self._encode(part, chosen, first, out, positions, values))
        return out

    def decode(self, encoded: np.ndarray, target: np.ndarray, positions: np.ndarray) -> None:
        """target[positions[i]] = row i of `encoded`."""
        self._decode(encoded, target, positions, np.empty(target.shape[1], np.float32))

    def encode_tensor(self, rows: torch.Tensor, errors: RowErrors) -> torch.Tensor:
        """The rows of a float tensor on any device, encoded there; counts errors."""
        exact = rows.float()
        encoded = self._encode_tensor(exact)
        errors.add(len(rows), *_errors_of(exact, self._decode_tensor(encoded)))
        return encoded

    def decode_tensor(self, encoded: torch.Tensor) -> torch.Tensor:
        """The float32 rows of what `encode_tensor` or `encode` returned, on its device."""
        return self._decode_tensor(encoded)


def _errors_of(exact: torch.Tensor, decoded: torch.Tensor) -> tuple[float, float]:
    """The sum and the largest of the relative errors of rows; 0 for a row of zeros."""
    if not len(exact):
        return 0.0, 0.0
    whole = exact.double().norm(dim=1)
    errors = ((decoded.double() - exact.double()).norm(dim=1) / whole).where(whole > 0, whole)
    return float(errors.sum()), float(errors.max())


def _float16_codec(brain: bool) -> tuple[Callable, Callable]:
    """Encoder and decoder of a 16-bit float type: bfloat16 if `brain`, else float16."""

    def encode(source, rows, first, out, positions, values):
        bits, words = source.view(np.uint32), out.view(np.uint16)
        return kernels.encode_16_bit(source, bits, rows, first, words, positions, values, brain)

    def decode(encoded, target, positions, values):
        kernels.decode_16_bit(encoded.view(np.uint16), target, positions, values, brain)

    return encode, decode


def _encode_int8(source, rows, first, out, positions, values):
    # A row is its scale (float32), then its values in multiples of the scale.
    scales, steps = out[:, :4].view(np.float32), out[:, 4:].view(np.int8)
    return kernels.encode_int8(source, rows, first, steps, scales, positions, values)


def _decode_int8(encoded, *rest):
    kernels.decode_int8(encoded[:, 4:].view(np.int8), encoded[:, :4].view(np.float32), *rest)


def _float16_torch_codec(name: str) -> tuple[Callable, Callable]:
    """Torch forms of a 16-bit float type."""

    def encode(rows: torch.Tensor) -> torch.Tensor:
        import torch

        # Finite values stay finite; infinite ones stay infinite.
        dtype = getattr(torch, name)
        largest = torch.finfo(dtype).max
        return rows.where(rows.isinf(), rows.clamp(-largest, largest)).to(dtype).view(torch.uint8)

    def decode(encoded: torch.Tensor) -> torch.Tensor:
        import torch

        return encoded.view(getattr(torch, name)).float()

    return encode, decode


def _encode_int8_tensor(rows: torch.Tensor) -> torch.Tensor:
    import torch

    largest = rows.abs().amax(dim=1, keepdim=True) if rows.shape[1] else rows.new_zeros((len(rows), 1))
    scale = (largest / 127).where(largest.isfinite(), torch.nan)
    steps = (rows / scale).round().where(scale > 0, torch.zeros_like(rows)).to(torch.int8)
    heads = torch.empty_like(scale, memory_format=torch.contiguous_format)
    return torch.cat([heads.copy_(scale).view(torch.uint8), steps.view(torch.uint8)], dim=1)


def _decode_int8_tensor(encoded: torch.Tensor) -> torch.Tensor:
    import torch

    # A copy: torch views bytes as floats only in rows of whole floats.
    heads = torch.empty((len(encoded), 4), dtype=torch.uint8, device=encoded.device)
    scale = heads.copy_(encoded[:, :4]).view(torch.float32)
    return encoded[:, 4:].view(torch.int8).float() * scale


ENCODINGS = {
    "float16": RowEncoding("float16", 0, 2, *_float16_codec(brain=False), *_float16_torch_codec("float16")),
    "bfloat16": RowEncoding("bfloat16", 0, 2, *_float16_codec(brain=True), *_float16_torch_codec("bfloat16")),
    "int8": RowEncoding(
        "int8", 4, 1, _encode_int8, _decode_int8, _encode_int8_tensor, _decode_int8_tensor
    ),
}  # fmt: skip


def encoding_for(name: str, dtype: np.dtype | str) -> RowEncoding | None:
    """The encoding called `name` for rows stored as `dtype`; None when they are sent in the stored type.

    Rows stored in 16 bits gain nothing from another 16-bit type.
    """
    if name == "native" or (np.dtype(dtype).itemsize <= 2 and ENCODINGS[name].each == 2):
        return None
    return ENCODINGS[name]
