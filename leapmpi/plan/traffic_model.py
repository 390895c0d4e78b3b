"""What an iteration moves between ranks and reads, before it runs: bytes by kind and pair of ranks, rows by place."""

from __future__ import annotations

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS

_HEADER = 8
"""Bytes of a number: how many rows are asked of another rank, or a vote."""


class Traffic:
    """Payload bytes `sent[kind]` int64[ranks, ranks] from rank to rank, and `rows[place]` int64[ranks] read by each."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent = {kind: np.zeros((ranks, ranks), np.int64) for kind in KINDS}
        self.rows = {place: np.zeros(ranks, np.int64) for place in ROWS}

    def add_request(
        self, rank: int, counts: np.ndarray, id_bytes: int, kind: str, answer_bytes: int, returned_bytes: int = 0
    ) -> None:
        """`rank` asks every rank for `counts` rows (int64[ranks]) by their ids.

        An answer of `answer_bytes` a row comes as `kind`; `returned_bytes` a row go back the same way.
        """
        self.sent["ids"][rank] += counts * id_bytes
        self.sent["control"][rank, np.arange(self.ranks) != rank] += _HEADER
        self.sent[kind][:, rank] += counts * answer_bytes
        self.sent[kind][rank] += counts * returned_bytes

    def add_answers(self, rank: int, kind: str, sizes: np.ndarray) -> None:
        """Every rank sends `rank` so many bytes, int64[ranks], as answers of different sizes to a request."""
        self.sent[kind][:, rank] += sizes

    def add_exchange(self, rank: int, counts: np.ndarray, kind: str, row_bytes: int) -> None:
        """Every rank sends `rank` so many rows (int64[ranks]) of `row_bytes`, and gets as many gradients back."""
        self.sent[kind][:, rank] += counts * row_bytes
        self.sent[kind][rank] += counts * row_bytes

    def add_broadcast(self, kind: str, size: int) -> None:
        """Rank 0 sends `size` bytes to all others."""
        self.sent[kind][0, 1:] += size

    def add_hop(self, rank: int, distance: int, sizes: dict[str, int]) -> None:
        """`rank` passes on bytes by kind to the rank `distance` before it."""
        if distance % self.ranks:
            for kind, size in sizes.items():
                self.sent[kind][rank, (rank - distance) % self.ranks] += size

    def add_reduction(self, rank: int, numbers: int, width: int, kind: str = "gradients") -> None:
        """What `rank` sends when `numbers` of `width` bytes are summed: slices to their adders, its own sum to all."""
        slices = np.diff(np.arange(self.ranks + 1, dtype=np.int64) * numbers // self.ranks)
        others = np.arange(self.ranks) != rank
        self.sent[kind][rank, others] += (slices[others] + slices[rank]) * width

    def add_vote(self) -> None:
        """All ranks agree on a number: whether to stop, once an iteration of a run."""
        self.sent["control"] += _HEADER * (1 - np.eye(self.ranks, dtype=np.int64))

    def add_rows(self, rank: int, place: str, count: int) -> None:
        """`rank` reads `count` rows at `place`."""
        self.rows[place][rank] += count

    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes over all pairs of ranks."""
        return {kind: int(pairs.sum()) for kind, pairs in self.sent.items()}

    def rows_by_place(self) -> dict[str, int]:
        """Rows over all ranks."""
        return {place: int(rows.sum()) for place, rows in self.rows.items()}

    def pairs(self) -> np.ndarray:
        """Bytes of all kinds from rank to rank: int64[ranks, ranks]."""
        return sum(self.sent.values())

    def busiest_link(self) -> int:
        """The most bytes that any rank sends, or receives."""
        pairs = self.pairs()
        return int(max(pairs.sum(axis=1).max(), pairs.sum(axis=0).max()))
