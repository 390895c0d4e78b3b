"""Vertex ids as they cross ranks: offsets in a range that both sides know, in 32 bits wherever they fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leapmpi.system.jit import compiled

_NARROW = 1 << 32
"""Ranges up to this long have 32-bit offsets."""


@compiled
def _subtract(ids, counts, first, out):
    """Write out[i] = ids[i] less the first id of the range of its receiver; `counts` ids go to each rank in turn."""
    position = 0
    for rank in range(len(counts)):
        for _ in range(counts[rank]):
            out[position] = ids[position] - first[rank]
            position += 1


@compiled
def _add(offsets, first, out):
    for i in range(len(offsets)):
        out[i] = first + np.int64(offsets[i])


@dataclass(frozen=True, eq=False)
class IdCodec:
    """For each rank the range of the ids that it may be sent: at most `longest` ids, from first[rank] on."""

    first: np.ndarray
    """int64[ranks]."""
    longest: int

    @classmethod
    def home_ranks(cls, rank_offsets: np.ndarray) -> IdCodec:
        """Build the codec for ids that are sent to their home rank; `rank_offsets` is int64[ranks + 1]."""
        return cls(np.ascontiguousarray(rank_offsets[:-1]), int(np.diff(rank_offsets).max()))

    @classmethod
    def any_id(cls, rank_offsets: np.ndarray) -> IdCodec:
        """Build the codec for any id below rank_offsets[-1], sent to any rank."""
        return cls(np.zeros(len(rank_offsets) - 1, np.int64), int(rank_offsets[-1]))

    @classmethod
    def any_word(cls, ranks: int) -> IdCodec:
        """Build the codec for words of 64 bits, sent to any of `ranks` ranks as they are."""
        return cls(np.zeros(ranks, np.int64), 1 << 64)

    @property
    def id_bytes(self) -> int:
        """Bytes of an id as it is sent: 4 where every offset fits, else 8."""
        return 4 if self.longest <= _NARROW else 8

    def encode(self, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Encode `ids` (int64, counts[r] for rank r in order) as offsets: int64, or uint32 viewed as int32."""
        out = np.empty(len(ids), np.uint32 if self.id_bytes == 4 else np.int64)
        _subtract(ids, counts, self.first, out)
        return out.view(np.int32) if self.id_bytes == 4 else out

    def empty(self, count: int) -> np.ndarray:
        """Allocate `count` encoded ids: int32 or int64, as `decode` expects."""
        return np.empty(count, np.int32 if self.id_bytes == 4 else np.int64)

    def decode(self, received: np.ndarray, rank: int) -> np.ndarray:
        """Decode the int64 ids that others sent to `rank`, from the offsets that `encode` made of them."""
        ids = np.empty(len(received), np.int64)
        _add(received.view(np.uint32) if self.id_bytes == 4 else received, self.first[rank], ids)
        return ids
