"""Payload bytes that this rank sent to other ranks, by kind, and rows that its blocks read, by place."""

from __future__ import annotations

KINDS = (
    *("ids", "features", "edge_features", "row gradients", "labels", "parameters"),
    *("gradients", "activations", "embeddings", "topology", "shares", "schedule", "control"),
)
"""What bytes are sent for. "row gradients" are those of learned rows, "topology" is named vertices and what
their owners drew for them; "shares" are what preparation ranks send to those that compute; "control" is everything
that is no payload of training, such as counts and votes."""

ROWS = ("local", "remote", "cached")
"""Where rows are read."""


class ByteCounters:
    """Counts since the last `take`. Bytes are added by `Communicator` alone, rows by the feature fetcher."""

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
        """Add what `take` of other counters gave."""
        for kind, count in counted_bytes.items():
            self.add_bytes(kind, count)
        for place, count in counted_rows.items():
            self.add_rows(place, count)

    def take(self) -> tuple[dict[str, int], dict[str, int]]:
        """The bytes by kind and rows by place counted so far; counting starts again at zero."""
        taken = self.bytes, self.rows
        self.bytes, self.rows = dict.fromkeys(KINDS, 0), dict.fromkeys(ROWS, 0)
        return taken
