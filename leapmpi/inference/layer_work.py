"""What is planned of each layer before the first one is computed, and what all of it will move and take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leapmpi.inference.chunks import Chunks
from leapmpi.inference.closure import Needed
from leapmpi.inference.layer_plan import PROJECTED, LayerPlan

HIDDEN = "activations"
"""The kind under which rows of hidden layers, and projected ones, are counted."""

FEATURES = "features"
"""The kind under which rows of the first layer are counted, unless they are projected."""

LOOK_UPS = 8
"""Bytes for each vertex that a list names, of what counts chunks and numbers the sources of a block."""

ADDRESSES = 20
"""Bytes for each vertex that a list names, of what finds rows by number."""

PER_VERTEX = 16
"""Bytes for each own vertex: its id, and its number while chunks are cut."""


@dataclass(frozen=True)
class LayerWork:
    """One layer on this rank."""

    number: int
    """From 0."""
    plan: LayerPlan
    needed: Needed
    chunks: Chunks
    held: int
    """Bytes of the rows that are held meanwhile."""
    row_bytes: int
    """Bytes of a row as it crosses ranks."""
    seconds: float
    """What planning took."""

    @property
    def kind(self) -> str:
        """The kind under which its rows are counted."""
        return FEATURES if self.number == 0 and self.plan.form != PROJECTED else HIDDEN


@dataclass(frozen=True)
class Expectation:
    """What the layers of one inference will move to this rank, and take on it."""

    received: dict[str, int]
    """Bytes by kind."""
    held: int
    """Of the layer that takes most: bytes of the rows that are held,"""
    chunk: int
    """and of a chunk."""
    look_ups: int


def expectation(works: Sequence[LayerWork], id_bytes: int, own: int, numbered: int, on_disk: bool) -> Expectation:
    """What `works` will take on this rank, whose lists are of `own` vertices and name `numbered`.

    Rows in files do not count.
    """
    received: Counter[str] = Counter()
    for each in works:
        rows = each.chunks.remote_rows
        received.update({"ids": rows * id_bytes, each.kind: rows * each.row_bytes})
    most = max(works, key=lambda each: each.held * (not on_disk) + each.chunks.bytes)
    held = 0 if on_disk else most.held
    sent = {kind: count for kind, count in received.items() if count}
    of_number = LOOK_UPS + ADDRESSES * any(work.plan.by_number for work in works)
    return Expectation(sent, held, most.chunks.bytes, of_number * numbered + PER_VERTEX * own)
