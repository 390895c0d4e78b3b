"""Rates of this job: what rows, edges, time steps, collectives and bytes cost here, counted or measured.

The parts of a cost model (leapmpi/plan/cost_model.py) are found by leaving things out: a micro-batch of few roots has
the fixed costs alone, one without its edges the rows, the whole one both. They are counted in operations and turned
into seconds by the rates of the machine (leapmpi/plan/machine_rates.py), or, with --time-steps measured, timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from leapmpi.engine.edge_features import set_dummy_features
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MicroBatch
from leapmpi.nn.layer import costs
from leapmpi.plan.cost_model import Rates
from leapmpi.plan.homes import in_range
from leapmpi.sampling.block import Block
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey
from leapmpi.system.phase_timers import median_seconds

if TYPE_CHECKING:
    from leapmpi.comm.communicator import Communicator

_ROOTS = 256
"""Roots of the largest micro-batch that is timed."""

_ROW_BYTES = 16 << 20
"""Bytes that its rows may take."""

_FEW = 2

_SENT = 1 << 18
"""Bytes to each other rank whose time gives that of a byte."""


def counted_rates(ctx: RankContext, roots: np.ndarray) -> Rates:
    """Return the rates of this job by `ctx.machine`, those of the slowest rank; equal in every run. Collective.

    `roots` int64[k] have their home here.
    """
    slowest = ctx.communicator.all_gather_rows(np.array(counted_seconds(ctx, roots))).max(axis=0)
    ctx.communicator.byte_counters.take()
    return by_machine(ctx, *slowest.tolist())


def local_roots(ctx: RankContext, batch: np.ndarray) -> np.ndarray:
    """Return the roots of `batch` (int64) whose home is this rank, or some local vertices where there are none.
    Local.
    """
    first, end = ctx.local_range
    roots = in_range(batch, first, end)
    return roots if len(roots) else np.arange(first, min(end, first + 2))


def by_machine(ctx: RankContext, row: float, edge: float) -> Rates:
    """Return the rates of a job in which a row and an edge take that many seconds on the slowest rank. Local."""
    return Rates(row, edge, ctx.machine.step, ctx.machine.collective, ctx.machine.byte)


def counted_seconds(ctx: RankContext, roots: np.ndarray) -> tuple[float, float]:
    """Return seconds of an input row and of an edge by `ctx.machine`, counted with up to 256 of `roots`.

    Local, but for the sampler: collective where the topology is sharded.
    """
    key = DrawKey(PRESAMPLE, ctx.seed, 0, 0)
    blocks = ctx.sampler.sample(key, roots[:_ROOTS])
    alone, whole = _operations(ctx, blocks, 0), _operations(ctx, blocks, 1)
    rows, edges = blocks[-1].n_src, sum(block.edges for block in blocks)
    unit = ctx.machine.multiply_add
    return alone * unit / max(1, rows), (whole - alone) * unit / max(1, edges)


def _operations(ctx: RankContext, blocks: list[Block], share_of_edges: int) -> int:
    """Count the multiply-adds of forward and backward, about, with all edges (1) or none (0)."""
    total = 0
    for layer, block in zip(ctx.model.layers, reversed(blocks), strict=True):
        before, after = costs(layer, block.n_src, block.n_dst, share_of_edges * block.edges, layer.number > 1)
        total += min(before, after) if layer.linear else before
    return total


def measured_rates(ctx: RankContext, roots: np.ndarray) -> Rates:
    """Return the rates of this job, those of the slowest rank; `roots` int64[k] have their home here. Collective.

    Parameters and counters are left as they were.
    """
    mine = np.array([*compute_rates(ctx, roots), *link_seconds(ctx.communicator)])
    slowest = ctx.communicator.all_gather_rows(mine).max(axis=0)
    ctx.communicator.byte_counters.take()
    return Rates(*slowest.tolist())


def compute_rates(ctx: RankContext, roots: np.ndarray) -> tuple[float, float, float]:
    """Return seconds of an input row, of an edge and of a time step on this rank. As collective as
    `counted_seconds`.
    """
    key = DrawKey(PRESAMPLE, ctx.seed, 0, 0)
    roots = roots[:_ROOTS]
    blocks = ctx.sampler.sample(key, roots)
    # Fewer roots where the rows of all would not fit: rates are per row, and do not depend on their number.
    room = min(1.0, _ROW_BYTES / max(1, blocks[-1].n_src * ctx.input_row_bytes))
    roots = roots[: max(_FEW, int(len(roots) * room))]
    blocks = ctx.sampler.sample(key, roots)
    few = median_seconds(lambda: _train(ctx, key, ctx.sampler.sample(key, roots[:_FEW])))
    alone = median_seconds(lambda: _train(ctx, key, [_without_edges(block) for block in blocks]))
    whole = median_seconds(lambda: _train(ctx, key, blocks))
    # Measured steps leave no trace in training.
    ctx.parameters.gradients.zero_()
    rows, edges = blocks[-1].n_src, sum(block.edges for block in blocks)
    return max(0.0, alone - few) / max(1, rows), max(0.0, whole - alone) / max(1, edges), few


def link_seconds(communicator: Communicator) -> tuple[float, float]:
    """Measure the seconds of a collective that carries nothing, and of a byte. Collective."""
    count = _SENT // 8
    send, receive = np.zeros(count * (communicator.size - 1)), np.empty(count * (communicator.size - 1))
    counts = np.full(communicator.size, count)
    counts[communicator.rank] = 0

    def swap(share: int) -> Callable[[], None]:
        part = slice(0, len(send) // share)
        return lambda: communicator.exchange(send[part], counts // share, receive[part], counts // share, "control")

    empty = median_seconds(communicator.barrier)
    # The difference of two sizes: the fixed part of a message falls out.
    small, large = median_seconds(swap(count)), median_seconds(swap(1))
    return empty, max(0.0, large - small) / max(1, send.nbytes)


def _train(ctx: RankContext, key: DrawKey, blocks: list[Block]) -> None:
    """Run forward and backward on placeholder rows."""
    count = blocks[0].n_dst
    sampled = MicroBatch(blocks[0].dst, blocks, None)
    set_dummy_features(ctx, sampled)
    tensors: list[Any] = sampled.on_device(ctx.device)
    logits = ctx.model(tensors, ctx.dummy_rows(blocks[-1].n_src), key)
    loss = ctx.task.loss(logits, ctx.task.dummy_labels(count, logits.dtype, ctx.device), 0.0)
    ctx.task.checked(loss).backward()
    # The clock of a device is read when its work is done.
    ctx.parameters.gradients[0].item()


def _without_edges(block: Block) -> Block:
    names = ("indices", "weight", "edge_numbers", "edge_weight", "relation")
    arrays = {name: array[:0] for name in names if (array := getattr(block, name)) is not None}
    return replace(block, indptr=np.zeros_like(block.indptr), **arrays)
