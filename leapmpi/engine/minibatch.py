"""One iteration on one rank: its cells, the rows that they were asked for, and how these come here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.features.row_exchange import RowExchange
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.block import Block
from leapmpi.system import channels
from leapmpi.system.counter_rng import DrawKey

if TYPE_CHECKING:
    from leapmpi.nn.tensors import BlockTensors


@dataclass
class MicroBatch:
    """What this rank trains in one time step: roots int64, their blocks, and where its input rows stand in the union.

    `positions` is None when the union is the cell's own input, in order.
    """

    roots: np.ndarray
    blocks: list[Block]
    positions: np.ndarray | None
    tensors: list[BlockTensors] | None = None
    """The blocks on the device, where several models train on them."""


@dataclass
class MiniBatch:
    """One iteration on this rank; `features` or `asked` is what its remote mode fetched for the cells."""

    schedule: Schedule | None
    key: DrawKey
    micro_batches: list[MicroBatch]
    features: Any = None
    labels: Sequence[Any] = ()
    asked: list[Any] = field(default_factory=list)
    root_weights: list[Any] = field(default_factory=list)
    """The weights of the roots whose loss this rank computes, by cell: one float for all, or float64[roots]."""
    drops: bool = True
    """Whether dropout applies: in training."""
    row_exchange: RowExchange | None = None
    """The feature rows asked for, until they have arrived."""

    @property
    def dropout(self) -> DrawKey | None:
        """The key of dropout masks, None where nothing is dropped."""
        return self.key if self.drops else None

    def begin(self) -> None:
        """Set the rows asked for off. Collective, like `wait`, which all ranks call before they begin another's."""
        if self.row_exchange:
            with channels.rows():
                self.row_exchange.begin()

    def wait(self) -> None:
        """Wait until they have arrived. Collective."""
        if self.row_exchange:
            with channels.rows():
                self.row_exchange.wait()

    def unpack(self) -> None:
        """Make the features of what has arrived. Local."""
        if self.row_exchange:
            self.features, self.row_exchange = self.row_exchange.unpack(), None

    def complete(self) -> None:
        """All three: bring the rows asked for here. Collective."""
        self.begin()
        self.wait()
        self.unpack()
