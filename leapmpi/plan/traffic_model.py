"""Predicted traffic of an iteration: bytes by kind and pair of ranks, and rows read by place."""

from __future__ import annotations

import numpy as np

from leapmpi.comm.byte_counters import KINDS, ROWS

_HEADER = 8
"""Bytes of one number: of rows requested from another rank, or a vote."""


class Traffic:
    """Traffic of one iteration, added up message by message.

    `sent[kind]` int64[ranks, ranks]: payload bytes from rank (row) to rank (column). `rows[place]` int64[ranks]: rows
    read by each rank. Kinds and places are those of leapmpi/comm/byte_counters.py.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent = {kind: np.zeros((ranks, ranks), np.int64) for kind in KINDS}
        self.rows = {place: np.zeros(ranks, np.int64) for place in ROWS}

    def add_request(
        self, rank: int, counts: np.ndarray, id_bytes: int, kind: str, answer_bytes: int, returned_bytes: int = 0
    ) -> None:
        """Add requests by `rank` of `counts` rows (int64[ranks]) from the ranks by their ids.

        Rows of `answer_bytes` each are sent to `rank` as `kind`; it returns `returned_bytes` per row, as `kind` too.
        """
        self.sent["ids"][rank] += counts * id_bytes
        self.sent["control"][rank, np.arange(self.ranks) != rank] += _HEADER
        self.sent[kind][:, rank] += counts * answer_bytes
        self.sent[kind][rank] += counts * returned_bytes

    def add_naming(self, rank: int, kind: str, asked: np.ndarray, answered: np.ndarray, counted: int) -> None:
        """Add `asked` bytes (int64[ranks]) sent by `rank` to the ranks, and `answered` bytes back, all of one kind.

        It also sends every other rank `counted` numbers: sizes of requests and replies.
        """
        self.sent[kind][rank] += asked
        self.sent[kind][:, rank] += answered
        self.sent["control"][rank, np.arange(self.ranks) != rank] += counted * _HEADER

    def add_answers(self, rank: int, kind: str, sizes: np.ndarray) -> None:
        """Add `sizes` bytes (int64[ranks]) from the ranks to `rank` as `kind`: rows of different sizes."""
        self.sent[kind][:, rank] += sizes

    def add_returns(self, rank: int, kind: str, sizes: np.ndarray) -> None:
        """Add `sizes` bytes (int64[ranks]) from `rank` to the ranks as `kind`: gradients of their rows."""
        self.sent[kind][rank] += sizes

    def add_exchange(self, rank: int, counts: np.ndarray, kind: str, row_bytes: int) -> None:
        """Add `counts` rows (int64[ranks]) of `row_bytes` from every rank to `rank`, and as many gradients back."""
        self.sent[kind][:, rank] += counts * row_bytes
        self.sent[kind][rank] += counts * row_bytes

    def add_broadcast(self, kind: str, size: int) -> None:
        """Add `size` bytes from rank 0 to all others."""
        self.sent[kind][0, 1:] += size

    def add_hop(self, rank: int, distance: int, sizes: dict[str, int]) -> None:
        """Add `sizes` (bytes by kind) from `rank` to the rank `distance` before it in the ring."""
        if distance % self.ranks:
            for kind, size in sizes.items():
                self.sent[kind][rank, (rank - distance) % self.ranks] += size

    def add_reduction(self, rank: int, numbers: int, width: int, kind: str = "gradients") -> None:
        """Add the part of `rank` in an all-reduce of `numbers` of `width` bytes.

        It sends every other rank that rank's slice, and later the sum of its own slice.
        """
        slices = np.diff(np.arange(self.ranks + 1, dtype=np.int64) * numbers // self.ranks)
        others = np.arange(self.ranks) != rank
        self.sent[kind][rank, others] += (slices[others] + slices[rank]) * width

    def add_gather(self, rank: int, size: int, kind: str) -> None:
        """Add `size` bytes from `rank` to all others."""
        self.sent[kind][rank, np.arange(self.ranks) != rank] += size

    def add_vote(self) -> None:
        """Add an agreement of all ranks on one number: whether to stop, once per iteration."""
        self.sent["control"] += _HEADER * (1 - np.eye(self.ranks, dtype=np.int64))

    def add_rows(self, rank: int, place: str, count: int) -> None:
        """Add `count` rows read by `rank` at `place`."""
        self.rows[place][rank] += count

    def bytes_by_kind(self) -> dict[str, int]:
        """Return the bytes over all pairs of ranks."""
        return {kind: int(pairs.sum()) for kind, pairs in self.sent.items()}

    def rows_by_place(self) -> dict[str, int]:
        """Return the rows over all ranks."""
        return {place: int(rows.sum()) for place, rows in self.rows.items()}

    def pairs(self) -> np.ndarray:
        """Return the bytes of all kinds between ranks: int64[ranks, ranks]."""
        return np.sum(list(self.sent.values()), axis=0)
