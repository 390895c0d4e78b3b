"""Lossy compression of feature rows that are sent: float16, bfloat16, or int8 with a scale per row.

Finite values beyond the range of float16 or bfloat16 become the largest one of their sign. A row with a value that is
not finite arrives as NaN from int8. The compiled forms gather and encode, or decode and place, in one pass; the torch
forms, for GPUs, give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from leapmpi.features import compression_kernels as kernels

RowsOfPart = tuple[np.ndarray, int, np.ndarray, np.ndarray]
"""The array of a part in host memory, its first vertex id, the ids wanted of it, and where their rows go."""


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

    Encoded rows are uint8[rows, row_bytes(width)]. A row of int8 is its scale (float32), then its values in multiples
    of the scale; the other types have no head.
    """

    name: str
    head: int
    each: int

    def row_bytes(self, width: int) -> int:
        """Bytes of an encoded row of `width` features."""
        return self.head + self.each * width

    def encode(self, pieces: Iterable[RowsOfPart], out: np.ndarray, errors: RowErrors) -> np.ndarray:
        """The rows of `pieces`, as HostShard.exact gives them, encoded in `out` (uint8[rows, row_bytes]).

        Counts errors.
        """
        for part, first, chosen, positions in pieces:
            rest = chosen, first, *self._fields(out), positions, np.empty(part.shape[1], np.float32)
            if self.head:
                lost = kernels.encode_int8(part, *rest)
            else:
                lost = kernels.encode_16_bit(part, part.view(np.uint32), *rest, self.name == "bfloat16")
            errors.add(len(chosen), *lost)
        return out

    def decode(self, encoded: np.ndarray, target: np.ndarray, positions: np.ndarray) -> None:
        """target[positions[i]] = row i of `encoded`."""
        arguments = *self._fields(encoded), target, positions, np.empty(target.shape[1], np.float32)
        if self.head:
            kernels.decode_int8(*arguments)
        else:
            kernels.decode_16_bit(*arguments, self.name == "bfloat16")

    def encode_tensor(self, rows: torch.Tensor, errors: RowErrors) -> torch.Tensor:
        """The rows of a float tensor on any device, encoded there; counts errors."""
        exact = rows.float()
        if self.head:
            encoded = _int8_tensor(exact)
        else:
            # Finite values stay finite; infinite ones stay infinite.
            dtype = getattr(torch, self.name)
            largest = torch.finfo(dtype).max
            encoded = exact.where(exact.isinf(), exact.clamp(-largest, largest)).to(dtype).view(torch.uint8)
        errors.add(len(rows), *_errors_of(exact, self.decode_tensor(encoded)))
        return encoded

    def decode_tensor(self, encoded: torch.Tensor) -> torch.Tensor:
        """The float32 rows of what `encode_tensor` or `encode` returned, on its device."""
        if not self.head:
            return encoded.view(getattr(torch, self.name)).float()
        # A copy: torch views bytes as floats only in rows of whole floats.
        heads = torch.empty((len(encoded), self.head), dtype=torch.uint8, device=encoded.device)
        scale = heads.copy_(encoded[:, : self.head]).view(torch.float32)
        return encoded[:, self.head :].view(torch.int8).float() * scale

    def _fields(self, encoded: np.ndarray) -> list[np.ndarray]:
        """The values in bytes `encoded` (uint8[rows, row_bytes]), and the scales where rows have a head."""
        if not self.head:
            return [encoded.view(np.uint16)]
        return [encoded[:, self.head :].view(np.int8), encoded[:, : self.head].view(np.float32)]


def _int8_tensor(rows: torch.Tensor) -> torch.Tensor:
    largest = rows.abs().amax(dim=1, keepdim=True) if rows.shape[1] else rows.new_zeros((len(rows), 1))
    scale = (largest / 127).where(largest.isfinite(), torch.nan)
    steps = (rows / scale).round().where(scale > 0, torch.zeros_like(rows)).to(torch.int8)
    heads = torch.empty_like(scale, memory_format=torch.contiguous_format)
    return torch.cat([heads.copy_(scale).view(torch.uint8), steps.view(torch.uint8)], dim=1)


def _errors_of(exact: torch.Tensor, decoded: torch.Tensor) -> tuple[float, float]:
    """The sum and the largest of the relative errors of rows; 0 for a row of zeros."""
    if not len(exact):
        return 0.0, 0.0
    whole = exact.double().norm(dim=1)
    errors = ((decoded.double() - exact.double()).norm(dim=1) / whole).where(whole > 0, whole)
    return float(errors.sum()), float(errors.max())


ENCODINGS = {
    "float16": RowEncoding("float16", 0, 2),
    "bfloat16": RowEncoding("bfloat16", 0, 2),
    "int8": RowEncoding("int8", 4, 1),
}


def encoding_for(name: str, dtype: np.dtype | str) -> RowEncoding | None:
    """The encoding called `name` for rows stored as `dtype`; None when they are sent in the stored type.

    Rows stored in 16 bits gain nothing from another 16-bit type, those in 8 bits from none.
    """
    if name == "native" or np.dtype(dtype).itemsize <= ENCODINGS[name].each:
        return None
    return ENCODINGS[name]
