"""Predicted seconds of an iteration: its counts and multiply-adds by the rates of the machine. No clock is read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leapmpi.engine.engine import Engine
from leapmpi.exchange.context import RankContext
from leapmpi.exchange.minibatch import MiniBatch
from leapmpi.exchange.selection import COPYING
from leapmpi.features.shards.sparse_shard import SparseShard
from leapmpi.nn.layer import Layer, costs, least_cost, sparse_cost
from leapmpi.plan.cost_model import Counts
from leapmpi.plan.machine_rates import MachineRates
from leapmpi.plan.traffic_model import Traffic

_FIXED_STEPS = 2
"""Other fixed work of an iteration (planning, drawing, requests, messages, optimizer), in time steps.

Fitted to the six cases of jobs/lab/forecasts on an idle machine.
"""


def predicted_seconds(counts: Counts, operations: int, machine: MachineRates, ahead: bool) -> float:
    """Predict the seconds of an iteration in which the busiest rank computes `operations` multiply-adds.

    With `ahead`, rows that need no weights are fetched while the previous iteration computes, except for the packing.
    """
    compute = operations * machine.multiply_add + (counts.rows.shape[1] + _FIXED_STEPS) * machine.step
    fetch = counts.bytes_ahead * machine.byte
    exposed = max(fetch - compute, COPYING * fetch) if ahead else fetch
    messages = counts.collectives + counts.hops
    return compute + exposed + counts.bytes_within * machine.byte + messages * machine.collective


def most_operations(engines: Sequence[Engine], minibatches: Sequence[MiniBatch], traffic: Traffic) -> int:
    """Estimate the multiply-adds of forward and backward on the busiest rank.

    `engines` and `minibatches` are those of all ranks, `traffic` is what they read and send.
    """
    return max(_operations(each, minibatches, traffic) for each in engines)


def _operations(engine: Engine, minibatches: Sequence[MiniBatch], traffic: Traffic) -> int:
    """Estimate the multiply-adds of forward and backward on the rank of `engine`."""
    ctx, (first, *others) = engine.ctx, engine.ctx.model.layers
    total = _first_layer(ctx, first, *engine.mode.work(minibatches, traffic))
    for micro_batch in minibatches[ctx.rank].micro_batches:
        for layer, block in zip(others, reversed(micro_batch.blocks[:-1]), strict=True):
            before, after = costs(layer, block.n_src, block.n_dst, block.edges, True)
            total += min(before, after) if layer.linear else before
    return total


def _first_layer(ctx: RankContext, layer: Layer, sources: int, destinations: int, edges: int) -> int:
    """Count the multiply-adds of the layer that reads features; of sparse rows, entries count, not columns."""
    shard = ctx.features.shard
    if not isinstance(shard, SparseShard):
        return least_cost(layer, sources, destinations, edges)
    entries = float(shard.entry_counts.mean(dtype=np.float64))
    return int(sparse_cost(layer, sources, edges, entries * layer.in_dim / shard.width))
