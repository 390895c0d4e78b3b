"""A mini-batch on one rank: its micro-batches, one per time step, and what feeds their layers."""

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
    """An exchange that brings the input of the first layer; `unpack` returns rows, or delivers what it made of them."""

    def begin(self) -> None: ...

    def wait(self) -> None: ...

    def unpack(self) -> Rows | None: ...


@dataclass
class MicroBatch:
    """What this rank trains in one time step: `roots` int64[n] and their `blocks`, from the roots outward.

    `positions` (int64) is where its input rows stand in the union of all micro-batches; None if the union is its input.
    """

    roots: np.ndarray
    blocks: list[Block]
    positions: np.ndarray | None
    tensors: list[BlockTensors] | None = None
    """The blocks on the device, where several models train on them."""
    edge_features: list[Tensor] | None = None
    """By block, the features of its edges, float[edges, Fe], where a layer reads them."""
    held_rows: list[int] | None = None
    """By block, how many of its sources are held at once, where not all are."""

    @property
    def first_block(self) -> Block:
        """The block that the first layer reads, the outermost one."""
        return self.blocks[-1]

    def on_device(self, device: torch.device, count: int | None = None) -> list[BlockTensors]:
        """The tensors of the first `count` blocks, or all, on `device`, with the features of their edges."""
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
    """By micro-batch, what feeds and computes its layers from the first on, where ranks compute rows for each other."""
    graph: LayerGraph | None = None
    """What this rank computes of every layer, where layers above the first are fed by other ranks too."""
    labels: Sequence[Tensor] = ()
    root_weights: list[float | np.ndarray] = field(default_factory=list)
    """Weights of the roots whose loss this rank computes, by micro-batch: one float for all, or float64[roots]."""
    edge_loss: EdgeLoss | None = None
    """The loss of the edges between the roots, where edges are trained; labels and weights do not count then."""
    batch_rows: BatchRows | None = None
    """Which vertices this rank counts in the statistics of the batch, where the model is trained by these."""
    drops: bool = True
    """Whether dropout applies: in training."""
    row_exchange: PendingExchange | None = None
    """The exchange of the requested feature rows, or sums of them, until they have arrived."""
    sums: LayerSums | None = None
    """What the first layer reads, where sums of raw rows travel."""

    @property
    def planned(self) -> Schedule:
        """The schedule of a mini-batch that `Engine.plan` made; one that evaluation makes has none."""
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
        """Wait until nothing of what `unpack` has sent is under way. Local: it sends nothing itself."""

    def complete(self) -> None:
        """Exchange the feature rows: begin, wait, unpack and settle. Collective."""
        self.begin()
        self.wait()
        self.unpack()
        self.settle()
