"""Feature rows in fewer bytes for the wire: float16, bfloat16, or int8 with a scale per row.

Lossy, so off unless asked for; how far the rows that were sent are off is counted as they are encoded. Finite values
beyond float16 or bfloat16 become the largest one of their sign; a row with a value that is not finite arrives as NaN
from int8. The compiled forms gather and encode, or decode and place, in one go; the torch forms, for other devices,
give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.features import compression_kernels as kernels

if TYPE_CHECKING:
    from leapmpi.features.shard import HostShard


@dataclass
class RowErrors:
    """How far rows that were sent are off: relative errors (norm of the difference over the norm of the row)."""

    rows: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, rows: int, total: float, largest: float) -> None:
        """Count `rows` more, with the sum and the largest of their errors."""
        self.rows, self.total, self.largest = self.rows + rows, self.total + total, max(self.largest, largest)

    def take(self) -> RowErrors:
        """What was counted so far; counting starts again at zero."""
        taken = RowErrors(self.rows, self.total, self.largest)
        self.rows, self.total, self.largest = 0, 0.0, 0.0
        return taken


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

    def encode(self, shard: HostShard, ids: np.ndarray, out: np.ndarray, errors: RowErrors) -> np.ndarray:
        """The rows of `ids` (int64, all in `shard`), encoded in `out` (uint8[len(ids), row_bytes]); counts errors."""
        values = np.empty(shard.width, np.float32)
        for part, first, chosen, positions in shard.split(ids):
            if part.dtype != np.float32:
                part, chosen, first = part[chosen - first].astype(np.float32), np.arange(len(chosen)), 0
            errors.add(len(chosen), *self._encode(part, chosen, first, out, positions, values))
        return out

    def decode(self, encoded: np.ndarray, target: np.ndarray, positions: np.ndarray) -> None:
        """target[positions[i]] = row i of `encoded`."""
        self._decode(encoded, target, positions, np.empty(target.shape[1], np.float32))

    def encode_tensor(self, rows: Any, errors: RowErrors) -> Any:
        """The rows of a float tensor on any device, encoded there; counts errors."""
        exact = rows.float()
        encoded = self._encode_tensor(exact)
        errors.add(len(rows), *_errors_of(exact, self._decode_tensor(encoded)))
        return encoded

    def decode_tensor(self, encoded: Any) -> Any:
        """The float32 rows of what `encode_tensor` or `encode` made, on its device."""
        return self._decode_tensor(encoded)


def _errors_of(exact: Any, decoded: Any) -> tuple[float, float]:
    if not len(exact):
        return 0.0, 0.0
    whole = exact.double().norm(dim=1)
    errors = ((decoded.double() - exact.double()).norm(dim=1) / whole).where(whole > 0, whole)
    return float(errors.sum()), float(errors.max())


def _words(brain: bool) -> tuple[Callable, Callable]:
    """Encoder and decoder of a 16-bit float type: bfloat16 if `brain`, else float16."""

    def encode(source, rows, first, out, positions, values):
        bits, words = source.view(np.uint32), out.view(np.uint16)
        return kernels.encode_words(source, bits, rows, first, words, positions, values, brain)

    def decode(encoded, target, positions, values):
        kernels.decode_words(encoded.view(np.uint16), target, positions, values, brain)

    return encode, decode


def _steps(source, rows, first, out, positions, values):
    scales, steps = out[:, :4].view(np.float32), out[:, 4:].view(np.int8)
    return kernels.encode_steps(source, rows, first, steps, scales, positions, values)


def _decode_bytes_of_steps(encoded, *rest):
    kernels.decode_steps(encoded[:, 4:].view(np.int8), encoded[:, :4].view(np.float32), *rest)


def _narrowed(name: str) -> tuple[Callable, Callable]:
    """Torch forms of a 16-bit float type."""

    def encode(rows: Any) -> Any:
        import torch

        dtype = getattr(torch, name)
        largest = torch.finfo(dtype).max
        return rows.where(rows.isinf(), rows.clamp(-largest, largest)).to(dtype).view(torch.uint8)

    def decode(encoded: Any) -> Any:
        import torch

        return encoded.view(getattr(torch, name)).float()

    return encode, decode


def _encode_steps_tensor(rows: Any) -> Any:
    import torch

    largest = rows.abs().amax(dim=1, keepdim=True) if rows.shape[1] else rows.new_zeros((len(rows), 1))
    scale = (largest / 127).where(largest.isfinite(), torch.nan)
    steps = (rows / scale).round().where(scale > 0, torch.zeros_like(rows)).to(torch.int8)
    heads = torch.empty_like(scale, memory_format=torch.contiguous_format)
    return torch.cat([heads.copy_(scale).view(torch.uint8), steps.view(torch.uint8)], dim=1)


def _decode_steps_tensor(encoded: Any) -> Any:
    import torch

    # A copy: torch views bytes as floats only in rows of whole floats.
    heads = torch.empty((len(encoded), 4), dtype=torch.uint8, device=encoded.device)
    scale = heads.copy_(encoded[:, :4]).view(torch.float32)
    return encoded[:, 4:].view(torch.int8).float() * scale


ENCODINGS = {
    "float16": RowEncoding("float16", 0, 2, *_words(brain=False), *_narrowed("float16")),
    "bfloat16": RowEncoding("bfloat16", 0, 2, *_words(brain=True), *_narrowed("bfloat16")),
    "int8": RowEncoding(
        "int8", 4, 1, _steps, _decode_bytes_of_steps, _encode_steps_tensor, _decode_steps_tensor
    ),
}  # fmt: skip


def encoding_for(name: str, dtype: Any) -> RowEncoding | None:
    """The encoding called `name` for rows that are `dtype` at rest; None when they travel as they are.

    Rows at rest in 16 bits gain nothing from another 16-bit type.
    """
    if name == "native" or (np.dtype(dtype).itemsize <= 2 and ENCODINGS[name].each == 2):
        return None
    return ENCODINGS[name]
