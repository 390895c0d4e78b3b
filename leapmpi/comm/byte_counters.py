"""The byte ledger: payload bytes this rank sent to other ranks, by kind, and rows its blocks read."""

from __future__ import annotations

KINDS = (
    "ids",
    "features",
    "labels",
    "parameters",
    "gradients",
    "activations",
    "schedule",
    "control",
)

ROWS = ("local", "remote", "cached")


class ByteCounters:
    """Counts since the last `take`. Bytes are added by `communicator` alone, rows by the row fetcher."""

    def __init__(self) -> None:
        self.bytes = dict.fromkeys(KINDS, 0)
        self.rows = dict.fromkeys(ROWS, 0)

    def add_bytes(self, kind: str, count: int) -> None:
        """Add `count` payload bytes of `kind`, one of KINDS."""
        self.bytes[kind] += count

    def add_rows(self, place: str, count: int) -> None:
        """Add `count` unique input rows of one iteration, read at `place`, one of ROWS."""
        self.rows[place] += count

    def add(self, counted_bytes: dict[str, int], counted_rows: dict[str, int]) -> None:
        """Add what another ledger's `take` gave."""
        for kind, count in counted_bytes.items():
            self.bytes[kind] += count
        for place, count in counted_rows.items():
            self.rows[place] += count

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """The bytes by kind and rows by place counted so far; counting starts again at zero."""
        taken = self.bytes, self.rows
        self.bytes = dict.fromkeys(KINDS, 0)
        self.rows = dict.fromkeys(ROWS, 0)
        return taken
