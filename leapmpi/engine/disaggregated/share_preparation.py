"""A preparation rank's part of an iteration: plan, draw, fetch, sum up inputs of the first layer, and send them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from leapmpi.config.sections import StrategyConfig
from leapmpi.engine.disaggregated.prepared_share import (
    ROWS,
    ROWS_IN_PLACE,
    SPARSE_ROWS,
    SUMS,
    TYPED_ROWS,
    PreparedShare,
)
from leapmpi.engine.disaggregated.shipping import Shipping, depth_of
from leapmpi.engine.engine import Engine, Preparation
from leapmpi.engine.placement import placement_of
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.nn.layer import projects_first
from leapmpi.nn.model import Model
from leapmpi.nn.rows import Rows, ScatteredRows, SparseMatrix, dense
from leapmpi.nn.tensors import BlockTensors
from leapmpi.nn.typed_matrix import TypedMatrix
from leapmpi.plan.schedule import Schedule
from leapmpi.system.counter_rng import DrawKey


@dataclass
class ShippedMiniBatch(MiniBatch):
    """A mini-batch that is sent to the ranks that compute as soon as its rows are here."""

    ship: Callable[[MiniBatch], Callable[[], None]] = field(kw_only=True)
    _end: Callable[[], None] | None = None

    def unpack(self) -> None:
        """Make `features` of the rows that have arrived, and begin to send what is made of them."""
        super().unpack()
        self._end, self.features = self.ship(self), None

    def settle(self) -> None:
        """Wait until it has been sent."""
        if self._end is not None:
            self._end()
            self._end = None


class SharePreparation(Preparation):
    """Prepares shares of mini-batches on one of the ranks that prepare, and sends them to those that compute.

    Roots are placed as if there were as many ranks as shares, which begin at the vertices `share_offsets`
    (int64[shares + 1]).
    """

    ships = True
    reads_whole_schedules = True

    def __init__(self, engine: Engine, shipping: Shipping, share_offsets: np.ndarray) -> None:
        super().__init__(engine)
        self.shipping, self.roles = shipping, shipping.roles
        self.shares = self.roles.prepared_by(self.ctx.rank)
        self._share_offsets = share_offsets

    @property
    def prefetch_depth(self) -> int:
        """Number of mini-batches prepared ahead: two unless another number is given, as these ranks do nothing else."""
        return depth_of(self.engine.config)

    def drawn_for(self, batch: np.ndarray, epoch: int, iteration: int) -> np.ndarray:
        return np.concatenate(self._cells(self.placement.schedule(batch, epoch, iteration)))

    def share_of(self, roots: np.ndarray) -> np.ndarray:
        if not self.placement.strategy.roots_are_local:
            return np.full(len(roots), len(self.shares) / self.roles.shares)
        first, end = self._share_offsets[[self.shares.start, self.shares.stop]]
        return ((first <= roots) & (roots < end)).astype(np.float64)

    def sample(self, schedule: Schedule, key: DrawKey) -> MiniBatch:
        """Draw one micro-batch for each share of this rank. Local."""
        return ShippedMiniBatch(
            schedule, key, self.micro_batches(self._cells(schedule), schedule, key), ship=self._ship
        )

    def labelled(self, minibatch: MiniBatch) -> list[np.ndarray]:
        return [micro_batch.roots for micro_batch in minibatch.micro_batches]

    def labels_are_local(self, minibatch: MiniBatch) -> bool:
        offsets = self.ctx.rank_offsets
        for number in range(self.roles.preparing):
            for share in self.roles.prepared_by(number):
                roots = minibatch.planned.cell(share, 0)
                if len(roots) and not offsets[number] <= roots.min() <= roots.max() < offsets[number + 1]:
                    return False
        return True

    def timed(self, batch: np.ndarray | None) -> tuple[float, float, float]:
        """Prepare and send the first mini-batch; return the seconds of preparing, and none of sending and computing."""
        begin = time.perf_counter()
        minibatch = self.engine.plan(batch, 0, 0)
        self.engine.request(minibatch)
        minibatch.begin()
        minibatch.wait()
        minibatch.unpack()
        seconds = time.perf_counter() - begin
        minibatch.settle()
        return seconds, 0.0, 0.0

    def _cells(self, schedule: Schedule) -> list[np.ndarray]:
        """Return the roots of each share of this rank."""
        return [schedule.cell(share, 0) for share in self.shares]

    def _ship(self, minibatch: MiniBatch) -> Callable[[], None]:
        """Begin to send each micro-batch as a share; the result waits for the end."""
        found = self.shares_of(minibatch)
        return self.shipping.send([share for share, _ in found], [matrix for _, matrix in found])

    def shares_of(self, minibatch: MiniBatch) -> list[tuple[PreparedShare, Tensor]]:
        """Return each micro-batch as it travels, and its matrix, once its rows have arrived. Local."""
        return [self._share(minibatch, number) for number in range(len(minibatch.micro_batches))]

    def _share(self, minibatch: MiniBatch, number: int) -> tuple[PreparedShare, Tensor]:
        """Return micro-batch `number` as it travels, and its matrix."""
        micro_batch, rows = minibatch.micro_batches[number], minibatch.features
        # Only one matrix travels: sums, or rows in the form that is narrower for the first layer.
        apart: tuple[np.ndarray | None, ...] = ()
        if minibatch.sums is not None:
            with self.ctx.phases("gather"):
                form, matrix = SUMS, self._with_own(*minibatch.sums.of(number))
        else:
            assert rows is not None, "its rows have arrived"
            if micro_batch.positions is not None:
                rows = rows[micro_batch.positions]
            form, matrix = self._matrix(micro_batch.on_device(self.ctx.device)[-1], rows, minibatch)
            if isinstance(rows, SparseMatrix):
                apart = tuple(each.numpy() for each in (rows.entries.indptr, rows.entries.indices, rows.values))
            elif isinstance(rows, TypedMatrix):
                rows = rows.compact()
                features = (None if each is None else each.numpy() for each in rows.features)
                apart = (rows.types.numpy(), rows.places.numpy(), *features)
        # Sums replace the outermost block, which then need not travel.
        sent = micro_batch.blocks[: len(micro_batch.blocks) - (form == SUMS)]
        edge_features = micro_batch.edge_features
        share = PreparedShare(
            form=form,
            blocks=sent,
            labels=minibatch.labels[number].numpy(),
            weights=minibatch.root_weights[number],
            edge_features=None if edge_features is None else [each.numpy() for each in edge_features[: len(sent)]],
            rows=apart,
        )
        return share, matrix

    def _matrix(self, block: BlockTensors, rows: Rows, minibatch: MiniBatch) -> tuple[int, Tensor]:
        """Return the form in which the first layer's input is sent, and the matrix."""
        if isinstance(rows, SparseMatrix):
            return SPARSE_ROWS, torch.empty((0, self.shipping.width), dtype=self.shipping.dtype)
        if isinstance(rows, TypedMatrix):
            return TYPED_ROWS, torch.empty((0, self.shipping.width), dtype=self.shipping.dtype)
        layer = self.ctx.model.layers[0]
        with self.ctx.phases("gather"):
            if not self._sends_sums(block, rows):
                return (ROWS_IN_PLACE if isinstance(rows, ScatteredRows) else ROWS), dense(rows)
            # A rank that computes the layer as a whole would take the same steps up to here.
            rows = rows.to(layer.dtype)
            rows = layer.prefix(rows, block.mask_names(minibatch.dropout, layer.dropout), minibatch.dropout)
            return SUMS, self._with_own(layer.sums.compute(block, rows), rows[: block.n_dst])

    def _with_own(self, sums: Tensor, own: Rows | None) -> Tensor:
        """Return the matrix of `sums` float[n_dst, in], and below them the `own` rows of destinations, if they are
        read.
        """
        if own is None or not self.ctx.model.layers[0].sums.needs_own:
            return sums
        return torch.cat([sums, dense(own)])

    def _sends_sums(self, block: BlockTensors, rows: Rows) -> bool:
        """Return whether the rank that trains `block` gets its sums: always with `--remote sums`, else if no bit
        changes.

        The bits stay the same if the trainer would add up before it multiplies.
        """
        if not sums_suffice(self.ctx.model):
            return False
        return self.engine.mode_name == "sums" or not projects_first(self.ctx.model.layers[0], block, rows)


def preparing_engine(ctx: RankContext, config: StrategyConfig, shipping: Shipping, share_offsets: np.ndarray) -> Engine:
    """Return the engine of a rank that prepares; `ctx` is its context among those ranks.

    Shares begin at the vertices `share_offsets` (int64[shares + 1]). A step computes nothing here.
    """
    placement = placement_of(replace(ctx, rank_offsets=share_offsets), config)
    preparation = partial(SharePreparation, shipping=shipping, share_offsets=share_offsets)
    return Engine(ctx, config, placement=placement, preparation=preparation, step=lambda minibatch: 0.0)


def sums_suffice(model: Model) -> bool:
    """Return whether a rank can train `model` that has sums of its first layer's inputs, and not the block. Local.

    A model of one layer with a head reads the block itself.
    """
    return model.layers[0].sums.offered and (len(model.layers) > 1 or model.head is None)
