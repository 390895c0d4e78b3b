"""A mini-batch on one rank: its micro-batches, one per time step, and the feeds of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from leapmpi.exchange.edge_loss import EdgeLoss
from leapmpi.exchange.layer_feed import LayerFeed
from leapmpi.exchange.layer_graphs import LayerGraph
from leapmpi.exchange.raw_sums import LayerSums
from leapmpi.nn.norms import BatchRows
from leapmpi.nn.rows import Rows
from leapmpi.nn.tensors import BlockTensors, to_tensors
from leapmpi.plan.schedule import Schedule
from leapmpi.sampling.block import Block
from leapmpi.system import channels
from leapmpi.system.counter_rng import DrawKey


class PendingExchange(Protocol):
    """An exchange of the input of the first layer; `unpack` returns rows, or delivers a result made from them."""

    def begin(self) -> None:
        """Start to send and receive. Collective."""

    def wait(self) -> None:
        """Wait until all has arrived. Collective."""

    def unpack(self) -> Rows | None:
        """Return the rows that have arrived, or None where the exchange delivers its result. Local."""


@dataclass
class MicroBatch:
    """The work of this rank in one time step: `roots` int64[n] and their `blocks`, from the roots outward.

    `positions` (int64) are those of its input rows in the union of all micro-batches; None if the union is its input.
    """

    roots: np.ndarray
    blocks: list[Block]
    positions: np.ndarray | None
    tensors: list[BlockTensors] | None = None
    """The blocks on the device, where several models train on them."""
    edge_features: list[Tensor] | None = None
    """By block, the features of its edges, float[edges, Fe], where a layer reads them."""
    held_rows: list[int] | None = None
    """By block, the number of its sources held at once, where not all are."""

    @property
    def first_block(self) -> Block:
        """The block that the first layer reads, the outermost one."""
        return self.blocks[-1]

    def on_device(self, device: torch.device, count: int | None = None) -> list[BlockTensors]:
        """Return the tensors of the first `count` blocks, or all, on `device`, with the features of their edges."""
        tensors = [to_tensors(block, device) for block in self.blocks[:count]]
        if self.edge_features is None:
            return tensors
        features = self.edge_features[:count]
        return [replace(each, edge_features=found) for each, found in zip(tensors, features, strict=True)]


@dataclass
class MiniBatch:
    """One mini-batch on this rank. Its exchange mode fills `features`, `sums` or `feeds`."""

    schedule: Schedule | None
    key: DrawKey
    micro_batches: list[MicroBatch]
    features: Rows | None = None
    """The union of all input rows, where raw rows travel."""
    feeds: list[Sequence[LayerFeed]] = field(default_factory=list)
    """By micro-batch, the feeds of its layers from the first on, where ranks compute rows for each other."""
    graph: LayerGraph | None = None
    """The part of every layer that this rank computes, where layers above the first have remote inputs too."""
    labels: Sequence[Tensor] = ()
    root_weights: list[float | np.ndarray] = field(default_factory=list)
    """Weights of the roots whose loss this rank computes, by micro-batch: one float for all, or float64[roots]."""
    edge_loss: EdgeLoss | None = None
    """The loss of the edges between the roots, in a task on edges; labels and weights do not count then."""
    batch_rows: BatchRows | None = None
    """The vertices that this rank counts in the statistics of the batch, where the model normalises by these."""
    drops: bool = True
    """Whether dropout applies: in training."""
    row_exchange: PendingExchange | None = None
    """The exchange of the requested feature rows, or sums of them, until they have arrived."""
    sums: LayerSums | None = None
    """The input of the first layer, where sums of raw rows travel."""

    @property
    def planned(self) -> Schedule:
        """The schedule of a mini-batch made by `Engine.plan`; one made by evaluation has none."""
        assert self.schedule is not None
        return self.schedule

    @property
    def dropout(self) -> DrawKey | None:
        """The key of dropout masks, None where nothing is dropped."""
        return self.key if self.drops else None

    def begin(self) -> None:
        """Start the exchange of feature rows. Collective; all ranks `wait` before the next `begin`."""
        if self.row_exchange:
            with channels.rows():
                self.row_exchange.begin()

    def wait(self) -> None:
        """Wait until the feature rows have arrived. Collective."""
        if self.row_exchange:
            with channels.rows():
                self.row_exchange.wait()

    def unpack(self) -> None:
        """Make `features` of the rows that have arrived. Local."""
        if self.row_exchange:
            self.features, self.row_exchange = self.row_exchange.unpack(), None

    def settle(self) -> None:
        """Wait until everything that `unpack` has sent is delivered. Local: it sends nothing itself."""

    def complete(self) -> None:
        """Exchange the feature rows: begin, wait, unpack and settle. Collective."""
        self.begin()
        self.wait()
        self.unpack()
        self.settle()
