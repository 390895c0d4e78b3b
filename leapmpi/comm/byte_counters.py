"""Payload bytes that this rank sent to other ranks, by kind, and rows that its blocks read, by place."""

from __future__ import annotations

import numpy as np

KINDS = (
    *("ids", "features", "edge_features", "row gradients", "labels", "parameters"),
    *("gradients", "activations", "embeddings", "topology", "shares", "schedule", "control"),
)
"""Purposes of sent bytes. "row gradients" are those of learned rows, "topology" is vertex ids and their owners' draws.
"shares" go from preparing to computing ranks. "control" is everything else, such as counts and votes."""

ROWS = ("local", "remote", "cached")
"""Places from which rows are read."""


class ByteCounters:
    """Counts since the last `take`. Bytes are added by `Communicator` alone, rows by the feature fetcher.

    What went to each of `ranks` ranks is counted apart, since the last `take_by_rank`.
    """

    def __init__(self, ranks: int = 1) -> None:
        self.bytes = dict.fromkeys(KINDS, 0)
        self.rows = dict.fromkeys(ROWS, 0)
        self._to_rank = np.zeros(ranks, np.int64)
        self._to_each = 0

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self._to_rank)

    def add_bytes(self, kind: str, count: int) -> None:
        """Add `count` payload bytes of `kind`, one of KINDS."""
        self.bytes[kind] += count

    def add_to_rank(self, kind: str, count: int, rank: int) -> None:
        """Add `count` payload bytes of `kind`, sent to `rank`."""
        self.bytes[kind] += count
        self._to_rank[rank] += count

    def add_to_ranks(self, kind: str, count: int, by_rank: np.ndarray) -> None:
        """Add `count` payload bytes of `kind`, sent as int64[ranks] says; what it says of this rank is not counted."""
        self.bytes[kind] += count
        self._to_rank += by_rank

    def add_to_each(self, kind: str, each: int) -> None:
        """Add `each` payload bytes of `kind` sent to each of the other ranks."""
        self.bytes[kind] += each * (len(self._to_rank) - 1)
        self._to_each += each

    def take_by_rank(self, own: int) -> np.ndarray:
        """Return the bytes sent to each rank so far, 0 to `own`: int64[ranks]; restart counting by rank at zero."""
        taken, self._to_rank = self._to_rank + self._to_each, np.zeros_like(self._to_rank)
        self._to_each = 0
        taken[own] = 0
        return taken

    def add_rows(self, place: str, count: int) -> None:
        """Add `count` unique input rows of one iteration, read at `place`, one of ROWS."""
        self.rows[place] += count

    def add(self, counted_bytes: dict[str, int], counted_rows: dict[str, int]) -> None:
        """Add what `take` of other counters gave."""
        for kind, count in counted_bytes.items():
            self.add_bytes(kind, count)
        for place, count in counted_rows.items():
            self.add_rows(place, count)

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the bytes by kind and rows by place counted so far; restart counting at zero."""
        taken = self.bytes, self.rows
        self.bytes, self.rows = dict.fromkeys(KINDS, 0), dict.fromkeys(ROWS, 0)
        return taken


class PartCounters:
    """The counters of a communicator of some ranks, which counts in those of one of all ranks, `whole`.

    Rank r of the part is rank `members[r]` (int64[ranks]) of the whole. Methods are those of ByteCounters.
    """

    def __init__(self, whole: ByteCounters, members: np.ndarray) -> None:
        self._whole, self._members = whole, members
        self.add_bytes, self.add_rows, self.add, self.take = whole.add_bytes, whole.add_rows, whole.add, whole.take

    @property
    def bytes(self) -> dict[str, int]:
        """By kind, of the whole."""
        return self._whole.bytes

    def add_to_rank(self, kind: str, count: int, rank: int) -> None:
        """Add `count` payload bytes of `kind`, sent to `rank` of the part."""
        self._whole.add_to_rank(kind, count, int(self._members[rank]))

    def add_to_ranks(self, kind: str, count: int, by_rank: np.ndarray) -> None:
        """Add `count` payload bytes of `kind`, sent as int64[ranks of the part] says."""
        self._whole.add_to_ranks(kind, count, self._among_all(by_rank))

    def add_to_each(self, kind: str, each: int) -> None:
        """Add `each` payload bytes of `kind` sent to each of the other ranks of the part."""
        others = len(self._members) - 1
        self._whole.add_to_ranks(kind, each * others, self._among_all(np.full(len(self._members), each, np.int64)))

    def _among_all(self, by_rank: np.ndarray) -> np.ndarray:
        found = np.zeros(self._whole.ranks, np.int64)
        found[self._members] = by_rank
        return found


Counters = ByteCounters | PartCounters
