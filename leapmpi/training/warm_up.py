"""Compiling the kernels before the clock runs: one rank per node compiles, the others find the results in the cache."""

from __future__ import annotations

import numpy as np
import torch

from leapmpi.comm.flow_control import wait_for
from leapmpi.comm.world import World
from leapmpi.config.schema import Config
from leapmpi.engine.context import RankContext
from leapmpi.nn.loss import weighted_loss
from leapmpi.nn.tensors import to_tensors
from leapmpi.system.counter_rng import PRESAMPLE, DrawKey


def warm_up(world: World, ctx: RankContext, config: Config) -> None:
    """Run every kernel of training and evaluation once on a small sample of own vertices. Collective.

    Parameters and counters are left as they were.
    """
    if world.node_comm.rank == 0:
        _run_once(ctx, config)
    wait_for(world.node_comm.Ibarrier)
    if world.node_comm.rank != 0:
        _run_once(ctx, config)


def _run_once(ctx: RankContext, config: Config) -> None:
    ctx.features.warm_up()
    ctx.labels.warm_up()
    begin, end = ctx.rank_offsets[ctx.communicator.rank : ctx.communicator.rank + 2]
    roots = np.arange(begin, min(begin + 2, end), dtype=np.int64)
    key = DrawKey(PRESAMPLE, ctx.seed, 0, 0)
    blocks = [to_tensors(block, ctx.device) for block in ctx.sampler.sample(key, roots)]
    dtype = getattr(torch, config.train.dtype)
    features = ctx.stand_in(blocks[-1].n_src)
    classes = ctx.labels.shard.width
    labels = torch.zeros((len(roots), classes) if ctx.labels.dtype == dtype else len(roots), device=ctx.device)
    weighted_loss(ctx.model(blocks, features, key), labels.to(ctx.labels.dtype), 1.0).backward()
    ctx.parameters.gradients.zero_()
    with torch.no_grad():
        ctx.model(blocks, features, None)
